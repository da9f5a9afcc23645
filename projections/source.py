"""A ledger's entries as they stand, unverified: whether they hold is for `verify` to say.

I/O: reads the ledger's database, in one transaction.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ledger.database import Database
from ledger.entries import entry_hash
from ledger.paths import LedgerPaths
from ledger.verify import VerifiedEntry, parse_entry

__all__ = ["LedgerSnapshot", "open_snapshot"]


class LedgerSnapshot:
    """A ledger at one moment; for use inside of open_snapshot() only."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def hash_at(self, index: int) -> str | None:
        """Return the hash of the entry at this index, hexadecimal, or None if there is none."""
        row = self._connection.execute(
            "SELECT entry FROM entries WHERE idx = ?", (index,)
        ).fetchone()
        return None if row is None else entry_hash(row[0]).hex()

    def entries(self, *, start: int) -> Iterator[VerifiedEntry]:
        """Yield the entries from this index on; raises MalformedError for what is not one."""
        rows = self._connection.execute(
            "SELECT idx, entry FROM entries WHERE idx >= ? ORDER BY idx", (start,)
        )
        for index, entry in rows:
            yield parse_entry(entry, index=index)


@contextmanager
def open_snapshot(directory: Path) -> Iterator[LedgerSnapshot]:
    """Open the ledger in a directory for reading; raises StorageError if there is none."""
    with (
        closing(Database(LedgerPaths(directory).database)) as database,
        database.transaction(write=False) as connection,
    ):
        yield LedgerSnapshot(connection)
