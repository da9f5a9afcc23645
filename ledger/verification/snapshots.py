"""One moment of a ledger's file, for reading, without ever writing to it.

Source: docs/reference/ledger-format.md, "Database".
Trust: the file is hostile; what is read here was not verified.
I/O: reads the database; where its folder cannot be written, works on a copy.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from ledger.database import check_file, check_schema, explained
from ledger.errors import StorageError
from ledger.verification.verify import EntryRow, HeadRow

__all__ = [
    "connected",
    "entries_after",
    "entries_from_top",
    "file_of",
    "heads_after",
    "heads_from_top",
    "in_bulk",
    "snapshot",
]

_SPARE = 256 << 20  # bytes of the disk that a copy leaves
_MAX_VALUE = 1_000_000  # bytes of one column; ten times what the format allows
_MAX_VALUE_IN_BULK = 70_000  # no entry or name is longer, and no note with a few signatures
# Always from the very first row: a WHERE would hide rows below it, and would look for its start
# in the tree's inner pages, which nobody verifies. What lies in its place is at the same offset.
_ENTRIES = """
    SELECT idx, stream_id, stream_version, name, CASE WHEN length(entry) <= 65535 THEN entry END
    FROM entries NOT INDEXED ORDER BY idx LIMIT ? OFFSET ?"""
_HEADS = "SELECT size, note, edge FROM tree_heads ORDER BY size LIMIT -1 OFFSET ?"

_ENTRIES_AFTER = """
    SELECT idx, stream_id, stream_version, name, CASE WHEN length(entry) <= 65535 THEN entry END
    FROM entries WHERE idx >= ? ORDER BY idx"""
_HEADS_AFTER = "SELECT size, note, edge FROM tree_heads WHERE size > ? ORDER BY size"


def entries_from_top(
    connection: sqlite3.Connection, *, skip: int = 0, limit: int = -1
) -> Iterator[EntryRow]:
    """Yield rows of entries in their order, having walked over those that are skipped."""
    return connection.execute(_ENTRIES, (limit, skip))


def heads_from_top(connection: sqlite3.Connection, *, skip: int = 0) -> Iterator[HeadRow]:
    """Yield rows of tree heads in their order, having walked over those that are skipped."""
    return connection.execute(_HEADS, (skip,))


def entries_after(connection: sqlite3.Connection, size: int) -> Iterator[EntryRow]:
    """Yield rows of entries from this index on, which is looked up: rows may hide from it."""
    return connection.execute(_ENTRIES_AFTER, (size,))


def heads_after(connection: sqlite3.Connection, size: int) -> Iterator[HeadRow]:
    """Yield rows of tree heads beyond this size, which is looked up: rows may hide from it."""
    return connection.execute(_HEADS_AFTER, (size,))


@contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection inside of a read transaction."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(connected(path))
        except StorageError as e:
            # SQLite wants to write -wal and -shm beside the file; where it cannot, use a copy.
            cause = getattr(e.__cause__, "sqlite_errorname", "")
            if not cause.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
                raise
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            _copy(path, folder)
            connection = stack.enter_context(connected(folder / path.name))
        yield connection


def _copy(path: Path, folder: Path) -> None:
    """Copy a database and its log, if there is room: a sparse file costs nothing to make."""
    with explained(path):
        parts = [each for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
        needed = sum(each.stat().st_size for each in parts)
        free = max(shutil.disk_usage(folder).free - _SPARE, 0)
        if needed > free:
            raise StorageError(
                f"{path}: SQLite cannot open it in its place, so a copy is read. It needs "
                f"{needed:,} bytes, and {free:,} are free in {folder.parent}; set TMPDIR to a "
                "folder with more"
            )
        for part in parts:
            shutil.copyfile(part, folder / part.name)


@contextmanager
def in_bulk(connection: sqlite3.Connection) -> Iterator[None]:
    """Let rows come faster: text is decoded in C, and refused there if it is not UTF-8."""
    connection.text_factory = str
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_IN_BULK)
    try:
        yield
    finally:
        _take_everything(connection)


def file_of(connection: sqlite3.Connection) -> Path:
    """Return the file that a snapshot was taken of, which may be a copy."""
    return Path(connection.execute("PRAGMA database_list").fetchone()[2])


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection inside of a read transaction, if SQLite can open the file in its place."""
    check_file(path)
    with explained(path):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30.0, isolation_level=None
        )
    with closing(connection):
        with explained(path):
            _take_everything(connection)
            connection.execute("BEGIN")
            check_schema(connection, path)  # before what makes SQLite read it whole
            connection.execute("PRAGMA trusted_schema = OFF")
        yield connection


def _take_everything(connection: sqlite3.Connection) -> None:
    # A text that is not UTF-8 must reach the verifier, not fail in between.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
