"""A whole ledger verified in bulk, by this process and others beside it.

Each process takes a segment of its own. What a segment begins with (the tree's edge, the last
entry's hash and time, the keys that stand) is looked up in the file, and is no more than a claim
until it equals what the segment before has come to. So it does not matter where a process has
read: whatever was hashed leads to the root that the newest tree head signs.

Trust: the file is hostile, the other processes are this program's own.
I/O: the database, from a snapshot in each process; the processes' pipes.
"""

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ledger.errors import VerificationError
from ledger.progress import advanced
from ledger.verification.authority import authority_stream
from ledger.verification.snapshots import ALL, Snapshot, SQLiteSnapshot, connected
from ledger.verification.states import Signatures, State, Versions, decides_keys
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verify import Verification, Verified

_WORTH_A_PROCESS = 75_000  # entries; starting one takes the time of as many
_SIGNATURE = 40  # checking one takes the time of as many entries
_HEAD_BY_SIZE = "SELECT size, edge FROM tree_heads WHERE size >= ? ORDER BY size LIMIT 1"
_HEAD_BY_COUNT = "SELECT size, edge FROM tree_heads ORDER BY size LIMIT 1 OFFSET ?"
_HEADS = "SELECT COUNT(*) FROM (SELECT 1 FROM tree_heads WHERE size <= ? LIMIT ?)"
_KEY_ENTRIES = "SELECT entry FROM entries WHERE stream_id = ? ORDER BY stream_version LIMIT ?"
_MOST_KEY_ENTRIES = 1_000  # with more of them, one process has to do
_REFUSED = (VerificationError, sqlite3.Error, OSError, TypeError, ValueError, OverflowError)
_CHILD = """
import sys
sys.path[:] = sys.argv[1:]
from ledger.verification.parallel import work
sys.exit(work())"""
_KeyEntries = Sequence[tuple[bytes, VerifiedEntry]]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A segment to be verified."""

    vkey: str
    start: State
    skipped_heads: int  # those of sizes up to the start
    stop: int | None  # index of the first entry behind it; None if it goes to the end
    kept_heads: tuple[str, ...]
    signatures: Signatures

    def do(self, stored: Snapshot) -> Verified:
        verification = Verification(
            vkey=self.vkey,
            start=self.start,
            kept_heads=self.kept_heads,
            signatures=self.signatures,
            whole=self.stop is None,
            skipped_heads=self.skipped_heads,
        )
        limit = ALL if self.stop is None else self.stop - self.start.size
        with stored.in_bulk():
            return verification.run(
                stored.entries_from_top(skip=self.start.size, limit=limit),
                stored.heads_from_top(skip=self.skipped_heads),
            )


def verify_divided(
    stored: Snapshot, verification: Verification, *, processes: int
) -> Verified | None:
    """Return what a whole ledger comes to by this verification: the last segment, with all marks.

    None for one that is not worth it, or that one process has to look at: it may not hold.
    """
    try:
        vkey, signatures = verification.vkey, verification.signatures
        starts = _starts(stored, vkey=vkey, signatures=signatures, processes=processes)
        if len(starts) < 2:
            return None
        stops = [start.size for start, _ in starts[1:]]
        tasks = [
            _Task(
                vkey=vkey,
                start=start,
                skipped_heads=skipped,
                stop=stop,
                kept_heads=tuple(kept.note for kept in verification.kept_heads),
                signatures=signatures,
            )
            for (start, skipped), stop in zip(starts, [*stops, None], strict=True)
        ]
        advanced("verifying", 0, stops[0])  # this process's part of several, which take as long
        with _working(tasks[1:], path=stored.file) as workers:
            segments = [tasks[0].do(stored), *map(_result, workers)]
        heads, known = 0, Versions()
        for one, other, task in zip(segments, segments[1:], tasks[1:], strict=False):
            heads += one.heads
            if one.state != other.start or heads != task.skipped_heads:
                return None
        overflowed = any(each.versions.overflowed for each in segments)
        if not overflowed:
            for each in segments:
                each.versions.follow(known)
    except _REFUSED:
        return None
    return replace(
        segments[-1],
        versions=Versions(overflowed=overflowed),
        entry_marks=[mark for each in segments for mark in each.entry_marks],
        head_marks=[mark for each in segments for mark in each.head_marks or ()],
        blocks=[root for each in segments for root in each.blocks],
    )


def _starts(
    stored: Snapshot, *, vkey: str, signatures: Signatures, processes: int
) -> list[tuple[State, int]]:
    """Return where segments begin and how many tree heads lie before, as the file claims it.

    Pages that refer to each other in circles could keep a query busy for ever: each of these has
    a limit, by what the file can hold.
    """
    starts = [(State(), 0)]
    if not isinstance(stored, SQLiteSnapshot):
        return starts  # one server answers all processes
    connection = stored.connection
    (size,) = connection.execute("SELECT IFNULL(MAX(size), 0) FROM tree_heads").fetchone()
    if not sys.executable or not _WORTH_A_PROCESS < size <= _most_entries(stored.file):
        return starts
    stream = authority_stream(vkey.partition("+")[0])
    key_entries = [
        (data, parse_entry(data, index=0))
        for (data,) in connection.execute(_KEY_ENTRIES, (stream.bytes, _MOST_KEY_ENTRIES))
    ]
    if len(key_entries) == _MOST_KEY_ENTRIES:
        return starts
    key_entries = [(data, entry) for data, entry in key_entries if decides_keys(entry, stream)]
    (heads,) = connection.execute(_HEADS, (size, size)).fetchone()
    weight = heads * _SIGNATURE if signatures == "all" else 0
    parts = min(processes, (size + weight) // _WORTH_A_PROCESS)
    for part in range(1, parts):
        if weight > size:
            found = connection.execute(_HEAD_BY_COUNT, (heads * part // parts,))
        else:
            rest = size - _WORTH_A_PROCESS  # this process has begun before the others have started
            found = connection.execute(_HEAD_BY_SIZE, (_WORTH_A_PROCESS + rest * part // parts,))
        row = found.fetchone()
        if row is not None and starts[-1][0].size < row[0] < size:
            (skipped,) = connection.execute(_HEADS, (row[0], size)).fetchone()
            starts.append((_claimed(connection, *row, key_entries=key_entries), skipped))
    return starts


def _most_entries(path: Path) -> int:
    sizes = [part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists()]
    return sum(sizes) // 78  # bytes of the shortest entry


def _claimed(
    connection: sqlite3.Connection, size: int, edge: bytes, *, key_entries: _KeyEntries
) -> State:
    """Return what the file says of its entries before this size."""
    (last,) = connection.execute("SELECT entry FROM entries WHERE idx = ?", (size - 1,)).fetchone()
    return State(
        size=size,
        last_hash=hashlib.sha256(b"\x00" + last).digest(),
        time_ns=parse_entry(last, index=size - 1).time_ns,
        edge=tuple(edge[at : at + 32] for at in range(0, len(edge), 32)),
        authority=tuple(data for data, entry in key_entries if entry.index < size),
    )


@contextmanager
def _working(
    tasks: Sequence[_Task], *, path: Path | None
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Yield processes that do these tasks, and end them in any case."""
    with ExitStack() as stack:
        workers = []
        for task in tasks:
            assert path is not None  # where there is no file, there is one task
            # Not by multiprocessing, whose children would import the caller's program anew.
            worker = subprocess.Popen(  # noqa: S603  (this program's own words)
                [sys.executable, "-c", _CHILD, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            assert worker.stdin is not None
            with worker.stdin as pipe:
                pipe.write(msgspec.msgpack.encode((os.fsencode(path), task)))
            workers.append(worker)
        yield workers


def _result(worker: "subprocess.Popen[bytes]") -> Verified:
    assert worker.stdout is not None
    output = worker.stdout.read()
    if worker.wait() != 0:
        raise ChildProcessError("another process has found something that does not fit")
    return msgspec.msgpack.decode(output, type=Verified)


def work() -> int:
    """Do the task on standard input; the other end of verify_divided()."""
    path, task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[bytes, _Task])
    try:
        file = Path(os.fsdecode(path))
        with connected(file) as connection:
            found = task.do(SQLiteSnapshot(file, connection))
    except _REFUSED:
        return 1
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))
    return 0
