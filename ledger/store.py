"""What the recorder needs of a database: SQLite's (database.py) or PostgreSQL's.

Statements are written once, in the SQL that both understand, with `?` for each parameter.

I/O: none here.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from ledger.errors import StorageError

EntryColumns = tuple[int, bytes, int, str, bytes]
"""idx, stream_id, stream_version, name, entry."""
_T = TypeVar("_T")


class Stored(NamedTuple):
    """What a database has at the end of a ledger, read back."""

    note: str | None  # of the newest tree head
    idx: int | None  # of the last entry
    entry: bytes | None  # that one


class Rows(Protocol):
    """A connection that is in a transaction."""

    def execute(self, statement: str, parameters: tuple[Any, ...] = ..., /) -> Any:
        """Carry out one statement, and return a cursor over the rows that it has found."""


class Store(Protocol):
    """A ledger's database; its errors are StorageError and ConflictError."""

    path: Path
    """The file that error messages name: the database, or the one that says where it is."""

    def meta(self, key: str) -> str:
        """Return a row of the meta table."""
        row = self.run(
            lambda rows: rows.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone(),
            write=False,
        )
        if row is None:
            raise StorageError(
                f"{self.path}: the {key} is missing; restore the database from a copy"
            )
        return str(row[0])

    def transaction(self, *, write: bool) -> AbstractContextManager[Rows]:
        """Run a block all or nothing; a writer keeps other writers out from its first line."""

    def run(self, work: Callable[[Rows], _T], *, write: bool) -> _T:
        """Do some work in a transaction. A server's may be repeated, if the connection was lost."""

    def stamp(self, rows: Rows, *, written: tuple[int, str] | None = None) -> object:
        """Return what is different after each append, whoever appends.

        `written` is the tree head that this transaction has written, if it has: size and note.
        """

    def add_entries(self, rows: Rows, entries: Sequence[EntryColumns]) -> None:
        """Insert entries; raise StorageError if the database has inserted fewer."""
        count = self.insert(rows, entries)
        if count != len(entries):
            raise StorageError(
                f"{self.path}: the database has inserted {count} of {len(entries)} entries; "
                "nothing was appended. Look for triggers and rules on its tables, then verify the "
                "ledger"
            )

    def insert(self, rows: Rows, entries: Sequence[EntryColumns]) -> int:
        """Insert entries, and return how many the database says that it inserted."""

    def add_head(self, rows: Rows, size: int, note: str, edge: bytes) -> Stored | None:
        """Insert a tree head, and return what is stored then, if anything; raise as check_tables().

        The head is the one that was inserted, or the newest.
        """

    def check_tables(self, rows: Rows) -> None:
        """Raise StorageError if the tables that were written to are not as they were made.

        Something might then change what is written, before or after the commit.
        """

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
