"""The ledger's SQLite file: its schema, its transactions, and its errors in plain words.

Source: docs/reference/ledger-format.md, "Database".
I/O: the database file.  Units: seconds.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from ledger.errors import ConflictError, StorageError
from ledger.files import new_name, publish_exclusively
from ledger.store import EntryColumns, Store, Stored

APPLICATION_ID = 0x50524C31  # "PRL1"
SCHEMA_VERSION = 1
_JOURNAL = "-journal"
_BESIDE = ("-wal", "-shm", _JOURNAL)  # what SQLite keeps beside a file
_LOCK_TIMEOUT = 30.0  # seconds to wait for another process's transaction
_CHECKPOINT = 4_000  # pages in the WAL file, 16 MiB: pages that change again are copied once
_SCHEMA_STEPS = 100_000  # of SQLite's machine, for each statement; some hundreds are needed

_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE entries (idx INTEGER PRIMARY KEY, stream_id BLOB NOT NULL,"
    " stream_version INTEGER NOT NULL, name TEXT NOT NULL, entry BLOB NOT NULL,"
    " UNIQUE (stream_id, stream_version)) STRICT",
    "CREATE TABLE tree_heads (size INTEGER PRIMARY KEY, note TEXT NOT NULL,"
    " edge BLOB NOT NULL) STRICT",
)

_INSERT_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
_INSERT_HEAD = "INSERT INTO tree_heads VALUES (?, ?, ?)"
_STORED = """
    SELECT (SELECT note FROM tree_heads ORDER BY size DESC LIMIT 1), idx, entry
    FROM entries ORDER BY idx DESC LIMIT 1"""
_T = TypeVar("_T")

_REMEDIES = {
    "SQLITE_FULL": "Nothing was written; free some space on this disk and try again",
    "SQLITE_IOERR": "Check the disk and its free space, then open the ledger again: a batch that "
    "was being written is stored completely or not at all",
    "SQLITE_BUSY": f"Another process has held the file for {_LOCK_TIMEOUT:.0f} s; try again later",
    "SQLITE_READONLY": "Check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "Check that the path is right, and the permissions of file and folder",
    "SQLITE_PERM": "Check the permissions of the file and its folder",
    "SQLITE_NOTADB": "This is not a ledger; check the path, or restore the file from a copy",
    "SQLITE_INTERRUPT": "The file is damaged; restore it from a copy",
    "SQLITE_CORRUPT": "The file is damaged; restore it from a copy",
}


class SQLiteFile:
    """One connection to a file, shared by the threads of this process; every commit is synced."""

    _unsynced: tuple[str, ...] = ("SQLITE_BUSY",)  # errors with which the log may stay as it is

    def __init__(self, path: Path, *, mode: str = "rw") -> None:
        self.path = path
        self._lock = Lock()  # held through a transaction: threads take turns
        with explained(path):
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={mode}",
                uri=True,
                timeout=_LOCK_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with explained(path):
                self._prepare(self._connection)
                self._connection.execute("PRAGMA synchronous = FULL")
                self._empty_log()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Look at the file before anything else does, or fill it."""

    def _check_unchanged(self) -> None:
        """Raise StorageError if nothing may be written any more."""

    def _empty_log(self) -> None:
        """Copy the log of whoever was here last into the database, and sync that.

        After a sync that failed, the log may look whole to this process and be lost on the disk:
        nothing may be built on it. Where another process is at work, it has seen to that.
        """
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as e:
            if not e.sqlite_errorname.startswith(self._unsynced):
                raise
        self._connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT * 1_000:.0f}")

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """Run a block all or nothing; a writer keeps other writers out from its first line."""
        with self._lock, explained(self.path):
            if write:
                self._check_unchanged()
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite may have rolled back by itself
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        with self._lock:
            self._connection.close()


class Database(SQLiteFile, Store):
    """A ledger's file."""

    _unsynced = ("SQLITE_BUSY", "SQLITE_READONLY")  # who may not write builds nothing

    def __init__(self, path: Path) -> None:
        check_file(path)
        super().__init__(path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._file = _identity(self.path)
        self._others = 0
        check_schema(connection, self.path)  # before what makes SQLite read it whole
        self._schema = _schema_version(connection)
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        connection.execute("PRAGMA trusted_schema = OFF")

    def _check_unchanged(self) -> None:
        if _identity(self.path) != self._file:
            raise StorageError(
                f"{self.path}: the file was replaced by another one; nothing was written, "
                "open the ledger again"
            )

    def run(self, work: Callable[[sqlite3.Connection], _T], *, write: bool) -> _T:
        """Do some work in a transaction, once."""
        with self.transaction(write=write) as c:
            return work(c)

    def stamp(self, rows: Any, *, written: object = None) -> tuple[int, int]:
        """Return what changes with every commit: by others, then by this connection."""
        if written is None:  # otherwise others are kept out since it was asked for
            (self._others,) = rows.execute("PRAGMA data_version").fetchone()
        return self._others, self._connection.total_changes

    def insert(self, rows: Any, entries: Sequence[EntryColumns]) -> int:
        """Insert entries."""
        return int(rows.executemany(_INSERT_ENTRY, entries).rowcount)

    def add_head(self, rows: Any, size: int, note: str, edge: bytes) -> Stored | None:
        """Insert a tree head, and return what is stored then; raise as check_tables()."""
        rows.execute(_INSERT_HEAD, (size, note, edge))
        self.check_tables(rows)
        found = rows.execute(_STORED).fetchone()
        return Stored(*found) if found else None

    def check_tables(self, rows: Any) -> None:
        """Raise StorageError if the tables are not as they were made."""
        if (now := _schema_version(rows)) != self._schema:  # others are kept out until the commit
            check_schema(rows, self.path)
            self._schema = now


def _schema_version(connection: Any) -> int:
    """Return what changes with every table, index, view or trigger."""
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    return int(version)


def _identity(path: Path) -> tuple[int, int]:
    """Return what stays the same for as long as a path leads to the same file."""
    found = os.stat(path)  # noqa: PTH116  (a third of Path.stat()'s time, in every append)
    return found.st_dev, found.st_ino


def create_database(path: Path, *, meta: dict[str, str]) -> None:
    """Make an empty ledger under this name; if another process was faster, leave its own."""
    with in_the_making(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("BEGIN")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute("COMMIT")


@contextmanager
def in_the_making(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a new file in WAL mode; filled by the block, it appears whole, unless one is there."""
    new = new_name(path)
    with explained(path):
        try:
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                yield connection
                # Closing does this too, but keeps its errors to itself.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            publish_exclusively(new, path)
        finally:
            for suffix in ("", *_BESIDE):
                new.with_name(new.name + suffix).unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """Raise StorageError unless there is a file with something in it."""
    check_regular(path)
    with explained(path):
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise StorageError(f"{path}: there is no ledger; check the path") from None
    if size == 0:
        raise StorageError(
            f"{path}: the file is empty, so it is not a ledger; restore it from a copy"
        )


def check_regular(path: Path) -> None:
    """Raise StorageError if this, or what SQLite keeps beside it, is there and no regular file.

    SQLite would wait for a named pipe, and read a device for ever. A rollback journal is refused,
    too: all our files are in WAL mode and have none, and SQLite obeys any that it finds. It writes
    the journal's pages into the file, and deletes the file that the journal names, wherever it is.
    """
    with explained(path):
        real = os.path.realpath(path)  # beside which SQLite looks
        for suffix in ("", *_BESIDE):
            part = f"{real}{suffix}"
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(part).st_mode):
                    raise StorageError(f"{part}: this is not a regular file; check the path")
                if suffix == _JOURNAL:
                    raise StorageError(
                        f"{part}: a rollback journal does not belong here, and would change or "
                        "delete files; move it away"
                    )


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StorageError unless the file says that it is a ledger of this version.

    Has to come first: pages that lead in circles hold a schema without end.
    """
    connection.set_progress_handler(lambda: True, _SCHEMA_STEPS)
    try:
        _check_schema(connection, path)
    finally:
        connection.set_progress_handler(None, 0)


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise StorageError(f"{path}: this is an SQLite file, but not a ledger; check the path")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"{path}: the ledger has schema version {version}, but this program supports version "
            f"{SCHEMA_VERSION}; use the program that wrote it"
        )
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    # A view or trigger could do anything. Types are compared too: a text stored as a BLOB is none.
    if sorted((sql for (sql,) in found), key=repr) != sorted(_SCHEMA, key=repr):
        raise StorageError(
            f"{path}: the tables are not those of a ledger; nothing was written, restore the file "
            "from a copy"
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the operating system into the ledger's own."""
    try:
        yield
    except sqlite3.IntegrityError as e:
        raise ConflictError(
            f"{path}: another writer has appended to this stream ({e}); load it again and retry"
        ) from e
    except sqlite3.Error as e:
        name = getattr(e, "sqlite_errorname", "")
        family = "_".join(name.split("_")[:2])
        remedy = _REMEDIES.get(family, "Check the file, or restore it from a copy")
        raise StorageError(f"{path}: {e}. {remedy}") from e
    except UnicodeDecodeError as e:  # SQLite quotes a name in a damaged schema
        raise StorageError(f"{path}: the file is damaged; restore it from a copy") from e
    except OSError as e:
        advice = "Check the path" if e.errno == errno.ENOENT else "Check the folder and its space"
        raise StorageError(f"{path}: {e.strerror or e}. {advice}") from e
