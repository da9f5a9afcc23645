"""The verified entries of a run, in a file of this process's own: none has to stay in memory.

A short run stays in memory. The file has no name: nobody else can open it by one, and it is gone
with the process.

Trust: as in ledger/verification/verified_entries.py; what is read is what was written.
I/O: a temporary file.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, overload

import msgspec

from ledger.verification.verified_entries import VerifiedEntry

_PAGE = 64  # entries
_IN_MEMORY = 1 << 19  # bytes of the first pages
_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode
_decode = msgspec.msgpack.Decoder(list[VerifiedEntry]).decode


class SpooledEntries(Sequence[VerifiedEntry]):
    """Entries in the order in which they were added."""

    def __init__(self) -> None:
        self._pages: list[bytes | tuple[int, int]] = []  # or their place and length in the file
        self._last: list[VerifiedEntry] = []  # less than a page
        self._read: tuple[int, list[VerifiedEntry]] = (-1, [])  # the page that was read last
        self._file: IO[bytes] | None = None
        self._size = 0  # bytes of all pages
        self._end = 0  # of the file

    def append(self, entry: VerifiedEntry) -> None:
        """Add an entry."""
        self._last.append(entry)
        if len(self._last) < _PAGE:
            return
        data = _encode(self._last)
        page: bytes | tuple[int, int] = data
        self._last = []
        self._size += len(data)
        if self._size > _IN_MEMORY:
            with suppress(OSError):  # no room on the disk: what is left stays in memory
                page = self._written(data)
        self._pages.append(page)

    def _written(self, page: bytes) -> bytes | tuple[int, int]:
        """Return the place and length of a page in the file; itself where not all of it fits."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as this
        if os.pwrite(self._file.fileno(), page, self._end) != len(page):
            return page
        self._end += len(page)
        return self._end - len(page), len(page)

    def _page(self, number: int) -> list[VerifiedEntry]:
        if number == len(self._pages):
            return self._last
        known, entries = self._read
        if known == number:
            return entries
        page = self._pages[number]
        if not isinstance(page, bytes):
            assert self._file is not None
            place, length = page
            page = os.pread(self._file.fileno(), length, place)
        entries = _decode(page)
        self._read = (number, entries)
        return entries

    def __len__(self) -> int:
        """Return the number of entries."""
        return _PAGE * len(self._pages) + len(self._last)

    def __iter__(self) -> Iterator[VerifiedEntry]:
        """Yield the entries."""
        for number in range(len(self._pages) + 1):
            yield from self._page(number)

    @overload
    def __getitem__(self, index: int) -> VerifiedEntry: ...

    @overload
    def __getitem__(self, index: slice) -> list[VerifiedEntry]: ...

    def __getitem__(self, index: int | slice) -> VerifiedEntry | list[VerifiedEntry]:
        """Return an entry, or a part of them."""
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        number, place = divmod(range(len(self))[index], _PAGE)
        return self._page(number)[place]
