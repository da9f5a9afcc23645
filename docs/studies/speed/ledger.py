"""How fast a ledger is, beside what it could be: ratios and bare limits, taken in one run.

Everything is measured in turns, round after round, and the median counts: a machine that is busy
for a while then slows all alike.

I/O: a temporary folder below the one that is given, for its disk is a part of what is measured.
Units: events a second, where nothing else is said.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import ApplicationRecorder, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.memory import Memory
from ledger.verification.reader import VerificationReport, check_ledger, check_new
from proctor.errors import ProctorError
from studies.speed.notary import Producing, measure_producers
from studies.speed.timing import Timed, timed

__all__ = [
    "BATCH",
    "CORES",
    "Bench",
    "append_to_ledger",
    "append_to_library",
    "held",
    "make_events",
    "measure",
    "measure_limits",
    "verify_chain",
    "write_chain",
    "written",
]

BODY = 400  # bytes of an event's body
BATCH = 1_000  # events
STREAMS = 100
CORES = 2
_NEWEST = f"newest signature, {CORES} processes"
_EVERY_10 = f"every signature, batches of 10, {CORES} processes"
_Contest = dict[str, Callable[[], float]]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What was measured; ratios are made of medians."""

    events: int
    rounds: int
    append: dict[str, float]  # events/s
    append_ratios: dict[str, float]  # the ledger's to the library's
    notary: list[Producing]
    verify: dict[str, float]  # entries/s
    verify_ratios: dict[str, float]  # to the chain of JSON lines
    remembered: dict[str, float]  # s; and how many times the whole takes
    limits: dict[str, float]  # bare operations/s
    reached: dict[str, float]  # parts of what the bare operations alone would allow


def measure(folder: Path, *, events: int, rounds: int) -> Bench:
    """Measure appending, verifying and the bare limits, on the disk of this folder."""
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        scratch = Path(name)
        append = _contest(_appending(scratch, events=events), rounds=rounds)
        notary = measure_producers(
            scratch, make_events(1)[0].state, events=max(events // 200, 100), rounds=rounds
        )
        verify = _contest(_verifying(scratch, events=events), rounds=rounds)
        remembered = _contest(_remembering(scratch, events=events), rounds=rounds)
        limits = measure_limits(scratch / "thousands", scratch, events=events, rounds=rounds)
    chain = verify["chain of JSON lines"]
    return Bench(
        events=events,
        rounds=rounds,
        append=append,
        append_ratios={
            f"batches of {BATCH:,}": append[f"ledger, batches of {BATCH:,}"]
            / append[f"library, batches of {BATCH:,}"],
            "single events": append["ledger, single events"] / append["library, single events"],
        },
        notary=notary,
        verify=verify,
        verify_ratios={name: rate / chain for name, rate in verify.items()},
        remembered=remembered,
        limits=limits,
        reached=_reached(append, verify, limits),
    )


def _reached(
    append: dict[str, float], verify: dict[str, float], limits: dict[str, float]
) -> dict[str, float]:
    """Compare with the time that the bare operations would take for one event."""
    entry = sum(
        1 / limits[name]
        for name in ("SHA-256 of an entry", "SHA-256 of a node", "rows fetched from SQLite")
    )
    head = entry * 10 + 1 / limits["Ed25519 verifications"]
    synced = 1 / limits["4 KiB written and synced"]
    single = append["ledger, single events"]
    return {
        "verifying, 1 process": verify["newest signature, 1 process"] * entry,
        f"verifying, {CORES} processes": verify[_NEWEST] * entry / CORES,
        "every signature in batches of 10": verify[_EVERY_10] * head / 10 / CORES,
        "appending single events": single * (synced + 1 / limits["Ed25519 signatures"]),
    }


def _contest(contestants: _Contest, *, rounds: int) -> dict[str, float]:
    """Let each take its turn in each round, and return the medians."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            figures[name].append(run())
    return {name: statistics.median(each) for name, each in figures.items()}


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


def _appending(scratch: Path, *, events: int) -> _Contest:
    many, few = make_events(max(events // 5, BATCH)), make_events(max(events // 200, 100))

    def rate(append: Callable[..., Timed], given: list[StoredEvent], batch: int) -> float:
        return len(given) / append(scratch, given, batch).wall

    return {
        f"ledger, batches of {BATCH:,}": lambda: rate(append_to_ledger, many, BATCH),
        f"library, batches of {BATCH:,}": lambda: rate(append_to_library, many, BATCH),
        "ledger, single events": lambda: rate(append_to_ledger, few, 1),
        "library, single events": lambda: rate(append_to_library, few, 1),
    }


# Verifying.


def _verifying(scratch: Path, *, events: int) -> _Contest:
    thousands = written(scratch / "thousands", events=events, batch=BATCH)
    hundreds = written(scratch / "hundreds", events=max(events // 5, 100), batch=100)
    tens = written(scratch / "tens", events=max(events // 20, 10), batch=10)
    chain = scratch / "chain.jsonl"
    lines = max(events // 5, 100)
    write_chain(chain, events=lines)

    def checked(directory: Path, **options: Any) -> float:
        sizes: list[int] = []
        took = timed(lambda: sizes.append(held(check_ledger(directory, **options)).size))
        return sizes[0] / took.wall

    return {
        "chain of JSON lines": lambda: _rate(lines, lambda: verify_chain(chain)),
        "newest signature, 1 process": lambda: checked(thousands, signatures="newest"),
        _NEWEST: lambda: checked(thousands, signatures="newest", processes=CORES),
        "every signature, 1 process": lambda: checked(thousands),
        f"every signature, {CORES} processes": lambda: checked(thousands, processes=CORES),
        "newest signature, batches of 100": lambda: checked(hundreds, signatures="newest"),
        f"every signature, batches of 100, {CORES} processes": lambda: checked(
            hundreds, processes=CORES
        ),
        "newest signature, batches of 10": lambda: checked(tens, signatures="newest"),
        _EVERY_10: lambda: checked(tens, processes=CORES),
    }


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


# From a remembered head.


def _remembering(scratch: Path, *, events: int) -> _Contest:
    """Return contestants that tell seconds: the whole, and what is new in it."""
    directory = scratch / "growing"
    shares = {"nothing": 1.0, "1 %": 0.99, "10 %": 0.9}
    memories: dict[str, Path] = {}
    size = 0
    for name, share in sorted(shares.items(), key=lambda item: item[1]):
        end = round(events * share / BATCH) * BATCH
        written(directory, events=end - size, batch=BATCH, start=size)
        size = end
        memories[name] = scratch / f"memory-{len(memories)}"
        held(check_ledger(directory, memory=Memory(memories[name])))

    def whole() -> float:
        return timed(lambda: held(check_ledger(directory))).wall

    def new(folder: Path) -> float:
        fresh = scratch / "memory"
        shutil.copytree(folder, fresh)
        try:
            return timed(lambda: held(check_new(directory, memory=Memory(fresh)))).wall
        finally:
            shutil.rmtree(fresh)

    return {"all, s": whole} | {
        f"{name} new, s": lambda folder=folder: new(folder) for name, folder in memories.items()
    }


# Bare limits.


def measure_limits(written: Path, scratch: Path, *, events: int, rounds: int) -> dict[str, float]:
    """Measure bare operations a second; `written` is the folder of a ledger with the events."""
    return _contest(_limits(written, scratch, events=events), rounds=rounds)


def _limits(written: Path, scratch: Path, *, events: int) -> _Contest:
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
