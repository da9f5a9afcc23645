"""The file on disk: catching up, building anew, and everything that can be wrong with it."""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from synthetic import synthetic_run
from table_digests import table_digests

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from ledger.errors import StorageError
from ledger.paths import LedgerPaths
from projections import template
from projections.cache import CatchUp, catch_up
from projections.errors import BusyError, ProjectionError
from projections.reading import query

pytest_plugins = ("projection_fixtures",)


def digests(database: Path) -> dict[str, str]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return table_digests(connection)


def built(database: Path, directory: Path) -> dict[str, str]:
    """Return what a file made from nothing holds."""
    other = database.with_name("other.duckdb")
    other.unlink(missing_ok=True)
    catch_up(other, directory)
    return digests(other)


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Let another process have the file open for writing."""
    code = (
        f"import duckdb, sys; c = duckdb.connect({str(database)!r}); print(1, flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.communicate(b"\n")


def test_file_is_the_same_when_there_is_no_room_for_temporary_files(
    database: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up(database, written)
    monkeypatch.setattr(template, "_MADE", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    other = tmp_path / "other.duckdb"
    catch_up(other, written)
    assert digests(other) == digests(database)
    assert [path.name for path in tmp_path.glob("other*")] == ["other.duckdb", "other.duckdb.lock"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_file_equals_a_rebuilt_one_when_it_caught_up_along_the_way(
    seed: int, database: Path, tmp_path: Path
) -> None:
    random = Random(seed)
    directory = tmp_path / "ledger"
    position = [0]

    class CatchingUp:
        def __init__(self, log: LedgerApplication) -> None:
            self.log = log

        def save(self, *aggregates: Any) -> None:
            self.log.save(*aggregates)
            if random.random() < 0.3:
                done = catch_up(database, directory)
                assert position[-1] + done.applied == done.position
                position.append(done.position)

    with LedgerApplication.open(directory, REGISTRY) as log:
        synthetic_run(CatchingUp(log), epochs=4, diverged=(2,))
        synthetic_run(CatchingUp(log), epochs=4, dead=range(4))
    catch_up(database, directory)
    assert digests(database) == built(database, directory)


def test_file_has_the_same_digests_when_deleted_and_built_again(
    database: Path, directory: Path
) -> None:
    first = catch_up(database, directory)
    before = digests(database)
    database.unlink()
    assert catch_up(database, directory) == first
    assert digests(database) == before


def test_nothing_is_applied_when_nothing_is_new(database: Path, directory: Path) -> None:
    first = catch_up(database, directory)
    assert first.applied == first.position > 0
    assert catch_up(database, directory) == CatchUp(0, first.position)


def test_nothing_behind_the_stop_is_applied_until_it_is_asked_for(
    database: Path, directory: Path
) -> None:
    assert catch_up(database, directory, stop=5) == CatchUp(5, 5)
    assert catch_up(database, directory, stop=3) == CatchUp(0, 5)
    whole = catch_up(database, directory)
    assert whole.applied == whole.position - 5 > 0
    assert digests(database) == built(database, directory)


def test_lock_that_is_a_link_makes_no_file_elsewhere(
    database: Path, directory: Path, tmp_path: Path
) -> None:
    lock = database.with_name(f"{database.name}.lock")
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProjectionError, match="lock: cannot be opened"):
        catch_up(database, directory)
    assert not (tmp_path / "elsewhere").exists()


def empty_file(database: Path) -> None:
    database.write_bytes(b"")


def garbage(database: Path) -> None:
    database.write_bytes(b"garbage" * 1_000)


def another_format(database: Path) -> None:
    database.unlink()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE mine (x)")


def cut_short(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:20_000])


def flipped(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[4_200] ^= 0xFF  # in the first header behind the one that names the format
    content[8_300] ^= 0xFF
    database.write_bytes(content)


def foreign(database: Path) -> None:
    database.unlink()
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 42 AS answer")


def half_made(database: Path) -> None:
    database.unlink()
    duckdb.connect(str(database)).close()


def no_position(database: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute("DELETE FROM log.position")


def lost_table(database: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "DROP VIEW run_summary; DROP TABLE log.weights; UPDATE log.position SET next_idx = 1"
        )


def other_schema(database: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE log.position SET schema_hash = 'older'")


@pytest.mark.parametrize(
    "spoil",
    [
        another_format,
        cut_short,
        empty_file,
        flipped,
        foreign,
        garbage,
        half_made,
        lost_table,
        no_position,
        other_schema,
    ],
)
@pytest.mark.sampled(3)
def test_file_is_built_anew_when_it_is_no_good(
    database: Path, directory: Path, spoil: Callable[[Path], None]
) -> None:
    catch_up(database, directory)
    before = digests(database)
    spoil(database)
    done = catch_up(database, directory)
    assert done.applied == done.position
    assert digests(database) == before
    assert catch_up(database, directory).applied == 0


def truncate(directory: Path) -> None:
    with closing(sqlite3.connect(LedgerPaths(directory).database)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE idx > 20")


def exchange(directory: Path) -> None:
    shutil.rmtree(directory)
    with LedgerApplication.open(directory, REGISTRY) as log:
        for _ in range(8):
            synthetic_run(log)


@pytest.mark.parametrize("rewrite", [exchange, truncate])
def test_file_is_built_anew_when_its_ledger_was_rewritten(
    database: Path, directory: Path, rewrite: Callable[[Path], None]
) -> None:
    catch_up(database, directory)
    rewrite(directory)
    done = catch_up(database, directory)
    assert done.applied == done.position
    assert digests(database) == built(database, directory)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.sampled(2)
def test_everything_is_applied_once_when_processes_catch_up_at_once(
    database: Path, directory: Path, damaged: bool
) -> None:
    if damaged:
        garbage(database)
    code = (
        "import sys; from pathlib import Path; from projections.cache import catch_up\n"
        "print(catch_up(Path(sys.argv[1]), Path(sys.argv[2])).applied)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(database), str(directory)], stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    applied = sorted(int(process.communicate()[0]) for process in processes)
    assert applied == [0, 0, catch_up(database, directory).position]
    assert digests(database) == built(database, directory)


def test_file_goes_on_from_the_last_batch_when_the_process_was_killed(
    database: Path, directory: Path
) -> None:
    code = """
import os, signal, sys
from pathlib import Path
import duckdb
from projections.projector import create_schema, project
from projections.source import open_source

def entries(ledger):
    for entry in ledger.entries(start=0):
        if entry.index == 60:
            os.kill(os.getpid(), signal.SIGKILL)
        yield entry

connection = duckdb.connect(sys.argv[1])
create_schema(connection)
with open_source(Path(sys.argv[2])) as ledger:
    project(connection, entries(ledger), batch_bytes=10_000)
"""
    killed = subprocess.run(
        [sys.executable, "-c", code, str(database), str(directory)], check=False
    )
    assert killed.returncode == -9
    done = catch_up(database, directory)
    assert 0 < done.position - done.applied <= 60
    assert digests(database) == built(database, directory)


def test_caller_is_told_when_another_process_holds_the_file(
    database: Path, directory: Path
) -> None:
    catch_up(database, directory)
    with held(database):
        with pytest.raises(BusyError, match="another process is using the file"):
            catch_up(database, directory, wait=0.2)
        with pytest.raises(BusyError, match="another process is using the file"):
            query(database, "SELECT 1", wait=0.2)
    assert catch_up(database, directory).applied == 0


def test_file_catches_up_when_the_ledger_can_only_be_read(database: Path, directory: Path) -> None:
    LedgerPaths(directory).key.unlink()
    assert catch_up(database, directory).applied > 0


def test_clear_error_when_there_is_no_ledger(database: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no ledger"):
        catch_up(database, tmp_path / "nowhere")
    assert not database.exists()


def test_clear_error_when_the_path_is_a_folder(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(ProjectionError, match="not a file"):
        catch_up(tmp_path, directory)


def test_event_of_a_newer_program_is_set_aside(database: Path, directory: Path) -> None:
    with closing(sqlite3.connect(LedgerPaths(directory).database)) as connection, connection:
        rows = connection.execute("SELECT entry, idx FROM entries WHERE name = 'run.ended'")
        connection.executemany(
            "UPDATE entries SET entry = ? WHERE idx = ?",
            [(entry.replace(b"run.ended", b"run.flown"), idx) for entry, idx in rows.fetchall()],
        )
    catch_up(database, directory)
    reasons = query(database, "SELECT DISTINCT regexp_replace(reason, '\\d+', '#') FROM unreadable")
    [(reason,)] = reasons.rows
    assert "unknown event name 'run.flown'; was the ledger written by a newer program?" in reason
