"""Verification in bulk: what verify.py checks one by one, checked in columns.

It reports only that a segment of the ledger is valid. If it raises, the caller runs verify.py,
which decides and names the first bad entry. So it may refuse too much, but it must never accept
what verify.py refuses. Both exist because this one takes 1.3 µs an entry, verify.py 4.1 µs (280
bytes each, one core).

Written from docs/reference/ledger-format.md and not from the writer, with which it shares
nothing but the errors.

Trust: the rows are hostile; a segment is as good as the state that it began with.
I/O: none.  Memory: one chunk of entries, and a number for each of up to 100,000 streams.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ledger.progress import advanced
from ledger.verification.authority import Authority
from ledger.verification.marks import MARKED, Mark, NoteMarks
from ledger.verification.states import Signatures, State, decides_keys, open_head, root_of
from ledger.verification.verified_entries import parse_entry
from ledger.verification.verified_notes import TreeHead, open_tree_head
from ledger.verification.verify import EntryRow, HeadRow

__all__ = ["Grown", "MismatchError", "Segment", "Versions", "verify_segment"]

_CHUNK = MARKED  # entries at a time, for a core's cache; 0.1 GB if all are as long as may be
_MAX_STREAMS = 100_000  # whose versions are kept in memory: some 20 MB
_FIXED = np.dtype(
    [
        ("format", "u1"),
        ("index", ">u8"),
        ("stream_id", "V16"),
        ("stream_version", ">u8"),
        ("time", ">u8"),
        ("previous", "V32"),
        ("author_length", "u1"),
    ]
)
_SHORTEST = 77  # bytes of an entry without author, name and body
_LONGEST = 65_535

Integers = npt.NDArray[np.integer]
Grown = Callable[[int], Sequence[bytes]]
"""The nodes of a level that the last entries have completed; called before the next are read."""

_sha256 = hashlib.sha256


class MismatchError(Exception):
    """Something does not fit; verify.py knows what."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Entries that hold, if those before them do."""

    start: State
    end: State
    head: TreeHead | None  # the newest in the segment; its signature was checked
    heads: int  # how many tree heads are in it
    versions: "Versions"
    vkey: str  # the ledger's first
    last_jump: tuple[int, int] | None  # of the clock, as in Authority
    entry_marks: list[Mark]
    head_marks: list[Mark]  # counted with those before the segment

    @property
    def authority(self) -> Authority:
        """Which keys stand at its end."""
        authority = self.end.stands(self.vkey)
        authority.last_jump = self.last_jump
        return authority


@dataclass
class Versions:
    """The first and the last version of each stream in a segment; nothing if they are too many."""

    first: dict[bytes, int] = field(default_factory=dict)
    last: dict[bytes, int] = field(default_factory=dict)
    overflowed: bool = False

    def add(self, streams: Sequence[bytes], versions: Sequence[int]) -> None:
        """Take in the next entries; raise unless each is the next of its stream."""
        if self.overflowed:
            return
        last = self.last
        find = last.get
        for stream, version in zip(streams, versions, strict=True):
            before = find(stream)
            if before is None:
                self.first[stream] = version
            elif version != before + 1:
                raise MismatchError
            last[stream] = version
        if len(last) > _MAX_STREAMS:
            self.overflowed = True
            self.first, self.last = {}, {}

    def follow(self, before: "Versions") -> None:
        """Raise unless each stream goes on where it ended, or begins with 0 or 1."""
        for stream, version in self.first.items():
            last = before.last.get(stream)
            if version not in ((0, 1) if last is None else (last + 1,)):
                raise MismatchError
        before.last.update(self.last)


def verify_segment(
    entries: Iterator[EntryRow] | Iterator[bytes],
    heads: Iterator[HeadRow],
    *,
    vkey: str,
    start: State,
    kept_heads: Sequence[TreeHead] = (),
    signatures: Signatures = "all",
    whole: bool = True,
    skipped_heads: int = 0,
    edges: bool = True,
    on_growth: Callable[[Grown], None] = lambda _: None,
) -> Segment:
    """Return what these entries come to; `whole` if nothing may be left after their last head.

    Entries are rows of the database, or entries alone, as a bundle has them. Heads are those of
    sizes beyond the start; in a segment that is not whole, they may go on after the last entry.
    They come with their `edges`, but in a bundle.
    Raises MismatchError or VerificationError, and whatever `on_growth` raises.
    """
    try:
        return _Pass(
            vkey=vkey,
            start=start,
            kept_heads=kept_heads,
            signatures=signatures,
            whole=whole,
            skipped_heads=skipped_heads,
            edges=edges,
            on_growth=on_growth,
        ).run(entries, heads)
    except (TypeError, ValueError, OverflowError) as e:  # a column of another type or length
        raise MismatchError from e


class _Pass:
    """One walk over a segment; see the steps of verify.Verification for their sources."""

    def __init__(
        self,
        *,
        vkey: str,
        start: State,
        kept_heads: Sequence[TreeHead],
        signatures: Signatures,
        whole: bool,
        skipped_heads: int,
        edges: bool,
        on_growth: Callable[[Grown], None],
    ) -> None:
        self._vkey = vkey
        self._start = start
        self._state = start
        self._authority = start.stands(vkey)
        self._kept = kept_heads
        self._signatures = signatures
        self._whole = whole
        self._versions = Versions()
        self._head: TreeHead | None = None
        self._heads = 0
        self._entry_marks: list[Mark] = []
        self._head_marks = NoteMarks(skipped_heads)
        self._edges = edges
        self._on_growth = on_growth

    def run(
        self, entries: Iterator[EntryRow] | Iterator[bytes], heads: Iterator[HeadRow]
    ) -> Segment:
        self._check_kept(_Growth(self._start, []), after=self._start.size - 1)
        head = next(heads, None)
        chunk: Iterator[Any] = iter(entries)
        while rows := list(islice(chunk, _CHUNK)):
            before = self._state.size
            growth = self._check_entries(rows)
            self._on_growth(growth.completed)
            while head is not None and _is_within(head[0], self._state.size):
                self._check_head(head, growth)
                head = next(heads, None)
            self._check_kept(growth, after=before)
            advanced("verifying", self._state.size - self._start.size)
        self._check_end(head)
        return Segment(
            start=self._start,
            end=self._state,
            head=self._head,
            heads=self._heads,
            versions=self._versions,
            vkey=self._vkey,
            last_jump=self._authority.last_jump,
            entry_marks=self._entry_marks,
            head_marks=self._head_marks.marks(),
        )

    def _check_entries(self, rows: Sequence[EntryRow] | Sequence[bytes]) -> "_Growth":
        state, count = self._state, len(rows)
        columns = None if isinstance(rows[0], bytes) else tuple(zip(*rows, strict=True))
        entries: Sequence[Any] = rows if columns is None else columns[4]
        lengths = np.fromiter(map(len, entries), np.int64, count)
        _hold(int(lengths.min()) >= _SHORTEST, int(lengths.max()) <= _LONGEST)
        data = np.frombuffer(b"".join(entries), np.uint8)
        starts = np.cumsum(lengths) - lengths
        fixed = sliding_window_view(data, _FIXED.itemsize)[starts].view(_FIXED).reshape(count)
        hashes = [_sha256(b"\x00" + entry).digest() for entry in entries]

        # "Entry": the fixed fields. What is 2^63 or more turns negative, and fits nowhere.
        places = np.arange(state.size, state.size + count)
        times = fixed["time"].astype(np.int64)
        numbers = fixed["stream_version"].astype(np.int64)
        _hold(
            bool((fixed["format"] == 1).all()),
            np.array_equal(fixed["index"].astype(np.int64), places),
            int(times[0]) >= state.time_ns,
            bool((times[1:] >= times[:-1]).all()),
            bool((numbers >= 0).all()),
            fixed["previous"].tobytes() == b"".join([state.last_hash, *hashes[:-1]]),
        )
        authors = fixed["author_length"].astype(np.int64)
        names = _names(data, starts, lengths, authors)
        if columns is None:
            streams: Sequence[bytes] = fixed["stream_id"].tolist()
            versions: Sequence[int] = numbers.tolist()
            names.verify_text()
        else:  # "Database": the columns repeat them.
            indexes, streams, versions, told, _ = columns
            _hold(
                np.array_equal(np.frombuffer(array("q", indexes), np.int64), places),
                set(map(len, streams)) == {16},
                fixed["stream_id"].tobytes() == b"".join(streams),
                np.array_equal(np.frombuffer(array("q", versions), np.int64), numbers),
            )
            names.verify_same(told)
        self._versions.add(streams, versions)
        key_entries = list(state.authority)
        for at in _chosen(authors, streams, self._authority.stream_id.bytes):
            entry = parse_entry(entries[at], index=state.size + at)
            self._authority.apply(entry)
            if decides_keys(entry, self._authority.stream_id):
                key_entries.append(entries[at])

        growth = _Growth(state, hashes)
        self._state = State(
            size=state.size + count,
            last_hash=hashes[-1],
            time_ns=int(times[-1]),
            edge=growth.edge(state.size + count),
            authority=tuple(key_entries),
        )
        self._entry_marks.append((self._state.size, hashes[-1]))
        return growth

    def _check_head(self, row: HeadRow, growth: "_Growth") -> None:
        size, note, edge = row
        _hold(size > (self._head.size if self._head else self._start.size))
        head = open_head(note, authority=self._authority, size=size, signatures=self._signatures)
        own_edge = growth.edge(size)
        _hold(head.size == size, head.root == root_of(own_edge))
        _hold(not self._edges or edge == b"".join(own_edge))
        self._head = head
        self._heads += 1
        self._head_marks.add(note)

    def _check_kept(self, growth: "_Growth", *, after: int) -> None:
        for kept in self._kept:
            if after < kept.size <= self._state.size:
                open_tree_head(kept.note, vkey=self._authority.ledger_vkey_at(kept.size))
                _hold(kept.root == root_of(growth.edge(kept.size)))

    def _check_end(self, next_head: HeadRow | None) -> None:
        if self._head is not None and self._signatures == "newest":
            vkey = self._authority.ledger_vkey_at(self._head.size)
            open_tree_head(self._head.note, vkey=vkey)
        covered = self._head.size if self._head else self._start.size
        if self._whole:
            _hold(
                next_head is None,
                covered == self._state.size,
                all(kept.size <= covered for kept in self._kept),
            )


class _Growth:
    """A tree while leaves are added to it."""

    def __init__(self, state: State, leaves: list[bytes]) -> None:
        levels = (n for n in reversed(range(state.size.bit_length())) if state.size >> n & 1)
        self._before = dict(zip(levels, state.edge, strict=True))
        self._size = state.size
        self._nodes: list[list[bytes]] = []  # of each level, those that the leaves lie below
        self._first: list[int] = []  # of each level, the place of the first of these
        nodes, place = leaves, state.size
        while nodes:
            if place % 2:
                nodes = [self._before[len(self._nodes)], *nodes]
                place -= 1
            self._nodes.append(nodes)
            self._first.append(place)
            nodes = [
                _sha256(b"\x01" + left + right).digest()
                for left, right in zip(nodes[::2], nodes[1::2], strict=False)
            ]
            place //= 2

    def completed(self, level: int) -> Sequence[bytes]:
        """Return the nodes of a level that were not whole before the leaves."""
        if level >= len(self._nodes):
            return ()
        return self._nodes[level][(self._size >> level) - self._first[level] :]

    def edge(self, size: int) -> tuple[bytes, ...]:
        """Return the right edge at a size from that before the leaves to that after them."""
        return tuple(
            self._nodes[n][(size >> n) - 1 - self._first[n]]
            if n < len(self._nodes)
            else self._before[n]
            for n in reversed(range(size.bit_length()))
            if size >> n & 1
        )


@dataclass(frozen=True)
class _Names:
    """The names in some entries, one behind the other, and the length of each."""

    text: bytes
    lengths: Integers

    def verify_same(self, names: Sequence[str]) -> None:
        """Raise unless the names are these."""
        text = "".join(names)
        parts: Sequence[str | bytes] = names
        if not text.isascii():
            parts = [name.encode() for name in names]
        _hold(
            np.array_equal(np.fromiter(map(len, parts), np.int64, len(names)), self.lengths),
            self.text == text.encode(),
        )

    def verify_text(self) -> None:
        """Raise ValueError unless each is UTF-8."""
        if not self.text.isascii():
            for end, length in zip(np.cumsum(self.lengths), self.lengths, strict=True):
                self.text[end - length : end].decode()


def _names(data: Integers, starts: Integers, lengths: Integers, authors: Integers) -> _Names:
    """Return the names; raise unless the lengths of author, name and body add up."""
    _hold(bool((lengths >= _SHORTEST + authors).all()))
    name_at = starts + 75 + authors
    name_lengths = data[name_at - 1].astype(np.int64)
    _hold(bool((name_lengths > 0).all()))
    _hold(bool((lengths >= _SHORTEST + authors + name_lengths).all()))
    body_at = name_at + name_lengths
    body_lengths = data[body_at].astype(np.int64) * 256 + data[body_at + 1]
    _hold(np.array_equal(lengths, _SHORTEST + authors + name_lengths + body_lengths))
    before = np.cumsum(name_lengths) - name_lengths
    places = np.repeat(name_at - before, name_lengths) + np.arange(int(name_lengths.sum()))
    return _Names(data[places].tobytes(), name_lengths)


def _chosen(authors: Integers, streams: Sequence[bytes], authority: bytes) -> list[int]:
    """Return the places of the entries that have an author or may say which keys stand."""
    chosen = set(np.flatnonzero(authors).tolist())
    if authority in streams:
        chosen.update(at for at, stream in enumerate(streams) if stream == authority)
    return sorted(chosen)


def _is_within(head_size: object, size: int) -> bool:
    if type(head_size) is not int:
        raise MismatchError
    return head_size <= size


def _hold(*facts: bool) -> None:
    if not all(facts):
        raise MismatchError
