"""The verified entries of a run, in a file of this process's own: none has to stay in memory.

A short run stays in memory. The file has no name: nobody else can open it by one, and it is gone
with the process.

Trust: as in ledger/verification/verified_entries.py; what is read is what was written.
I/O: a temporary file.
"""

import tempfile
from array import array
from collections.abc import Sequence
from typing import overload

import msgspec

from ledger.verification.verified_entries import VerifiedEntry

_IN_MEMORY = 1 << 19  # bytes
_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode
_decode = msgspec.msgpack.Decoder(VerifiedEntry).decode


class SpooledEntries(Sequence[VerifiedEntry]):
    """Entries in the order in which they were added."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - it lives as long as this
        self._ends = array("Q", [0])  # where each begins in the file, and where the last one ends

    def append(self, entry: VerifiedEntry) -> None:
        """Add an entry."""
        self._file.seek(self._ends[-1])
        self._file.write(_encode(entry))
        self._ends.append(self._file.tell())

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> VerifiedEntry: ...

    @overload
    def __getitem__(self, index: slice) -> list[VerifiedEntry]: ...

    def __getitem__(self, index: int | slice) -> VerifiedEntry | list[VerifiedEntry]:
        """Return an entry, or a part of them."""
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        start, end = self._ends[at], self._ends[at + 1]
        self._file.seek(start)
        return _decode(self._file.read(end - start))
