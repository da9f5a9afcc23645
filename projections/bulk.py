"""Loads a ledger's entries into tables in bulk: processes read and decode, this one writes.

Each process takes every n-th stretch and hands its tables over through a pipe, which holds it back
until they are wanted: memory does not grow with the ledger.

Trust: as in projector.py; a process that fails only leaves its stretches to this one.
I/O: reads the ledger; starts processes of this program; the DuckDB connection.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import cycle
from typing import IO, TYPE_CHECKING

import duckdb

from ledger.progress import advanced
from projections.columns import declared
from projections.errors import TableError
from projections.projector import project, transaction
from projections.source import END, LedgerSource

if TYPE_CHECKING:
    from projections.stretches import Stretch

STRETCH = 8_000  # entries
BATCH = 64_000  # entries in a transaction: DuckDB packs full groups of rows at once, and only once
BATCH_BYTES = 64 << 20
AHEAD = BATCH // STRETCH  # stretches that are taken from readers, which would wait for DuckDB
FEW = 10_000  # entries, for which no process is worth its start
MOST = 8  # processes
_CHILD = "import sys; sys.path[:] = sys.argv[8:]; from projections.stretches import work; work()"


def apply_new(
    connection: duckdb.DuckDBPyConnection,
    ledger: LedgerSource,
    *,
    start: int,
    after: bytes | None = None,
    stop: int = END,
    processes: int | None = None,
) -> int:
    """Apply what the ledger has from `start` on, before `stop`; return how many entries that is.

    Entries that cannot be read are set aside as project() does with `quarantine`. `after` is the
    hash of the entry before the first, for a ledger whose links are compared.
    """
    at, end = start, min(stop, ledger.size())
    if processes is None:
        few = end - start < FEW or find_spec("pyarrow") is None  # which is in an extra
        processes = 0 if few else min(os.cpu_count() or 1, MOST)
    if processes:
        at, after = _apply_stretches(
            connection, ledger, start=start, end=end, after=after, processes=processes
        )
    rest = ledger.entries(start=at, stop=stop, after=after)
    return at - start + project(connection, rest, authority=ledger.authority, quarantine=True)


def _apply_stretches(
    connection: duckdb.DuckDBPyConnection,
    ledger: LedgerSource,
    *,
    start: int,
    end: int,
    after: bytes | None,
    processes: int,
) -> tuple[int, bytes | None]:
    """Apply entries by stretches, up to one that is not as it should be.

    Return the index behind the last, and its hash.
    """
    # Few need what this loads.
    from projections.stretches import joined, unpacked  # noqa: PLC0415

    step = processes * STRETCH
    with ExitStack() as stack:
        receiver = stack.enter_context(ThreadPoolExecutor(1))
        pipes = [
            _started(stack, ledger, start=first, end=end, step=step)
            for first in range(start, start + step, STRETCH)
        ]
        coming = (receiver.submit(_received, pipe) for pipe in cycle(pipes))
        ahead: deque[Future[bytes]] = deque()
        waiting: list[Stretch] = []
        written, size = start, 0
        behind = after  # the hash of the entry before the next stretch; `after`: before the batch
        for at in range(start, end, STRETCH):
            stop = min(at + STRETCH, end)
            advanced("building tables", stop - start, end - start)
            while not ahead or (len(ahead) < AHEAD and _bytes_of(ahead) < BATCH_BYTES):
                ahead.append(next(coming))
            data = ahead.popleft().result()
            stretch = unpacked(data) if data else None
            linked = not ledger.linked or stretch is None or behind in (None, stretch.previous)
            fits = stretch is not None and stretch.count == stop - at and linked
            if fits and stretch is not None:
                waiting.append(stretch)
                size += len(data)
                behind = bytes.fromhex(stretch.last_hash)
            full = size >= BATCH_BYTES or stop - written >= BATCH
            if waiting and (full or not fits or stop == end):
                upto = written + sum(each.count for each in waiting)
                try:
                    write_stretch(connection, joined(waiting), start=written)
                except TableError:  # one entry by one, it is told which
                    rest = ledger.entries(start=written, stop=upto, after=after)
                    project(connection, rest, authority=ledger.authority, quarantine=True)
                written, after = upto, behind
                waiting, size = [], 0
            if not fits:  # whoever goes on entry by entry says why
                break
    return written, after


def _bytes_of(ahead: Iterable[Future[bytes]]) -> int:
    return sum(len(each.result()) for each in ahead if each.done())


def _started(
    stack: ExitStack, ledger: LedgerSource, *, start: int, end: int, step: int
) -> IO[bytes] | None:
    numbers = (start, end, step, STRETCH, int(ledger.linked))
    events = json.dumps(declared(), default=sorted)
    task = [os.fsdecode(ledger.directory), *map(str, numbers), events]
    try:
        # Not by multiprocessing, whose children would import the caller's program anew.
        worker = subprocess.Popen(  # noqa: S603 - this program's own words
            [sys.executable, "-c", _CHILD, *task, *sys.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    stack.enter_context(worker)
    stack.callback(worker.kill)
    return worker.stdout


def _received(pipe: IO[bytes] | None) -> bytes:
    """Return a process's next stretch; nothing where it found something odd, or is no more."""
    length = int.from_bytes(pipe.read(8), "big") if pipe else 0
    data = pipe.read(length) if length and pipe else b""
    return data if len(data) == length else b""


def write_stretch(connection: duckdb.DuckDBPyConnection, stretch: "Stretch", *, start: int) -> None:
    """Write a stretch and the position behind it, all or nothing."""
    try:
        with transaction(connection):
            for table, rows in stretch.tables.items():
                connection.register("arrived", rows)
                connection.execute(f"INSERT INTO log.{table} BY NAME FROM arrived")
                connection.unregister("arrived")
            connection.execute(
                "UPDATE log.position SET next_idx = ?, last_hash = ?",
                [start + stretch.count, stretch.last_hash],
            )
    except duckdb.Error as e:
        before = start + stretch.count
        raise TableError(
            f"the entries before entry {before} cannot be loaded into the tables: {e}"
        ) from e
