"""Eight producers on one ledger; every few seconds one is killed, and another is cut off.

`make test-postgres SECONDS=600` takes ten minutes for it. `pytest -s` prints the figures.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest
from postgres_server import missing, running_server
from stores import tables_of
from synthetic import synthetic_run
from table_digests import table_digests

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.verification.reader import check_ledger, open_verified
from projections.cache import catch_up

PRODUCERS = 8
SECONDS = float(os.environ.get("PRODUCERS_SECONDS", "20"))
EVERY = 3.0  # s, between two kills, and two cuts
FAILED = 3  # exit status of a producer that was refused

reason = missing()
pytestmark = [pytest.mark.skipif(reason is not None, reason=reason or ""), pytest.mark.slow]


class Acknowledging:
    """Saves to a log, and notes what was acknowledged: one write for each line."""

    def __init__(self, log: LedgerApplication, file: int) -> None:
        self._log = log
        self._file = file

    def save(self, *aggregates: Any) -> None:
        for each in self._log.save(*aggregates):
            said = each.notification
            line = f"{said.originator_id} {said.originator_version} {said.id}\n"
            os.write(self._file, line.encode())


def produce(directory: Path, acknowledged: Path) -> None:
    """Append synthetic runs until killed."""
    file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with LedgerApplication.open(directory, REGISTRY) as log:
        for seed in range(10**9):
            synthetic_run(Acknowledging(log, file), epochs=3, seed=seed, dead=range(3))


def started(directory: Path, acknowledged: Path) -> int:
    """Fork a producer; this process has no connection that it could share."""
    child = os.fork()
    if child:
        return child
    try:
        produce(directory, acknowledged)
    except BaseException as e:
        acknowledged.with_suffix(".failed").write_text(repr(e))
    finally:
        os._exit(FAILED)


def cut_off_one(directory: Path, rng: random.Random) -> bool:
    """Have the server end one producer's connection, in whatever it is doing."""
    with tables_of(directory) as c:
        others = c.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE application_name = 'proctor' AND pid <> pg_backend_pid()"
        ).fetchall()
        if others:
            c.execute("SELECT pg_terminate_backend(?)", rng.choice(others)).fetchone()
    return bool(others)


def chaos(directory: Path, folder: Path, projection: Path) -> Iterator[str]:
    """Run the producers for a while; tell of each kill and cut."""
    rng = random.Random("chaos")
    running = [started(directory, folder / f"acknowledged-{n}") for n in range(PRODUCERS)]
    until = time.monotonic() + SECONDS
    try:
        while time.monotonic() < until:
            time.sleep(EVERY / 2)
            if cut_off_one(directory, rng):
                yield "cut off"
            catch_up(projection, directory)
            time.sleep(EVERY / 2)
            at = rng.randrange(PRODUCERS)
            os.kill(running[at], signal.SIGKILL)
            assert os.waitpid(running[at], 0)[1] == signal.SIGKILL, "a producer has failed"
            running[at] = started(directory, folder / f"acknowledged-{at}")
            yield "killed"
    finally:
        for child in running:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def digests(projection: Path) -> dict[str, str]:
    with duckdb.connect(str(projection), read_only=True) as connection:
        return table_digests(connection)


def test_killed_and_cut_off_producers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    with running_server() as server:
        LedgerApplication.open(directory, REGISTRY, server=server.env()).close()
        came = list(chaos(directory, tmp_path, tmp_path / "followed.duckdb"))
        assert not [each.read_text() for each in tmp_path.glob("*.failed")]

        report = check_ledger(directory)
        assert report.ok, report
        places: dict[tuple[UUID, int], int] = {}
        with open_verified(directory) as ledger:
            for entry in ledger.entries():
                places[entry.stream_id, entry.stream_version] = entry.index
        lines = [line.split() for each in tmp_path.glob("acknowledged-*") for line in each.open()]
        for stream, version, number in lines:
            assert places[UUID(stream), int(version)] == int(number) - 1

        catch_up(tmp_path / "followed.duckdb", directory)
        catch_up(tmp_path / "rebuilt.duckdb", directory)
        assert digests(tmp_path / "followed.duckdb") == digests(tmp_path / "rebuilt.duckdb")
        print(
            f"\n{SECONDS:.0f} s: {report.size} entries, {len(lines)} acknowledged, "
            f"{came.count('killed')} kills, {came.count('cut off')} cuts"
        )
    assert min(came.count("killed"), came.count("cut off")) >= 2
    assert len(lines) > 100
