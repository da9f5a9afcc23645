"""One moment of a ledger on a PostgreSQL server, for reading.

Rows come a few at a time, in one transaction that sees one moment. Values of any length are cut to
what the format allows, and one byte more, so that they are refused.

Source: docs/reference/ledger-format.md, "PostgreSQL". Needs psycopg, as postgres_store.py does.
Trust: the server is hostile; what is read here was not verified.
I/O: reads from the server.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Any

import psycopg

from ledger.errors import StorageError
from ledger.paths import LedgerPaths
from ledger.postgres_store import PostgresStore, explained_server, on_server
from ledger.verification.snapshots import Snapshot
from ledger.verification.verify import EntryRow, HeadRow

__all__ = ["server_snapshot"]

_PAGE = 500  # rows: up to 32 MiB
_ENTRIES = """
    SELECT idx, stream_id, stream_version, left(name, 256),
        CASE WHEN length(entry) <= 65535 THEN entry END
    FROM entries {} ORDER BY idx LIMIT %s"""
_ENTRIES_FROM_TOP = _ENTRIES.format("") + " OFFSET %s"
_ENTRIES_AFTER = _ENTRIES.format("WHERE idx >= %s")
_HEADS = "SELECT size, left(note, 1000000), substring(edge FOR 2049) FROM tree_heads "
_HEADS_FROM_TOP = _HEADS + "ORDER BY size OFFSET %s"
_HEADS_AFTER = _HEADS + "WHERE size > %s ORDER BY size"
_FIRST_VERSION_OUT_OF_STEP = """
    SELECT idx FROM (
        SELECT idx, stream_version, LAG(stream_version)
            OVER (PARTITION BY stream_id ORDER BY idx) AS before
        FROM entries) AS steps
    WHERE CASE WHEN before IS NULL THEN stream_version > 1 ELSE stream_version <> before + 1 END
    ORDER BY idx LIMIT 1"""


class ServerSnapshot(Snapshot):
    """A server's tables in a read transaction."""

    file = None

    def __init__(self, store: PostgresStore, rows: Any) -> None:
        self.path = store.path
        self._rows = rows
        self._cursors = 0

    def explained(self) -> AbstractContextManager[None]:
        """Turn errors of the server into StorageError."""
        return explained_server(self.path, lambda: self._rows.connection)

    def entries_from_top(self, *, skip: int = 0, limit: int = -1) -> Iterator[EntryRow]:
        """Yield rows of entries in their order, without those that are skipped."""
        return self._each(_ENTRIES_FROM_TOP, (None if limit < 0 else limit, skip))

    def heads_from_top(self, *, skip: int = 0) -> Iterator[HeadRow]:
        """Yield rows of tree heads in their order, without those that are skipped."""
        return self._each(_HEADS_FROM_TOP, (skip,))

    def entries_after(self, size: int) -> Iterator[EntryRow]:
        """Yield rows of entries from this index on."""
        return self._each(_ENTRIES_AFTER, (size, None))

    def heads_after(self, size: int) -> Iterator[HeadRow]:
        """Yield rows of tree heads beyond this size."""
        return self._each(_HEADS_AFTER, (size,))

    def page(self, start: int, *, limit: int) -> Iterator[tuple[int, bytes]]:
        """Yield the indexes and bytes of entries from an index on."""
        return ((row[0], row[4]) for row in self._each(_ENTRIES_AFTER, (start, limit)))

    def newest_note(self) -> Any:
        """Return the newest tree head's note, or None."""
        row = self.one("SELECT left(note, 1000000) FROM tree_heads ORDER BY size DESC LIMIT 1")
        return None if row is None else row[0]

    def one(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        """Return the first row that a statement finds, or None."""
        with self.explained():
            return self._rows.execute(statement, parameters).fetchone()

    def meta(self) -> list[tuple[Any, ...]]:
        """Return the rows of the meta table, or the first three of more."""
        statement = "SELECT left(key, 100), left(value, 10000) FROM meta LIMIT 3"
        with self.explained():
            found: list[tuple[Any, ...]] = self._rows.execute(statement).fetchall()
        return found

    def first_version_out_of_step(self) -> Any:
        """Return the first entry that is not the next of its stream, by columns that hold."""
        row = self.one(_FIRST_VERSION_OUT_OF_STEP)
        return None if row is None else row[0]

    def _each(self, statement: str, parameters: tuple[Any, ...]) -> Iterator[Any]:
        self._cursors += 1
        with self.explained():
            cursor = self._rows.connection.cursor(f"rows_{self._cursors}")
            cursor.itersize = _PAGE
            cursor.execute(self._rows.statement(statement), parameters, binary=True)
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


@contextmanager
def server_snapshot(paths: LedgerPaths) -> Iterator[ServerSnapshot]:
    """Yield what is stored on the server that the ledger's file names, as of one moment."""
    with closing(on_server(paths.server, given=None)) as store:
        if not store.begun():
            raise StorageError(
                f"{paths.server}: there is no ledger in {store.settings}; check the names, or "
                "restore the database from a copy"
            )
        with store.transaction(write=False) as rows:
            yield ServerSnapshot(store, rows)
