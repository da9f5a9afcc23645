"""Hashes that detect a change of the ledger between its verification and its use.

A verification reads everything once. Whoever uses the verified entries reads them again, and the
file can change in between: SQLite's read transaction keeps out other users of SQLite, but not a
process that writes into the file itself. Each entry holds its predecessor's hash, so one hash for
every 512 entries fixes them all. Tree heads have no such links: their notes are hashed together.

Source: docs/reference/ledger-format.md, "Entry" and "Hashes".
Trust: marks are the verification's own; what is read is hostile until it equals them.
I/O: none.  Memory: 32 bytes for each 512 entries, and for each 512 tree heads.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from ledger.errors import ConsistencyError

MARKED = 512  # entries or tree heads between two marks, at most
PREVIOUS = slice(41, 73)  # of an entry's bytes: its predecessor's hash
Mark = tuple[int, bytes]
"""How many there are up to here, and a hash that fixes those since the mark before."""


class NoteMarks:
    """Takes in the notes of tree heads, one after the other."""

    def __init__(self, count: int = 0) -> None:
        """Begin behind so many tree heads."""
        self._count = count
        self._since = 0
        self._hash = hashlib.sha256()
        self._marks: list[Mark] = []

    def add(self, note: str) -> None:
        """Take in the next tree head's note."""
        self._hash.update(_sized(note))
        self._count += 1
        self._since += 1
        if self._since == MARKED:
            self._close()

    def marks(self) -> list[Mark]:
        """Return the marks of all notes so far."""
        if self._since:
            self._close()
        return self._marks

    def _close(self) -> None:
        self._marks.append((self._count, self._hash.digest()))
        self._since, self._hash = 0, hashlib.sha256()


def joined(marks: Sequence[Mark], more: Sequence[Mark]) -> list[Mark]:
    """Return the marks of entries and of those behind them, without those that are not needed."""
    kept: list[Mark] = []
    every = [*marks, *more]
    for mark, following in zip(every, [*every[1:], None], strict=True):
        before = kept[-1][0] if kept else 0
        if following is None or following[0] - before > MARKED:
            kept.append(mark)
    return kept


def marked_entries(
    read: Callable[[int], Iterator[bytes]], marks: Sequence[Mark], *, start: int
) -> Iterator[bytes]:
    """Yield entries from an index on; `read` gives those from a place on, which is a mark's.

    Raises ConsistencyError where they are not those that the marks were made of.
    """
    rows: Iterator[bytes] | None = None
    for (first, _), (end, last_hash) in pairwise([(0, b""), *marks]):
        if end <= start:
            continue
        if rows is None:
            rows = read(first)
        entries = _compared(rows, first, end, last_hash)
        yield from entries[max(start - first, 0) :]


def chosen_entries(
    read: Callable[[int], Iterator[bytes]], marks: Sequence[Mark], indexes: Sequence[int]
) -> Iterator[bytes]:
    """Yield the entries at these indexes, ascending; only what lies around them is read.

    Raises ConsistencyError as marked_entries() does.
    """
    ends = [end for end, _ in marks]
    at = 0
    while at < len(indexes):
        mark = bisect_right(ends, indexes[at])
        first, (end, last_hash) = ends[mark - 1] if mark else 0, marks[mark]
        entries = _compared(read(first), first, end, last_hash)
        while at < len(indexes) and indexes[at] < end:
            yield entries[indexes[at] - first]
            at += 1


def _compared(rows: Iterator[bytes], first: int, end: int, last_hash: bytes) -> list[bytes]:
    """Return the entries up to a mark; raise ConsistencyError unless they lead to its hash."""
    entries = list(islice(rows, end - first))
    if not _are_linked(entries, end - first, last_hash):
        raise ConsistencyError(
            f"entries {first} to {end - 1} were changed after they had been verified; nothing "
            "of them was used; `proctor verify` finds which",
            index=first,
        )
    return entries


def marked_notes(notes: Iterator[str], marks: Sequence[Mark]) -> Iterator[str]:
    """Yield tree heads' notes; raises ConsistencyError as marked_entries() does."""
    for (first, _), (end, digest) in pairwise([(0, b""), *marks]):
        found = list(islice(notes, end - first))
        texts = [_sized(note) for note in found if isinstance(note, str)]
        if len(texts) != end - first or hashlib.sha256(b"".join(texts)).digest() != digest:
            raise ConsistencyError(
                "tree heads were changed after they had been verified; nothing of them was used; "
                "`proctor verify` finds which"
            )
        yield from found


def _are_linked(entries: Sequence[object], count: int, last_hash: bytes) -> bool:
    """Tell whether the last of these has this hash, and each other one the hash that it names."""
    wanted = last_hash
    for entry in reversed(entries):
        if not isinstance(entry, bytes) or hashlib.sha256(b"\x00" + entry).digest() != wanted:
            return False
        wanted = entry[PREVIOUS]
    return len(entries) == count


def _sized(note: str) -> bytes:
    data = note.encode("utf-8", "surrogateescape")
    return len(data).to_bytes(8, "big") + data
