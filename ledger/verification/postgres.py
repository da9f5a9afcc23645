"""A ledger on a PostgreSQL server, as SERVERS of paths.py has it; one moment of it, for reading.

Rows come a few at a time, in one transaction that sees one moment. Values of any length are cut to
what the format allows, and one byte more, so that they are refused.

Source: docs/reference/ledger-format.md, "PostgreSQL". Needs psycopg, as postgres_store.py does.
Trust: the server is hostile; what is read here was not verified.
I/O: reads from the server.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from ledger.errors import StorageError
from ledger.postgres_rights import read_rights
from ledger.postgres_store import PostgresStore, ServerSettings, explained_server, on_server
from ledger.verification.snapshots import Snapshot

PAGE = "docs/how-to/use-postgresql.md"
connect, rights, settings = on_server, read_rights, ServerSettings.from_env

_PAGE = 500  # rows: up to 32 MiB
_ENTRY = "CASE WHEN length(entry) <= 65535 THEN entry END"


class ServerSnapshot(Snapshot):
    """A server's tables in a read transaction."""

    file = None
    columns = {  # noqa: RUF012 - as the base class has it
        "entry": f"idx, stream_id, stream_version, left(name, 256), {_ENTRY}",
        "data": _ENTRY,
        "head": "size, left(note, 1000000), substring(edge FOR 2049)",
        "meta": "left(key, 100), left(value, 10000)",
    }

    def __init__(self, store: PostgresStore, rows: Any) -> None:
        self.path = store.path
        self._server = rows
        self._cursors = 0

    def explained(self) -> AbstractContextManager[None]:
        """Turn errors of the server into StorageError."""
        return explained_server(self.path, lambda: self._server.connection)

    def one(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        """Return the first row that a statement finds, or None."""
        with self.explained():
            return self._server.execute(_plain(statement), parameters).fetchone()

    def rows(self, statement: str, parameters: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Yield the rows that a statement finds, as they are needed."""
        self._cursors += 1
        with self.explained():
            cursor = self._server.connection.cursor(f"rows_{self._cursors}")
            cursor.itersize = _PAGE
            cursor.execute(self._server.statement(_plain(statement)), parameters, binary=True)
        try:
            while True:
                with self.explained():  # and not what a caller does with them
                    rows = cursor.fetchmany(_PAGE)
                if not rows:
                    return
                yield from rows
        finally:
            with suppress(psycopg.Error):  # the transaction, or the server, may have ended
                cursor.close()


def _plain(statement: str) -> str:
    """Return a statement without what only SQLite knows."""
    return statement.replace(" NOT INDEXED", "")


@contextmanager
def snapshot(file: Path) -> Iterator[ServerSnapshot]:
    """Yield what is stored on the server that this file names, as of one moment."""
    with closing(on_server(file, given=None)) as store:
        if not store.begun():
            raise StorageError(
                f"{file}: there is no ledger in {store.settings}; check the names, or "
                "restore the database from a copy"
            )
        with store.transaction(write=False) as rows:
            yield ServerSnapshot(store, rows)


def place(file: Path) -> str:
    """Return the name of the place that this file names."""
    return ServerSettings.of_ledger(file, given=None).place
