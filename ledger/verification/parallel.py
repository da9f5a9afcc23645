"""A whole ledger verified in bulk, by this process and others beside it.

Each process takes a segment of its own. What a segment begins with (the tree's edge, the last
entry's hash and time, the keys that stand) is looked up in the file, and is no more than a claim
until it equals what the segment before has come to. So it does not matter where a process has
read: whatever was hashed leads to the root that the newest tree head signs.

Trust: the file is hostile, the other processes are this program's own.
I/O: the database, from a snapshot in each process; the processes' pipes.
"""

import gc
import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import msgspec

from ledger.errors import VerificationError
from ledger.progress import advanced
from ledger.verification.authority import authority_stream
from ledger.verification.snapshots import Snapshot, SQLiteSnapshot, connected
from ledger.verification.states import Signatures, State, decides_keys
from ledger.verification.vectorized import MismatchError, Segment, Versions, verify_segment
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import TreeHead

__all__ = ["verify_new", "verify_whole", "work"]

_WORTH_A_PROCESS = 75_000  # entries; starting one takes the time of as many
_SIGNATURE = 40  # checking one takes the time of as many entries
_HEAD_BY_SIZE = "SELECT size, edge FROM tree_heads WHERE size >= ? ORDER BY size LIMIT 1"
_HEAD_BY_COUNT = "SELECT size, edge FROM tree_heads ORDER BY size LIMIT 1 OFFSET ?"
_HEADS = "SELECT COUNT(*) FROM (SELECT 1 FROM tree_heads WHERE size <= ? LIMIT ?)"
_AROUND_VERSION = """
    SELECT (SELECT stream_version FROM entries WHERE stream_id = ? AND stream_version < ?
            ORDER BY stream_version DESC LIMIT 1),
           (SELECT idx FROM entries WHERE stream_id = ? AND stream_version >= ?
            ORDER BY stream_version LIMIT 1)"""
_KEY_ENTRIES = "SELECT entry FROM entries WHERE stream_id = ? ORDER BY stream_version LIMIT ?"
_MOST_KEY_ENTRIES = 1_000  # with more of them, one process has to do
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
    limit: int  # entries; -1 for all that follow
    kept_heads: tuple[TreeHead, ...]
    signatures: Signatures

    def do(self, stored: Snapshot) -> Segment:
        with stored.in_bulk(), _uncollected():
            return verify_segment(
                stored.entries_from_top(skip=self.start.size, limit=self.limit),
                stored.heads_from_top(skip=self.skipped_heads),
                vkey=self.vkey,
                start=self.start,
                kept_heads=self.kept_heads,
                signatures=self.signatures,
                whole=self.limit < 0,
                skipped_heads=self.skipped_heads,
            )


def verify_whole(
    stored: Snapshot,
    *,
    vkey: str,
    kept_heads: Sequence[TreeHead] = (),
    signatures: Signatures = "all",
    processes: int = 1,
) -> Segment:
    """Return what the whole ledger comes to: the last process's segment, with all marks.

    Raises MismatchError, VerificationError or sqlite3.Error: ask verify.py then.
    """
    try:
        starts = _starts(stored, vkey=vkey, signatures=signatures, processes=processes)
    except (TypeError, ValueError, OSError) as e:  # a claim of another type
        raise MismatchError from e
    ends = [start.size for start, _ in starts[1:]]
    tasks = [
        _Task(
            vkey=vkey,
            start=start,
            skipped_heads=skipped,
            limit=-1 if end is None else end - start.size,
            kept_heads=tuple(kept_heads),
            signatures=signatures,
        )
        for (start, skipped), end in zip(starts, [*ends, None], strict=True)
    ]
    if ends:  # this process does the first part of several, which take as long
        advanced("verifying", 0, ends[0])
    with _working(tasks[1:], path=stored.file) as workers:
        segments = [tasks[0].do(stored)]
        segments += [_result(worker) for worker in workers]
    heads = 0
    for (one, other), task in zip(pairwise(segments), tasks[1:], strict=True):
        heads += one.heads
        if one.end != other.start or heads != task.skipped_heads:
            raise MismatchError
    _check_versions(stored, [each.versions for each in segments])
    return replace(
        segments[-1],
        entry_marks=[mark for each in segments for mark in each.entry_marks],
        head_marks=[mark for each in segments for mark in each.head_marks],
    )


def verify_new(
    stored: Snapshot, *, vkey: str, start: State, signatures: Signatures = "all"
) -> Segment:
    """Return what the entries after a state come to; those before it are not read.

    Whether a stream's first new version follows its last old one is asked of the columns of
    old entries. Raises MismatchError, VerificationError or sqlite3.Error.
    """
    with stored.in_bulk(), _uncollected():
        segment = verify_segment(
            stored.entries_after(start.size),
            stored.heads_after(start.size),
            vkey=vkey,
            start=start,
            signatures=signatures,
        )
    if segment.versions.overflowed:
        raise MismatchError
    known = Versions()
    for stream, first in segment.versions.first.items():
        before, index = stored.one(_AROUND_VERSION, (stream, first) * 2)
        if type(index) is not int or index < start.size:
            raise MismatchError
        if type(before) is int:
            known.last[stream] = before
    segment.versions.follow(known)
    return segment


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from looking through a million rows for cycles: a tenth of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check_versions(stored: Snapshot, parts: Sequence[Versions]) -> None:
    if any(part.overflowed for part in parts):
        if stored.first_version_out_of_step() is not None:
            raise MismatchError
        return
    known = Versions()
    for part in parts:
        part.follow(known)


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
            try:
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
            except (OSError, TypeError, ValueError, OverflowError) as e:
                # No process can be had, it is dead already, or a claim is of another type.
                raise MismatchError from e
            workers.append(worker)
        yield workers


def _result(worker: "subprocess.Popen[bytes]") -> Segment:
    assert worker.stdout is not None
    output = worker.stdout.read()
    if worker.wait() != 0:
        raise MismatchError
    return msgspec.msgpack.decode(output, type=Segment)


def work() -> int:
    """Do the task on standard input; the other end of verify_whole()."""
    path, task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[bytes, _Task])
    try:
        file = Path(os.fsdecode(path))
        with connected(file) as connection:
            found = task.do(SQLiteSnapshot(file, connection))
    except (MismatchError, VerificationError, sqlite3.Error):
        return 1
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))
    return 0
