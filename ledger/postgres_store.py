"""A ledger's tables on a PostgreSQL server: settings, schema, transactions, errors in plain words.

Whoever appends takes the index from the newest tree head, and the keys of the tables refuse it to
all but one: indexes have no gaps and appear in their order, so a reader that follows them misses
none. Writers take turns (postgres_turns.py), since whoever was too late does its work again.

Source: docs/reference/ledger-format.md, "PostgreSQL"; PostgreSQL 15, "COPY"; libpq, "Connection
Strings" and "PQping". Import it only where a ledger is on a server: it needs psycopg.
Trust: as of a file, what is read is for a verifier to judge.
I/O: the server; the file that names it.  Units: seconds.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import psycopg
from psycopg import conninfo, errors, sql
from psycopg.pq import PGconn, Ping, TransactionStatus

from ledger.database import explained
from ledger.errors import ConflictError, EncodingError, StorageError
from ledger.files import create_exclusively, read_text
from ledger.postgres_schema import (
    FOUND,
    INSERT_HEAD,
    MADE,
    ODD,
    SEARCH_PATH,
    TABLES,
    qualified,
    quoted,
)
from ledger.postgres_turns import Turns
from ledger.store import EntryColumns, Store, Stored

_SCHEMA = "ledger"  # unless POSTGRES_SCHEMA names another
_CONNECT_TIMEOUT = 10
_LOCK_TIMEOUT = 30  # for a table that somebody changes
_PATIENCE = 30.0  # for a server that was lost or starts, and for other writers
_SHORT_PATIENCE = 3.0  # for a server that does not answer at first: it may be restarting
_PAUSE = 0.2
_MAX_FILE = 10_000  # bytes of the file that names a server
_PREFIX = "POSTGRES_"
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NEWEST = """
    SELECT size, note, (SELECT idx FROM entries ORDER BY idx DESC LIMIT 1)
    FROM tree_heads ORDER BY size DESC LIMIT 1"""
_INSERT_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
_COPY_ENTRIES = "COPY entries FROM STDIN (FORMAT BINARY)"
_TYPES = ("int8", "bytea", "int8", "text", "bytea")  # of EntryColumns
_TAKEN = ("entries_pkey", "tree_heads_pkey")  # an index or a size that another writer was given
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_T = TypeVar("_T")

_REMEDIES: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "Nothing of this batch was written; free some space on the server's disk"),
    (errors.InsufficientPrivilege, "Let the owner of the database grant it to this user"),
    (errors.ReadOnlySqlTransaction, "This is a standby, or read-only; connect to the primary"),
    (errors.UndefinedTable, "Somebody has removed it; restore the database from a copy"),
    (errors.DataCorrupted, "The database is damaged; restore it from a copy"),
    (errors.IndexCorrupted, "The database is damaged; restore it from a copy"),
)
_STARTING = "the database system is "  # starting up, shutting down, not accepting connections
_CONNECT_REMEDIES = (  # parts of the server's and libpq's messages
    (_STARTING, "the server is starting or stopping; try again once it runs"),
    ("password", "set POSTGRES_PASSWORD, or put the password into ~/.pgpass"),
    ("authentication failed", "check POSTGRES_USER and the server's pg_hba.conf"),
    ("database", "check POSTGRES_DBNAME, or make the database with createdb"),
    ("role", "check POSTGRES_USER, or make the user with createuser"),
    ("", "check that the server runs, POSTGRES_HOST and POSTGRES_PORT"),
)


class _AgainError(StorageError):
    """What was being done may be done again: nothing of it was written, or all."""

    patience = _PATIENCE
    pause = 0.0
    end = f". This was tried for {_PATIENCE:.0f} s"


class _LostError(_AgainError):
    """The connection is gone."""

    pause = _PAUSE
    end = (
        f". The server did not come back within {_PATIENCE:.0f} s. A batch that was being written "
        "is stored completely or not at all"
    )


class _StartingError(_AgainError):
    """The server does not take connections yet, or any more."""

    pause = _PAUSE


class _SilentError(_AgainError):
    """No server answers."""

    patience = _SHORT_PATIENCE
    pause = _PAUSE
    end = ""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a ledger is: the eventsourcing library's settings, POSTGRES_ and these in capitals."""

    dbname: str
    host: str = ""  # empty: as libpq chooses, from PGHOST or its default
    port: str = ""
    user: str = field(default="", compare=False)
    schema: str = _SCHEMA
    password: str = field(default="", repr=False, compare=False)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Return what these variables say, or None if they name no database."""
        said = {each.name: env.get(_PREFIX + each.name.upper()) for each in fields(cls)}
        return (
            cls(**{name: value for name, value in said.items() if value})
            if said["dbname"]
            else None
        )

    @classmethod
    def of_ledger(cls, path: Path, *, given: Self | None) -> Self:
        """Return where the ledger is that this file names, or that is given, if there is no file.

        The password is never in the file. Raises StorageError if the two are at odds.
        """
        if not os.path.lexists(path):
            if given is None:
                raise StorageError("set POSTGRES_DBNAME to the ledger's database")
            return given
        with explained(path):
            lines = read_text(path, most=_MAX_FILE).splitlines()
        said = dict(line.partition("=")[::2] for line in lines if line.strip())
        stored = cls.from_env({name.strip(): value.strip() for name, value in said.items()})
        if stored is None or not all(name.strip().startswith(_PREFIX) for name in said):
            raise StorageError(
                f"{path}: this file does not name a database; it has lines such as "
                "POSTGRES_DBNAME=proctor"
            )
        if given is not None and given.differs(stored):
            raise StorageError(
                f"{path}: this ledger is in {stored}, and the environment names {given}; unset "
                "POSTGRES_DBNAME and the others, or edit the file if the database has moved"
            )
        who = given or cls(
            dbname="",
            user=os.environ.get("POSTGRES_USER", ""),
            password=os.environ.get("POSTGRES_PASSWORD", ""),
        )
        return replace(stored, user=who.user or stored.user, password=who.password)

    def differs(self, stored: Self) -> bool:
        """Tell whether this names another place, as far as it says something."""
        unsaid = replace(stored, host="", port="", schema=_SCHEMA)
        return any(
            getattr(self, each.name) not in (getattr(unsaid, each.name), getattr(stored, each.name))
            for each in fields(self)
            if each.compare
        )

    def keep(self, path: Path) -> None:
        """Write the file that names this place, unless it is there."""
        lines = [
            f"{_PREFIX}{each.name.upper()}={getattr(self, each.name)}\n"
            for each in fields(self)
            if each.name != "password" and getattr(self, each.name)
        ]
        with explained(path):
            create_exclusively(path, "".join(lines).encode(), mode=0o644)

    @property
    def place(self) -> str:
        """The name of the place, without the user: what libpq would choose is written out."""
        host = self.host or os.environ.get("PGHOST", "")
        port = self.port or os.environ.get("PGPORT", "")
        return f"postgres {host}:{port} {self.dbname!r} {self.schema!r}"

    def __str__(self) -> str:
        where = f" at {self.host or 'localhost'}{self.port and ':'}{self.port}" if self.host else ""
        return f"schema {self.schema!r} of the PostgreSQL database {self.dbname!r}{where}"


class PostgresStore(Store):
    """One connection to a server, shared by the threads of this process.

    A connection that is lost is made anew, and the transaction done again: a server that restarts
    costs its clients the time that it takes. So is one whose index another writer was given.
    """

    def __init__(self, path: Path, settings: ServerSettings) -> None:
        """Connect; `path` is the file that names the server, or will."""
        self.path = path
        self.settings = settings
        self._lock = Lock()  # held through a transaction: threads take turns
        self._closed = False
        self._written = tuple(
            f"{quoted(settings.schema)}.{name}" for name in ("entries", "tree_heads")
        )
        self._turns = Turns(path, settings.schema)
        self._connection = _patiently(lambda: connect(path, settings))

    def begun(self) -> bool:
        """Tell whether there is a ledger; raise StorageError if there is something else."""
        return self.run(lambda rows: _is_begun(rows, self.settings), write=False)

    def create(self, *, meta: Mapping[str, str]) -> None:
        """Make an empty ledger; if another process was faster, leave its own."""

        def make(rows: "_Rows") -> None:  # alone: two that make the same table fail
            if _is_begun(rows, self.settings):
                return
            schema = self.settings.schema
            there = rows.execute("SELECT to_regnamespace(?)", (quoted(schema),)).fetchone()
            if there == (None,):  # else no right to make one is needed
                name = sql.Identifier(schema)
                rows.connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
            for statement in TABLES:
                rows.execute(statement)
            for item in meta.items():
                rows.execute("INSERT INTO meta VALUES (?, ?)", item)

        self.run(make, write=True)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator["_Rows"]:
        """Run a block all or nothing; a writer keeps other writers out from its first line."""
        with self._lock, explained_server(self.path, lambda: self._connection):
            if self._closed:
                raise StorageError(f"{self.path}: the ledger is closed")
            if self._connection.closed:
                self._connection = connect(self.path, self.settings, again=True)
            connection = self._connection
            try:
                if write:
                    self._turns.begin(connection)
                else:
                    connection.execute(_BEGIN_READ)
                yield _Rows(connection, self.settings.schema)
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    def run(self, work: Callable[["_Rows"], _T], *, write: bool) -> _T:
        """Do some work in a transaction; again, if the connection or the index was lost."""

        def once() -> _T:
            with self.transaction(write=write) as rows:
                return work(rows)

        return _patiently(once)

    def stamp(self, rows: Any, *, written: tuple[int, str] | None = None) -> object:
        """Return the newest tree head and the greatest index: others after each append."""
        if written is not None:
            size, note = written
            return size, note, size - 1
        return rows.execute(_NEWEST).fetchone() or ()

    def insert(self, rows: Any, entries: Sequence[EntryColumns]) -> int:
        """Insert entries; several by COPY, which takes a quarter of the time."""
        if len(entries) == 1:
            cursor = rows.execute(_INSERT_ENTRY, entries[0])
        else:
            cursor = rows.connection.cursor()
            with cursor.copy(rows.statement(_COPY_ENTRIES), ()) as copy:
                copy.set_types(_TYPES)
                for entry in entries:
                    copy.write_row(entry)
        return int(cursor.rowcount)

    def add_head(self, rows: Any, size: int, note: str, edge: bytes) -> Stored | None:
        """Insert a tree head, and return what is stored then; raise as check_tables()."""
        row = rows.execute(INSERT_HEAD, (size, note, edge, *self._written)).fetchone()
        if row is None or row[0]:
            _is_begun(rows, self.settings)
        return Stored(*row[1:]) if row else None

    def check_tables(self, rows: Any) -> None:
        """Raise StorageError if the tables that were written to are not as they were made."""
        if rows.execute(ODD, self._written).fetchone() != (False,):
            _is_begun(rows, self.settings)

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        with self._lock:
            self._closed = True
            self._connection.close()


class _Rows:
    """A connection in a transaction, for statements as both stores understand them."""

    def __init__(self, connection: "psycopg.Connection[Any]", schema: str) -> None:
        self.connection = connection
        self._schema = schema

    def statement(self, statement: str) -> bytes:
        """Return it as psycopg and the server want it."""
        return qualified(statement, self._schema)

    def execute(self, statement: str, parameters: tuple[Any, ...] = (), /) -> "psycopg.Cursor[Any]":
        cursor = self.connection.cursor(binary=True)
        return cursor.execute(self.statement(statement), parameters)


def on_server(path: Path, *, given: ServerSettings | None) -> PostgresStore:
    """Connect to the server that this file names, or that is given, if there is no such file."""
    return PostgresStore(path, ServerSettings.of_ledger(path, given=given))


def connect(
    path: Path, settings: ServerSettings, *, again: bool = False
) -> "psycopg.Connection[Any]":
    """Connect to the server; raise StorageError, which says what to check."""
    said = {key: value for key, value in vars(settings).items() if value and key != "schema"}
    try:
        connection = psycopg.connect(
            **said,
            autocommit=True,  # BEGIN is ours
            client_encoding="UTF8",
            connect_timeout=_CONNECT_TIMEOUT,
            application_name="proctor",
            keepalives_idle=30,  # a server that has vanished is noticed within a minute
            keepalives_interval=10,
            keepalives_count=3,
            tcp_user_timeout=30_000,  # ms
        )
    except psycopg.Error as e:
        text = _plain(e)
        remedy = next(remedy for part, remedy in _CONNECT_REMEDIES if part in text)
        lost = _LostError if again else _why(said, text)
        raise lost(f"{path}: no connection to {settings}: {text}; {remedy}") from e
    try:
        with explained_server(path, lambda: connection):
            _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _why(said: Mapping[str, str], text: str) -> type[StorageError]:
    """Tell whether to connect again is worth while: messages may be in any language."""
    if _STARTING in text:
        return _StartingError
    place = conninfo.make_conninfo(**{**said, "connect_timeout": "2"})
    ping = PGconn.ping(place.encode())
    if ping == Ping.NO_RESPONSE:
        return _SilentError
    return _StartingError if ping == Ping.REJECT else StorageError


def _prepare(connection: "psycopg.Connection[Any]", path: Path) -> None:
    connection.execute(
        f"{SEARCH_PATH}; SET lock_timeout = '{_LOCK_TIMEOUT}s'; "
        "SET idle_in_transaction_session_timeout = 0"  # a reader may take its time
    )
    # An acknowledged batch is on the disk, whatever is the default here.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        raise StorageError(
            f"{path}: the database has the encoding {encoding}; make it with the encoding UTF8"
        )


def _is_begun(rows: _Rows, settings: ServerSettings) -> bool:
    found = rows.connection.execute(FOUND, (quoted(settings.schema),)).fetchall()
    if not found:
        return False
    texts = sorted(text for (text,) in found)
    if texts != MADE:
        added = ", ".join(sorted({*texts} - {*MADE}))[:200]
        remove = f"have its owner remove what was added ({added}), " if added else ""
        raise StorageError(
            f"{settings} has tables, but not those of a ledger of this version; set "
            f"POSTGRES_SCHEMA to another name, {remove}or restore the database from a copy; "
            "nothing was written"
        )
    return True


def _patiently(work: Callable[[], _T]) -> _T:
    """Do some work, again for a while if it may be done again."""
    began, patience = None, 0.0
    while True:
        try:
            return work()
        except _AgainError as e:
            began = began or time.monotonic()
            patience = max(patience, e.patience)
            if time.monotonic() - began >= patience:
                raise StorageError(f"{e}{e.end}") from e
            time.sleep(e.pause)


def _roll_back(connection: "psycopg.Connection[Any]") -> None:
    """End a transaction that failed; where that does not work either, end the connection."""
    with suppress(psycopg.Error):
        if connection.info.transaction_status in _OPEN:
            connection.execute("ROLLBACK")
        if connection.info.transaction_status == TransactionStatus.IDLE:
            return
    connection.close()


@contextmanager
def explained_server(
    path: Path, connection: Callable[[], "psycopg.Connection[Any]"]
) -> Iterator[None]:
    """Turn errors of the server into the ledger's own."""
    try:
        yield
    except errors.UniqueViolation as e:
        if e.diag.constraint_name in _TAKEN:
            raise _AgainError(f"{path}: another writer was faster: {_plain(e)}; try again") from e
        raise ConflictError(
            f"{path}: another writer has appended to this stream ({_plain(e)}); load it again and "
            "retry"
        ) from e
    except psycopg.DataError as e:
        raise EncodingError(f"PostgreSQL cannot store an event name with a NUL: {_plain(e)}") from e
    except (errors.LockNotAvailable, errors.SerializationFailure, errors.DeadlockDetected) as e:
        raise _AgainError(f"{path}: {_plain(e)}: the tables are in use; try again later") from e
    except psycopg.Error as e:
        if connection().closed:
            raise _LostError(
                f"{path}: the connection to the server was lost: {_plain(e)}; try again"
            ) from e
        remedy = next(
            (remedy for kind, remedy in _REMEDIES if isinstance(e, kind)),
            "Check the server's log",
        )
        raise StorageError(f"{path}: {_plain(e)}. {remedy}") from e


def _plain(error: psycopg.Error) -> str:
    """Return a message as one line, without where it is in our statement."""
    text = error.diag.message_primary or str(error)
    return " ".join(text.split()).rpartition("FATAL: ")[2].strip().rstrip(".") or "no reason given"
