"""One DuckDB file, opened for one call only; its queries can reach nothing else.

While one process writes, DuckDB lets no other process read: the caller tries again later.

Trust: file and SQL are hostile.  I/O: the file.  Units: seconds.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from projections.errors import BusyError, ProjectionError

__all__ = ["CONFIG", "WAIT", "connected", "is_duckdb", "pause"]

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
    database: Path, deadline: float, *, read_only: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Hold the file open; raise BusyError when others hold it at the deadline (monotonic)."""
    config = dict(CONFIG) if read_only else {**CONFIG, **_WRITER}
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
