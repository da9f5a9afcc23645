"""One moment of a ledger, for reading, without ever writing to it.

Source: docs/reference/ledger-format.md, "Database".
Trust: the file is hostile; what is read here was not verified.
I/O: reads the database; where its folder cannot be written, works on a copy.
"""

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ledger.database import check_file, check_schema, explained
from ledger.errors import StorageError
from ledger.files import open_regular
from ledger.paths import LedgerPaths, is_served, server_at
from ledger.verification.vectorized import EntryRow
from ledger.verification.verify import HeadRow

_SPARE = 256 << 20  # bytes of the disk that a copy leaves
_CHUNK = 1 << 20  # bytes that are copied at once
_HEADER = 32  # bytes at the beginning of a write-ahead log
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510  # the bytes that SQLite's readers lock
_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # s between two tries to copy
_MAX_VALUE = 1_000_000  # bytes of one column; ten times what the format allows
_MAX_VALUE_IN_BULK = 70_000  # no entry or name is longer, and no note with a few signatures
# Always from the very first row: a WHERE would hide rows below it, and would look for its start
# in the tree's inner pages, which nobody verifies. What lies in its place is at the same offset.
_ENTRIES = "SELECT {entry} FROM entries NOT INDEXED ORDER BY idx LIMIT ? OFFSET ?"
_HEADS = "SELECT {head} FROM tree_heads ORDER BY size LIMIT ? OFFSET ?"

_ENTRIES_AFTER = "SELECT {entry} FROM entries WHERE idx >= ? ORDER BY idx LIMIT ?"
_PAGE = "SELECT idx, {data} FROM entries WHERE idx >= ? ORDER BY idx LIMIT ?"
_HEADS_AFTER = "SELECT {head} FROM tree_heads WHERE size > ? ORDER BY size"
_NEWEST_HEAD = "SELECT {head} FROM tree_heads ORDER BY size DESC LIMIT 1"
_META = "SELECT {meta} FROM meta NOT INDEXED LIMIT 3"
_FIRST_VERSION_OUT_OF_STEP = """
    SELECT idx FROM (
        SELECT idx, stream_version, LAG(stream_version)
            OVER (PARTITION BY stream_id ORDER BY idx) AS before
        FROM entries NOT INDEXED) AS steps
    WHERE CASE WHEN before IS NULL THEN stream_version > 1 ELSE stream_version <> before + 1 END
    ORDER BY idx LIMIT 1"""
ALL = 2**62  # rows


class Snapshot(ABC):
    """One moment of a ledger's tables, in an SQLite file or on a PostgreSQL server.

    Rows are what is stored, of any type and in any number. Errors of the database are its own
    while rows are iterated; `explained()` makes StorageError of them.
    """

    path: Path  # the file that error messages name
    file: Path | None  # an SQLite file, which further processes can open
    columns: Mapping[str, str]  # what is selected of each table, cut to what a verifier looks at

    @abstractmethod
    def explained(self) -> AbstractContextManager[None]:
        """Turn errors of the database into StorageError."""

    @abstractmethod
    def rows(self, statement: str, parameters: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Yield the rows that a statement finds, as they are needed."""

    @abstractmethod
    def one(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        """Return the first row that a statement finds, or None."""

    def entries_from_top(self, *, skip: int = 0, limit: int = ALL) -> Iterator[EntryRow]:
        """Yield rows of entries in their order, having walked over those that are skipped."""
        return self._rows(_ENTRIES, limit, skip)

    def heads_from_top(self, *, skip: int = 0) -> Iterator[HeadRow]:
        """Yield rows of tree heads in their order, having walked over those that are skipped."""
        return self._rows(_HEADS, ALL, skip)

    def entries_after(self, size: int) -> Iterator[EntryRow]:
        """Yield rows of entries from this index on, which is looked up: rows may hide from it."""
        return self._rows(_ENTRIES_AFTER, size, ALL)

    def heads_after(self, size: int) -> Iterator[HeadRow]:
        """Yield rows of tree heads beyond this size, which is looked up: rows may hide from it."""
        return self._rows(_HEADS_AFTER, size)

    def page(self, start: int, *, limit: int) -> Iterator[tuple[int, bytes]]:
        """Yield the indexes and bytes of entries from an index on."""
        return self._rows(_PAGE, start, limit)

    def newest_note(self) -> Any:
        """Return the newest tree head's note, or None."""
        row = self.one(_NEWEST_HEAD.format_map(self.columns))
        return None if row is None else row[1]

    def meta(self) -> list[tuple[Any, ...]]:
        """Return the rows of the meta table, or the first three of more."""
        return list(self._rows(_META))

    def first_version_out_of_step(self) -> Any:
        """Return the first entry that is not the next of its stream, by columns that hold."""
        row = self.one(_FIRST_VERSION_OUT_OF_STEP)
        return None if row is None else row[0]

    @contextmanager
    def in_bulk(self) -> Iterator[None]:
        """Let rows come faster, if the database can."""
        yield

    def _rows(self, statement: str, *parameters: int) -> Iterator[Any]:
        return self.rows(statement.format_map(self.columns), parameters)


class SQLiteSnapshot(Snapshot):
    """An SQLite file in a read transaction."""

    columns = {  # noqa: RUF012 - as the base class has it
        "entry": "idx, stream_id, stream_version, name, "
        "CASE WHEN length(entry) <= 65535 THEN entry END",
        "data": "entry",
        "head": "size, note, edge",
        "meta": "key, value",
    }

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    @property
    def file(self) -> Path:  # type: ignore[override]  # read-only
        """The file that is read, which may be a copy."""
        return Path(self.connection.execute("PRAGMA database_list").fetchone()[2])

    def explained(self) -> AbstractContextManager[None]:
        """Turn errors of SQLite into StorageError."""
        return explained(self.path)

    def rows(self, statement: str, parameters: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Yield the rows that a statement finds, as they are needed."""
        return self.connection.execute(statement, parameters)

    def one(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        """Return the first row that a statement finds, or None."""
        return self.connection.execute(statement, parameters).fetchone()

    @contextmanager
    def in_bulk(self) -> Iterator[None]:
        """Let rows come faster: text is decoded in C, and refused there if it is not UTF-8."""
        self.connection.text_factory = str
        self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_IN_BULK)
        try:
            yield
        finally:
            _take_everything(self.connection)


@contextmanager
def snapshot(paths: LedgerPaths) -> Iterator[Snapshot]:
    """Yield what is stored, as of one moment."""
    if is_served(paths):
        with server_at(paths.server).snapshot(paths.server) as stored:
            yield stored
        return
    with _file_snapshot(paths.database) as connection:
        yield SQLiteSnapshot(paths.database, connection)


@contextmanager
def _file_snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection inside of a read transaction."""
    with ExitStack() as stack:
        folder: Path | None = None
        for pause in (*_PAUSES, None):
            try:
                connection = stack.enter_context(connected(path))
                break
            except StorageError as e:
                # SQLite wants to write -wal and -shm beside the file; where it cannot, use a copy.
                cause = getattr(e.__cause__, "sqlite_errorname", "")
                if not cause.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
                    raise
            folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if _is_copied(path, folder):
                connection = stack.enter_context(connected(folder / path.name))
                break
            if pause is None:
                raise StorageError(
                    f"{path}: the ledger is being written faster than it can be copied, and SQLite "
                    "cannot open it in its place; try again, or let the reader write its folder"
                )
            time.sleep(pause)
        yield connection


def _is_copied(path: Path, folder: Path) -> bool:
    """Copy a database and its log; tell whether the two belong together.

    Meanwhile others append, and copy their log into the database. That does no harm as long as the
    log begins as it did: each page that was changed in the database is in the log as well, and is
    read from there. A log that begins anew has another header, with numbers drawn by chance. With a
    lock on the database, as every reader of SQLite holds one, nobody removes the log.

    Source: the file format of SQLite, "The Write-Ahead Log" and "WAL Header"; os_unix.c (locks).
    """
    log = path.with_name(f"{path.name}-wal")
    with explained(path), open_regular(path) as database:
        with suppress(OSError):  # a file system without locks
            fcntl.lockf(database, fcntl.LOCK_SH, _SHARED_SIZE, _SHARED_FIRST)
        (folder / log.name).unlink(missing_ok=True)  # of an earlier try
        before = _header(log)
        _check_room(path, (database.fileno(), log), folder)
        with (folder / path.name).open("wb") as target:
            shutil.copyfileobj(database, target, _CHUNK)
        with suppress(FileNotFoundError):
            shutil.copyfile(log, folder / log.name)
        return before == _header(folder / log.name) == _header(log)


def _header(log: Path) -> bytes:
    """Return a log's header; an empty log has none, and nor has one that is not there."""
    try:
        with open_regular(log) as file:
            return file.read(_HEADER)
    except FileNotFoundError:
        return b""


def _check_room(path: Path, parts: Iterable[int | Path], folder: Path) -> None:
    """Raise StorageError if a copy has no room: a sparse file costs nothing to make."""
    needed = 0
    for part in parts:
        with suppress(FileNotFoundError):
            needed += os.stat(part).st_size  # noqa: PTH116 - of an open file, too
    free = max(shutil.disk_usage(folder).free - _SPARE, 0)
    if needed > free:
        raise StorageError(
            f"{path}: SQLite cannot open it in its place, so a copy is read. It needs "
            f"{needed:,} bytes, and {free:,} are free in {folder.parent}; set TMPDIR to a "
            "folder with more"
        )


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
