"""One DuckDB file, opened for one call only; its queries can reach nothing else.

While one process writes, DuckDB lets no other process read: the caller tries again later.

Trust: file and SQL are hostile.  I/O: the file.  Units: seconds.
"""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import duckdb

from ledger.held_folder import HeldFolder
from projections.bounds import Bounds
from projections.errors import AheadError, BusyError, ProjectionError
from projections.identity import read_position

WAIT = 10.0  # for other processes, in all
_PAUSE = 0.05  # between two attempts
_PIECE = 1 << 20  # bytes
# DuckDB would otherwise fetch extensions for files it does not know, and read what SQL names.
CONFIG: dict[str, str | int | float | list[str]] = {
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "lock_configuration": True,
    "python_enable_replacements": False,
}

# DuckDB would otherwise keep what it has written, up to 80% of the machine's memory. It makes the
# tables of a million entries as fast with 128 MB as with 512. Two threads spend a third more
# processor time on the same rows, and readers have use for it (bulk.py).
_WRITER: dict[str, str | int | float | list[str]] = {"memory_limit": "192MB", "threads": 1}


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
def locked(database: Path, deadline: float) -> Iterator[None]:
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
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pause(database, deadline)
        yield
    finally:
        os.close(handle)  # which releases the lock


def own_folder(folder: Path) -> Path:
    """Return a folder that only this user can enter, made if need be; raises ProjectionError."""
    try:
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as e:
        raise ProjectionError(f"{folder}: cannot be made: {e.strerror}") from e
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ProjectionError(
            f"{folder}: other users can enter this folder, so its tables may be forged; remove it, "
            "and they are built anew"
        )
    return folder


@contextmanager
def private_folder(beside: Path | None) -> Iterator[Path]:
    """Yield a folder that only this user can enter, and remove it; in a folder, if one is given."""
    try:
        if beside is not None:
            beside.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = HeldFolder(".tables-", base=beside)
    except OSError as e:
        raise ProjectionError(f"{e.filename}: a copy cannot be made there: {e.strerror}") from e
    with held:
        yield held.path


def copy_between(
    database: Path,
    target: BinaryIO,
    *,
    deadline: float,
    needs: tuple[int, str | None] | None = None,
) -> None:
    """Copy the DuckDB file as it is between two changes; raises as connected() does.

    `needs`: copy only tables of this state (CatchUp.end), and raise AheadError for others.
    """
    while True:
        # Opened first and closed last: closing a file gives up DuckDB's lock on it.
        with (
            database.open("rb") as file,
            connected(database, deadline, read_only=True) as connection,
        ):
            complete = not database.with_name(f"{database.name}.wal").exists()
            if complete and os.path.samestat(os.fstat(file.fileno()), database.stat()):
                if needs is not None and read_position(connection)[:2] != needs:
                    raise AheadError(f"{database}: the tables are not of the state that is asked")
                shutil.copyfileobj(file, target, _PIECE)
                return
        pause(database, deadline)  # it was exchanged meanwhile, or waits for the next to catch up


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
