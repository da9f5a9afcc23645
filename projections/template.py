"""An empty database that holds the definitions, made once; others are copies of it.

Every view is bound when it is created, through all views below it, and that takes most of a
second; a copy takes a twentieth of it.

Trust: the file lies in a folder that only this user can enter. One that is not as it was made, such
as one that a full disk cut off, is made again: its name has the digest of its bytes.
I/O: a temporary folder, removed when the process ends; or the one that keep_in() names.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb

from ledger.files import replace_durably
from ledger.held_folder import HeldFolder

Define = Callable[[duckdb.DuckDBPyConnection], None]
"""Creates tables, views and first rows in an empty database."""

_MADE: dict[Define, Path] = {}
_HELD: list[HeldFolder] = []  # where they are
_KEPT: list[tuple[Path, str]] = []  # the folder of files that other processes use too, if any
_NAME = "empty_template"


def keep_in(folder: Path | None, *, version: str) -> None:
    """Keep files from now on in a folder that only this user can enter; None: in no folder.

    `version` changes with whatever is defined.
    """
    _KEPT[:] = [] if folder is None else [(folder, version)]


def template(define: Define) -> Path:
    """Return a database file that holds what `define` creates; it is not to be written to."""
    for folder, version in _KEPT:
        name = hashlib.sha256(f"{version} {duckdb.__version__}".encode()).hexdigest()[:32]
        for kept in folder.glob(f"{define.__name__}-{name}-*.duckdb"):
            with suppress(OSError):
                if kept.stem.endswith(_digest(kept)):
                    return kept
        with suppress(OSError, duckdb.Error):  # then it is made again next time
            return _keep(define, folder, name)
    found = _MADE.get(define)
    if found is None or not found.exists():
        _HELD.append(HeldFolder("proctor-tables-"))
        found = _HELD[-1].path / f"{_NAME}.duckdb"
        _create(found, define)
        _MADE[define] = found
    return found


def _keep(define: Define, folder: Path, name: str) -> Path:
    made = _MADE.get(define)
    with HeldFolder(".making-", base=folder) as held:
        new = held.path / "new.duckdb"
        if made is not None and made.exists():
            shutil.copyfile(made, new)
        else:
            _create(new, define)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        kept = folder / f"{define.__name__}-{name}-{_digest(new)}.duckdb"
        for earlier in folder.glob(f"{define.__name__}-*"):
            earlier.unlink(missing_ok=True)
        replace_durably(new, kept)
    return kept


def _create(path: Path, define: Define) -> None:
    with duckdb.connect(str(path)) as connection:
        define(connection)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


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
