"""What whole.py measures of a ledger, of what is beside it, and of the machine's bare operations.

I/O: a folder that is given, for its disk is a part of what is measured.
Units: seconds; of bare operations, so many a second.
"""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import ApplicationRecorder, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import VerificationReport
from proctor.errors import ProctorError
from studies.speed.timing import Timed, in_turns, timed

__all__ = [
    "BATCH",
    "CORES",
    "append_to_ledger",
    "append_to_library",
    "held",
    "make_events",
    "measure_limits",
    "verify_chain",
    "write_chain",
    "written",
]

BODY = 400  # bytes of an event's body
BATCH = 1_000  # events
STREAMS = 100
CORES = 2


def _rate(count: int, work: Callable[[], object]) -> float:
    return count / timed(work).wall


def make_events(count: int, *, start: int = 0) -> list[StoredEvent]:
    """Return events with bodies of BODY bytes."""
    body = hashlib.shake_256(b"bench").digest(BODY)
    return [
        StoredEvent(UUID(int=n % STREAMS), n // STREAMS + 1, f"run.event_{n % 7}", body)
        for n in range(start, start + count)
    ]


def _insert(recorder: ApplicationRecorder, events: list[StoredEvent], *, batch: int) -> None:
    for at in range(0, len(events), batch):
        recorder.insert_events(events[at : at + batch])


# Appending.


def append_to_ledger(scratch: Path, given: list[StoredEvent], batch: int) -> Timed:
    """Append events to a new ledger in batches, and remove it."""
    directory = scratch / "appended"
    try:
        database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
        with closing(database):
            recorder = SignedRecorder(database, signer=signer)
            return timed(lambda: _insert(recorder, given, batch=batch))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def append_to_library(scratch: Path, given: list[StoredEvent], batch: int) -> Timed:
    """Append events with the library's own recorder, unsigned, and remove its file."""
    directory = scratch / "library"
    directory.mkdir()
    try:
        datastore = SQLiteDatastore(str(directory / "events.sqlite"))
        with closing(datastore):
            recorder = SQLiteApplicationRecorder(datastore)
            recorder.create_table()
            with datastore.get_connection(commit=True) as connection:
                connection.cursor().execute("PRAGMA synchronous = FULL")
            return timed(lambda: _insert(recorder, given, batch=batch))
    finally:
        shutil.rmtree(directory)


def written(directory: Path, *, events: int, batch: int, start: int = 0) -> Path:
    """Append events to a ledger in batches; return its folder."""
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        for at in range(start, start + events, 10_000):  # not all in memory at once
            count = min(10_000, start + events - at)
            _insert(recorder, make_events(count, start=at), batch=batch)
    return directory


def held(report: VerificationReport) -> VerificationReport:
    """Return a report that found nothing wrong."""
    if not report.ok:
        raise ProctorError(f"the ledger that was written for the measurement fails: {report.error}")
    return report


def _json_body() -> dict[str, Any]:
    """Return an object whose JSON text has BODY bytes."""
    body: dict[str, Any] = {f"metric_{n:02}": n * 1.0625 for n in range(16)}
    body["text"] = ""
    body["text"] = "x" * (BODY - len(_canonical(body)))
    return body


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def write_chain(path: Path, *, events: int) -> None:
    """Write a chain of JSON lines, each with the hash of the one before."""
    body, previous = _json_body(), "0" * 64
    with path.open("w", encoding="utf-8") as file:
        for n in range(events):
            record = {
                "index": n,
                "stream": str(UUID(int=n % STREAMS)),
                "version": n // STREAMS + 1,
                "time": 1_790_000_000_000_000_000 + n,
                "name": f"run.event_{n % 7}",
                "body": body,
                "previous": previous,
            }
            previous = hashlib.sha256(_canonical(record).encode()).hexdigest()
            file.write(_canonical({**record, "hash": previous}) + "\n")


def verify_chain(path: Path) -> None:
    """Verify as a plain hash chain is: parse, take out the hash, write canonically, compare."""
    previous = "0" * 64
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            record = json.loads(line)
            claimed = record.pop("hash")
            real = hashlib.sha256(_canonical(record).encode()).hexdigest()
            if (record["index"], record["previous"], claimed) != (number, previous, real):
                raise ProctorError(f"line {number} of the chain does not fit")
            previous = real


# Bare limits.


def measure_limits(written: Path, scratch: Path, *, events: int, rounds: int) -> dict[str, float]:
    """Measure bare operations a second; `written` is the folder of a ledger with the events."""
    limits = _limits(written, scratch, events=events)
    (taken,) = in_turns([[*limits.values()]], rounds=rounds)
    return dict(zip(limits, map(median, zip(*taken, strict=True)), strict=True))


def _limits(written: Path, scratch: Path, *, events: int) -> Mapping[str, Callable[[], float]]:
    key = Ed25519PrivateKey.generate()
    public, message = key.public_key(), bytes(150)
    signature = key.sign(message)
    entry, node = bytes(73 + 1 + 1 + 11 + 2 + BODY), bytes(64)
    database = LedgerPaths(written).database

    def times(count: int, work: Callable[[], object]) -> float:
        return _rate(count, lambda: [work() for _ in range(count)])

    def fetch() -> float:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT * FROM entries NOT INDEXED")
            return _rate(events, lambda: sum(len(part) for part in _parts(rows)))

    def sync() -> float:
        with (scratch / "synced").open("wb", buffering=0) as file:

            def append() -> None:
                file.write(bytes(4_096))
                os.fsync(file.fileno())

            return times(100, append)

    return {
        "Ed25519 signatures": lambda: times(1_000, lambda: key.sign(message)),
        "Ed25519 verifications": lambda: times(1_000, lambda: public.verify(signature, message)),
        "SHA-256 of an entry": lambda: times(
            50_000, lambda: hashlib.sha256(b"\x00" + entry).digest()
        ),
        "SHA-256 of a node": lambda: times(50_000, lambda: hashlib.sha256(b"\x01" + node).digest()),
        "rows fetched from SQLite": fetch,
        "4 KiB written and synced": sync,
    }


def _parts(rows: sqlite3.Cursor) -> Iterator[list[Any]]:
    while part := rows.fetchmany(1_000):
        yield part
