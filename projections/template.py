"""An empty database that holds the definitions, made once by each process; others are copies of it.

Every view is bound when it is created, through all views below it, and that takes most of a
second; a copy takes a twentieth of it.

Trust: the file lies in a folder that only this user can enter, and no other process's is used.
I/O: a temporary folder, removed when the process ends.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb

__all__ = ["copied", "template"]

Define = Callable[[duckdb.DuckDBPyConnection], None]
"""Creates tables, views and first rows in an empty database."""

_MADE: dict[Define, Path] = {}
_NAME = "empty_template"


def template(define: Define) -> Path:
    """Return a database file that holds what `define` creates; it is not to be written to."""
    found = _MADE.get(define)
    if found is None or not found.exists():
        folder = Path(tempfile.mkdtemp(prefix="proctor-tables-"))
        atexit.register(_remove, folder, os.getpid())
        found = folder / f"{_NAME}.duckdb"
        with duckdb.connect(str(found)) as connection:
            define(connection)
        _MADE[define] = found
    return found


def copied(connection: duckdb.DuckDBPyConnection, define: Define) -> None:
    """Create in an empty database what `define` does, all or nothing."""
    try:
        quoted = str(template(define)).replace("'", "''")
    except (OSError, duckdb.Error):  # there is no room for temporary files
        define(connection)
        return
    (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
    connection.execute(f"ATTACH '{quoted}' AS {_NAME} (READ_ONLY)")
    try:
        connection.execute(f'COPY FROM DATABASE {_NAME} TO "{name}"')
    finally:
        connection.execute(f"DETACH {_NAME}")


def _remove(folder: Path, owner: int) -> None:
    """Remove the folder, unless this is a process that was forked from its owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
