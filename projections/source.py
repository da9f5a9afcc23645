"""A ledger's stored entries, unverified: `verify` checks whether they are valid.

I/O: reads the ledger's database, a page in each transaction.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ledger.database import Database
from ledger.entries import entry_hash
from ledger.paths import LedgerPaths
from ledger.verification.verified_entries import VerifiedEntry, parse_entry

__all__ = ["END", "LedgerSource", "open_source"]

END = 2**63 - 1  # behind every index
_PAGE = 8_000  # entries
_PAGE_BYTES = 8 << 20


class LedgerSource:
    """An open ledger; for use inside of open_source() only."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self.directory = directory

    def hash_at(self, index: int) -> str | None:
        """Return the hash of the entry at this index, hexadecimal, or None if there is none."""
        page = self._page(index, limit=1)
        return entry_hash(page[0][1]).hex() if page and page[0][0] == index else None

    def size(self) -> int:
        """Return how many entries there are."""
        with self._database.transaction(write=False) as connection:
            (last,) = connection.execute("SELECT MAX(idx) FROM entries").fetchone()
        return 0 if last is None else int(last) + 1

    def entries(self, *, start: int, stop: int = END) -> Iterator[VerifiedEntry]:
        """Yield the entries from this index on; raises MalformedError for what is not one."""
        for page in self.pages(start=start, stop=stop):
            for index, entry in page:
                yield parse_entry(entry, index=index)

    def pages(self, *, start: int, stop: int = END) -> Iterator[list[tuple[int, bytes]]]:
        """Yield entries with their indices, some at a time."""
        while start < stop and (page := self._page(start, limit=min(_PAGE, stop - start))):
            yield page
            start = page[-1][0] + 1

    def _page(self, start: int, *, limit: int) -> list[tuple[int, bytes]]:
        page, size = [], 0
        with self._database.transaction(write=False) as connection:
            for index, entry in connection.execute(
                "SELECT idx, entry FROM entries WHERE idx >= ? ORDER BY idx LIMIT ?",
                (start, limit),
            ):
                page.append((index, entry))
                size += len(entry) if isinstance(entry, bytes) else 0
                if size >= _PAGE_BYTES:
                    break
        return page


@contextmanager
def open_source(directory: Path) -> Iterator[LedgerSource]:
    """Open the ledger in a directory for reading; raises StorageError if there is none."""
    with closing(Database(LedgerPaths(directory).database)) as database:
        yield LedgerSource(database, directory)
