"""Measures appends on a PostgreSQL server and in a file, with the library's recorders beside ours.

PYTHONPATH=tests/helpers python tests/ledger/postgres/measure_appends.py [ROUNDS]

All four take turns in each round. Processor time is this process's, and the server's processes'
where there is one; commits are synced. Prints a table in Markdown: the medians for each event.
"""

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, StoredEvent
from eventsourcing.utils import Environment
from postgres_server import PostgresServer, running_server

from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry

BATCHES = {1: 200, 10: 1_000, 1_000: 20_000}  # size: events
BODY = hashlib.shake_256(b"bench").digest(400)
TICK = os.sysconf("SC_CLK_TCK")


def server_seconds(server: PostgresServer) -> float:
    """Return the processor time of all the server's processes, also of those that have ended."""
    (main,) = (server.data / "postmaster.pid").read_text().splitlines()[:1]
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if path.parent.name == main:
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == main:
            ticks += sum(map(int, fields[11:13]))
    return ticks / TICK


@contextmanager
def recorder_of(env: dict[str, str], *, synced: bool) -> Iterator[ApplicationRecorder]:
    if (directory := env.get("LEDGER_DIRECTORY")) is not None:
        server = env if "POSTGRES_DBNAME" in env else None
        with LedgerApplication.open(Path(directory), EventRegistry(), server=server) as app:
            yield app.recorder
        return
    with closing(InfrastructureFactory.construct(Environment(env=env))) as factory:
        recorder = factory.application_recorder()
        if synced:  # the library's in a file
            with factory.datastore.get_connection(commit=True) as connection:  # type: ignore[attr-defined]
                connection.cursor().execute("PRAGMA synchronous = FULL")
        yield recorder


def append(recorder: ApplicationRecorder, *, size: int, events: int) -> None:
    for _ in range(events // size):
        stream = uuid4()
        recorder.insert_events(
            [StoredEvent(stream, n + 1, f"run.event_{n % 7}", BODY) for n in range(size)]
        )


def measured(
    env: dict[str, str], server: PostgresServer, *, size: int, synced: bool
) -> tuple[float, float, float]:
    """Return seconds of this process, of the server, and by the clock, for each event."""
    with recorder_of(env, synced=synced) as recorder:
        append(recorder, size=size, events=size)
        before = time.process_time(), server_seconds(server), time.perf_counter()
        append(recorder, size=size, events=BATCHES[size])
        after = time.process_time(), server_seconds(server), time.perf_counter()
    own, its, wall = (b - a for a, b in zip(before, after, strict=True))
    return own / BATCHES[size], its / BATCHES[size], wall / BATCHES[size]


def contestants(server: PostgresServer, folder: Path) -> dict[str, Callable[[], dict[str, str]]]:
    """Return how each begins with nothing."""

    def fresh() -> Path:
        path = folder / uuid4().hex
        path.mkdir()
        return path

    def ours() -> dict[str, str]:
        schema = f"l{uuid4().hex}"
        place = server.env(schema=schema)
        return {"LEDGER_DIRECTORY": str(fresh()), **place}

    def theirs() -> dict[str, str]:
        place = server.env(password="none", port="5432", events_table_name=f"e{uuid4().hex}")
        return {"PERSISTENCE_MODULE": "eventsourcing.postgres", **place}

    return {
        "Proctor, PostgreSQL": ours,
        "library, PostgreSQL": theirs,
        "Proctor, SQLite": lambda: {"LEDGER_DIRECTORY": str(fresh())},
        "library, SQLite": lambda: {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(fresh() / "events.sqlite"),
        },
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        made = contestants(server, Path(folder))
        found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        for _ in range(rounds):
            for size in BATCHES:
                for name, env in made.items():
                    times = measured(env(), server, size=size, synced=name == "library, SQLite")
                    found.setdefault((name, size), []).append(times)
    print(
        "| µs for each event | batch | client | server | both | clock |\n|---|---|---|---|---|---|"
    )
    for (name, size), each in found.items():
        own, its, wall = (statistics.median(times) * 1e6 for times in zip(*each, strict=True))
        print(f"| {name} | {size:,} | {own:.0f} | {its:.0f} | {own + its:.0f} | {wall:.0f} |")


if __name__ == "__main__":
    main()
