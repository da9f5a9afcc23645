"""An empty database that holds the definitions, made once; others are copies of it.

Every view is bound when it is created, through all views below it, and that takes most of a
second; a copy takes a twentieth of it.

Trust: the file lies in a folder that only this user can enter.
I/O: a temporary folder, removed when the process ends; or the one that keep_in() names.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb

__all__ = ["copied", "keep_in", "template"]

Define = Callable[[duckdb.DuckDBPyConnection], None]
"""Creates tables, views and first rows in an empty database."""

_MADE: dict[Define, Path] = {}
_KEPT: list[tuple[Path, str]] = []  # the folder of files that other processes use too, if any
_NAME = "empty_template"


def keep_in(folder: Path | None, *, version: str) -> None:
    """Keep files from now on in a folder that only this user can enter; None: in no folder.

    `version` changes with whatever is defined.
    """
    _KEPT[:] = [] if folder is None else [(folder, version)]


def template(define: Define) -> Path:
    """Return a database file that holds what `define` creates; it is not to be written to."""
    kept = None
    for folder, version in _KEPT:
        name = hashlib.sha256(f"{version} {duckdb.__version__}".encode()).hexdigest()[:32]
        kept = folder / f"{define.__name__}-{name}.duckdb"
        if kept.exists():
            return kept
    found = _MADE.get(define)
    if found is None or not found.exists():
        folder = Path(tempfile.mkdtemp(prefix="proctor-tables-"))
        atexit.register(_remove, folder, os.getpid())
        found = folder / f"{_NAME}.duckdb"
        with duckdb.connect(str(found)) as connection:
            define(connection)
        _MADE[define] = found
    if kept is not None:
        with suppress(OSError):  # then it is made again next time
            _keep(found, kept, define)
    return found


def _keep(made: Path, kept: Path, define: Define) -> None:
    for earlier in kept.parent.glob(f"{define.__name__}-*"):
        earlier.unlink(missing_ok=True)
    new = kept.with_name(f"{kept.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, new)
        new.replace(kept)
    finally:
        new.unlink(missing_ok=True)


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
