"""A ledger's stored entries, for the tables.

They are not verified here. For a caller that has verified the ledger, each entry's link is compared
with the entry before it, and the caller compares the last hash. So later changes are refused.

I/O: reads the ledger's database, as of one moment, and never writes to it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from uuid import UUID

from ledger.entries import entry_hash
from ledger.errors import ConsistencyError, LedgerError
from ledger.paths import LedgerPaths
from ledger.verification.authority import authority_stream
from ledger.verification.marks import PREVIOUS
from ledger.verification.reader import read_vkey
from ledger.verification.snapshots import Snapshot, snapshot
from ledger.verification.verified_entries import VerifiedEntry, parse_entry

END = 2**63 - 1  # behind every index
_PAGE = 8_000  # entries
_PAGE_BYTES = 8 << 20
Page = Sequence[tuple[int, bytes]]


class LedgerSource:
    """An open ledger; for use inside of open_source() only."""

    def __init__(self, stored: Snapshot, directory: Path, *, linked: bool) -> None:
        self._stored = stored
        self.directory = directory
        self.linked = linked  # compare each entry with its predecessor's hash

    @cached_property
    def authority(self) -> UUID | None:
        """The stream that decides on the ledger's keys; None where the key's file is missing."""
        try:
            vkey = read_vkey(LedgerPaths(self.directory).vkey)
        except LedgerError:
            return None
        return authority_stream(vkey.partition("+")[0])

    def hash_at(self, index: int) -> str | None:
        """Return the hash of the entry at this index, hexadecimal, or None if there is none."""
        page = self._page(index, limit=1)
        return entry_hash(page[0][1]).hex() if page and page[0][0] == index else None

    def size(self) -> int:
        """Return how many entries there are."""
        with self._stored.explained():
            (last,) = self._stored.one("SELECT MAX(idx) FROM entries")
        return 0 if last is None else int(last) + 1

    def entries(
        self, *, start: int, stop: int = END, after: bytes | None = None
    ) -> Iterator[VerifiedEntry]:
        """Yield the entries from this index on; raises MalformedError for what is not one.

        `after` is the hash of the entry before the first.
        """
        for page in self.pages(start=start, stop=stop, after=after):
            for index, entry in page:
                yield parse_entry(entry, index=index)

    def pages(self, *, start: int, stop: int = END, after: bytes | None = None) -> Iterator[Page]:
        """Yield entries with their indices, some at a time.

        Raises ConsistencyError for an entry that does not hold the hash of the one before it, if
        links are compared.
        """
        while start < stop and (page := self._page(start, limit=min(_PAGE, stop - start))):
            if self.linked:
                after = _linked(page, after)
            yield page
            start = page[-1][0] + 1

    def _page(self, start: int, *, limit: int) -> list[tuple[int, bytes]]:
        page, size = [], 0
        with self._stored.explained():
            for index, entry in self._stored.page(start, limit=limit):
                page.append((index, entry))
                size += len(entry) if isinstance(entry, bytes) else 0
                if size >= _PAGE_BYTES:
                    break
        return page


@contextmanager
def open_source(directory: Path, *, linked: bool = False) -> Iterator[LedgerSource]:
    """Open the ledger in a directory for reading; raises StorageError if there is none."""
    with snapshot(LedgerPaths(directory)) as stored:
        yield LedgerSource(stored, directory, linked=linked)


def _linked(page: Page, after: bytes | None) -> bytes:
    """Return the hash of a page's last entry, having compared each link."""
    for index, entry in page:
        if not isinstance(entry, bytes) or (after is not None and entry[PREVIOUS] != after):
            raise ConsistencyError(
                f"entry {index} does not follow the one before it: the ledger was changed after "
                "it had been verified",
                index=index,
            )
        after = entry_hash(entry)
    assert after is not None  # a page is not empty
    return after
