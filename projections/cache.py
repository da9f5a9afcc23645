"""Updates and rebuilds the DuckDB file. It is a cache of the ledger, never evidence.

Writers take turns at a lock file beside it, which also covers its replacement.

Trust: a file that is damaged, foreign, of another schema or ahead of its ledger is replaced.
I/O: the DuckDB file, its neighbours .lock, .new, .old and .wal; reads the ledger.  Units: seconds.
"""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from projections.bulk import apply_new
from projections.database_file import WAIT, connected, is_duckdb, pause
from projections.errors import ProjectionError, TableError
from projections.projector import create_documented, read_position, schema_hash
from projections.source import END, LedgerSource, open_source
from projections.template import template

__all__ = ["CatchUp", "catch_up", "rebuild"]


@dataclass(frozen=True)
class CatchUp:
    """What was done to the file."""

    applied: int  # entries
    position: int  # index of the next entry
    note: str | None = None  # why the file was built anew, where it was not asked for


class _StaleError(Exception):
    """The file is no good beginning; its text says why."""

    def __init__(self, reason: str, *, ours: bool = True) -> None:
        super().__init__(reason)
        self.ours = ours


def catch_up(database: Path, directory: Path, *, stop: int = END, wait: float = WAIT) -> CatchUp:
    """Apply to the DuckDB file what the ledger in a directory has since gained.

    With `stop`, no entry from this index on: whoever calls has verified those before it. Raises
    BusyError when others hold the file for longer than `wait`, ProjectionError for entries that
    cannot be applied, LedgerError for a ledger that cannot be read.
    """
    deadline = time.monotonic() + wait
    with _writing(database, deadline), open_source(directory) as ledger:
        try:
            return _apply(database, ledger, deadline, stop=stop)
        except _StaleError as why:
            _discard(database, keep=not why.ours)
            return replace(_apply(database, ledger, deadline, stop=stop), note=f"rebuilt: {why}")


def rebuild(database: Path, directory: Path, *, wait: float = WAIT) -> CatchUp:
    """Build the DuckDB file anew from the whole ledger; raises as catch_up() does."""
    deadline = time.monotonic() + wait
    with _writing(database, deadline), open_source(directory) as ledger:
        _discard(database, keep=False)
        return _apply(database, ledger, deadline)


def _apply(database: Path, ledger: LedgerSource, deadline: float, *, stop: int = END) -> CatchUp:
    fresh = not database.exists()
    if not fresh and not is_duckdb(database):
        raise _StaleError("it was not a DuckDB file", ours=False)
    copied = fresh and _copied(database)
    try:
        with connected(database, deadline, read_only=False) as connection:
            if fresh and not copied:
                create_documented(connection)
            start = _start(connection, ledger)
            applied = apply_new(connection, ledger, start=start, stop=stop)
    except (duckdb.Error, TableError) as e:
        if fresh:
            raise ProjectionError(f"{database}: {e}") from e
        raise _StaleError(
            f"it was damaged or not a projection ({_first_line(e)})", ours=False
        ) from e
    return CatchUp(applied, start + applied)


def _copied(database: Path) -> bool:
    """Begin the file as a copy of an empty one, if there is room for such files."""
    new = database.with_name(f"{database.name}.new")
    try:
        new.unlink(missing_ok=True)
        shutil.copyfile(template(create_documented), new)
        new.replace(database)
    except (OSError, duckdb.Error):
        new.unlink(missing_ok=True)
        return False
    return True


def _start(connection: duckdb.DuckDBPyConnection, ledger: LedgerSource) -> int:
    """Return where to go on; raise _StaleError unless the file is of this schema and ledger."""
    try:
        start, last_hash, schema = read_position(connection)
    except ProjectionError as e:
        raise _StaleError(str(e), ours=False) from e
    if schema != schema_hash():
        raise _StaleError("its tables were of a different version")
    if start and ledger.hash_at(start - 1) != last_hash:
        raise _StaleError(f"entry {start - 1}, which was applied, is no longer in the ledger")
    return start


@contextmanager
def _writing(database: Path, deadline: float) -> Iterator[None]:
    """Hold the lock file: nobody else changes or replaces the DuckDB file."""
    lock = database.with_name(f"{database.name}.lock")
    try:
        if database.exists() and not database.is_file():
            raise ProjectionError(f"{database}: this is not a file; give another path")
        database.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("a")
    except OSError as e:
        raise ProjectionError(f"{lock}: cannot be opened: {e.strerror}") from e
    with handle:  # closing it releases the lock
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pause(database, deadline)
        yield


def _discard(database: Path, *, keep: bool) -> None:
    """Take the file away; what may be somebody else's is kept as .old."""
    try:
        if keep:
            database.replace(database.with_name(f"{database.name}.old"))
        database.unlink(missing_ok=True)
        database.with_name(f"{database.name}.wal").unlink(missing_ok=True)
    except OSError as e:
        raise ProjectionError(f"{database}: cannot be replaced: {e.strerror}") from e


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
