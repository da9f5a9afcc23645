"""One DuckDB file, opened for one call only; its queries can reach nothing else.

While one process writes, DuckDB lets no other process read: the caller tries again later.

Trust: file and SQL are hostile.  I/O: the file.  Units: seconds.
"""

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import duckdb

from projections.bounds import Bounds
from projections.errors import BusyError, ProjectionError

__all__ = [
    "CONFIG",
    "WAIT",
    "PrivateCopy",
    "connected",
    "is_duckdb",
    "locked",
    "pause",
    "private_folder",
    "stamp_of",
]

WAIT = 10.0  # for other processes, in all
_PAUSE = 0.05  # between two attempts
# DuckDB would otherwise fetch extensions for files it does not know, and read what SQL names.
CONFIG: dict[str, str | int | float | list[str]] = {
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "lock_configuration": True,
    "python_enable_replacements": False,
}

# DuckDB would otherwise keep what it has written, up to 80% of the machine's memory. Two threads
# spend a third more processor time on the same rows, and readers have use for it (bulk.py).
_WRITER: dict[str, str | int | float | list[str]] = {"memory_limit": "512MB", "threads": 1}


@contextmanager
def connected(
    database: Path, deadline: float, *, read_only: bool, bounds: Bounds | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Hold the file open; raise BusyError when others hold it at the deadline (monotonic)."""
    config = dict(CONFIG) if read_only else {**CONFIG, **_WRITER}
    if bounds is not None:
        config |= bounds.config()
    while True:
        try:
            connection = duckdb.connect(str(database), read_only=read_only, config=dict(config))
            break
        except duckdb.ConnectionException:  # this process has it open in the other mode
            pause(database, deadline)
        except duckdb.Error as e:
            if "Could not set lock" not in str(e):
                raise
            pause(database, deadline)
    with closing(connection):
        yield connection


@contextmanager
def locked(database: Path, deadline: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file: nobody else changes or replaces the DuckDB file."""
    lock = database.with_name(f"{database.name}.lock")
    try:
        if database.exists() and not database.is_file():
            raise ProjectionError(f"{database}: this is not a file; give another path")
        database.parent.mkdir(parents=True, exist_ok=True)
        # Without O_NONBLOCK a named pipe would keep the caller waiting; without O_NOFOLLOW a link
        # would make a file wherever it points.
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(lock, flags, 0o666)
    except OSError as e:
        raise ProjectionError(f"{lock}: cannot be opened: {e.strerror}") from e
    try:
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pause(database, deadline)
        yield
    finally:
        os.close(handle)  # which releases the lock


@contextmanager
def private_folder(beside: Path | None) -> Iterator[Path]:
    """Yield a folder that only this user can enter, and remove it; in a folder, if one is given."""
    try:
        if beside is not None:
            beside.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".tables-", dir=beside))
    except OSError as e:
        raise ProjectionError(f"{e.filename}: a copy cannot be made there: {e.strerror}") from e
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PrivateCopy:
    """A copy of the DuckDB file that only this user can reach, removed when nobody holds it."""

    def __init__(self, beside: Path | None) -> None:
        self.stamp: tuple[int, ...] = ()  # of the file that it is a copy of
        with ExitStack() as stack:
            self.path = stack.enter_context(private_folder(beside)) / "tables.duckdb"
            weakref.finalize(self, stack.pop_all().close)


def stamp_of(database: Path) -> tuple[int, ...]:
    """Return what changes with a file, nothing where there is none.

    If somebody forges it, the earlier copy is used.
    """
    try:
        found = database.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def pause(database: Path, deadline: float) -> None:
    """Wait a little for whoever holds the file; raise BusyError when the time is up."""
    if time.monotonic() >= deadline:
        raise BusyError(f"{database}: another process is using the file; try again when it is done")
    time.sleep(_PAUSE)


def is_duckdb(database: Path) -> bool:
    """Look before DuckDB does: it opens other formats by extensions."""
    try:
        with database.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError as e:
        raise ProjectionError(f"{database}: cannot be read: {e.strerror}") from e
