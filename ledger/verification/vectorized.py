"""Verification in columns: what verify.py checks one by one, for hundreds of entries at a time.

It says only that entries are valid, or that something does not fit. Then verify.py looks at them
one by one, and names the first bad entry. So it may refuse too much, but it must never accept what
verify.py refuses. Both exist because this one takes 1.3 µs an entry, verify.py 4.1 µs (280 bytes
each, one core).

Written from docs/reference/ledger-format.md and not from the writer, with which it shares
nothing but the errors.

Trust: the rows are hostile; what holds is as good as the state that it began with.
I/O: none.  Memory: a few times the size of the entries.
"""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ledger.verification.authority import Authority
from ledger.verification.states import State, decides_keys
from ledger.verification.verified_entries import parse_entry

EntryRow = tuple[int, bytes, int, str, bytes]
"""idx, stream_id, stream_version, name, entry: a row of the entries table."""
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

_sha256 = hashlib.sha256


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Entries that hold, if those before them do, but for the versions of their streams."""

    entries: Sequence[bytes]
    streams: Sequence[bytes]
    versions: Sequence[int]
    growth: "Growth"
    end: State
    authority: Authority  # which keys stand at the end


def in_columns(rows: Sequence[EntryRow | bytes], *, start: State, authority: Authority) -> Chunk:
    """Return what the entries after a state come to; `authority` says which keys stand there.

    Entries are rows of the database, or entries alone, as a bundle has them. Raises
    VerificationError, TypeError, ValueError or OverflowError where something does not fit.
    """
    count = len(rows)
    columns: Any = None if isinstance(rows[0], bytes) else tuple(zip(*rows, strict=True))
    entries: Sequence[Any] = rows if columns is None else columns[4]
    lengths = np.fromiter(map(len, entries), np.int64, count)
    _hold(int(lengths.min()) >= _SHORTEST, int(lengths.max()) <= _LONGEST)
    data = np.frombuffer(b"".join(entries), np.uint8)
    starts = np.cumsum(lengths) - lengths
    fixed = sliding_window_view(data, _FIXED.itemsize)[starts].view(_FIXED).reshape(count)
    hashes = [_sha256(b"\x00" + entry).digest() for entry in entries]

    # "Entry": the fixed fields. What is 2^63 or more turns negative, and fits nowhere.
    places = np.arange(start.size, start.size + count)
    times = fixed["time"].astype(np.int64)
    numbers = fixed["stream_version"].astype(np.int64)
    _hold(
        bool((fixed["format"] == 1).all()),
        np.array_equal(fixed["index"].astype(np.int64), places),
        int(times[0]) >= start.time_ns,
        bool((times[1:] >= times[:-1]).all()),
        bool((numbers >= 0).all()),
        fixed["previous"].tobytes() == b"".join([start.last_hash, *hashes[:-1]]),
    )
    authors = fixed["author_length"].astype(np.int64)
    names, name_lengths = _names(data, starts, lengths, authors)
    if columns is None:
        streams: Sequence[bytes] = fixed["stream_id"].tolist()
        versions: Sequence[int] = numbers.tolist()
        _verify_text(names, name_lengths)
    else:  # "Database": the columns repeat them.
        indexes, streams, versions, told, _ = columns
        _hold(
            {*map(type, indexes), *map(type, versions)} == {int},  # a bool is a number, too
            np.array_equal(np.frombuffer(array("q", indexes), np.int64), places),
            set(map(len, streams)) == {16},
            fixed["stream_id"].tobytes() == b"".join(streams),
            np.array_equal(np.frombuffer(array("q", versions), np.int64), numbers),
            _are_same(names, name_lengths, told),
        )
    key_entries = list(start.authority)
    chosen = _chosen(authors, streams, authority.stream_id.bytes)
    authority = authority.copy() if chosen else authority
    for at in chosen:
        entry = parse_entry(entries[at], index=start.size + at)
        authority.apply(entry)
        if decides_keys(entry, authority.stream_id):
            key_entries.append(entries[at])

    growth = Growth(start, hashes)
    end = State(
        size=start.size + count,
        last_hash=hashes[-1],
        time_ns=int(times[-1]),
        edge=growth.edge(start.size + count),
        authority=tuple(key_entries),
    )
    return Chunk(
        entries=entries,
        streams=streams,
        versions=versions,
        growth=growth,
        end=end,
        authority=authority,
    )


class Growth:
    """A tree while leaves are added to it."""

    def __init__(self, start: State, leaves: list[bytes]) -> None:
        levels = (n for n in reversed(range(start.size.bit_length())) if start.size >> n & 1)
        self._before = dict(zip(levels, start.edge, strict=True))
        self.start = start
        self.leaves = leaves
        self._nodes: list[list[bytes]] = []  # of each level, those that the leaves lie below
        self._first: list[int] = []  # of each level, the place of the first of these
        nodes, place = leaves, start.size
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
        return self._nodes[level][(self.start.size >> level) - self._first[level] :]

    def edge(self, size: int) -> tuple[bytes, ...]:
        """Return the right edge at a size from that before the leaves to that after them."""
        return tuple(
            self._nodes[n][(size >> n) - 1 - self._first[n]]
            if n < len(self._nodes)
            else self._before[n]
            for n in reversed(range(size.bit_length()))
            if size >> n & 1
        )


def _names(
    data: Integers, starts: Integers, lengths: Integers, authors: Integers
) -> tuple[bytes, Integers]:
    """Return the names, one behind the other, and the length of each.

    Raises unless the lengths of author, name and body add up.
    """
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
    return data[places].tobytes(), name_lengths


def _are_same(names: bytes, lengths: Integers, told: Sequence[str]) -> bool:
    """Tell whether the names are these."""
    text = "".join(told)
    parts: Sequence[str | bytes] = told if text.isascii() else [name.encode() for name in told]
    found = np.fromiter(map(len, parts), np.int64, len(told))
    return np.array_equal(found, lengths) and names == text.encode()


def _verify_text(names: bytes, lengths: Integers) -> None:
    """Raise ValueError unless each name is UTF-8."""
    if not names.isascii():
        for end, length in zip(np.cumsum(lengths), lengths, strict=True):
            names[end - length : end].decode()


def _chosen(authors: Integers, streams: Sequence[bytes], authority: bytes) -> list[int]:
    """Return the places of the entries that have an author or may say which keys stand."""
    chosen = set(np.flatnonzero(authors).tolist())
    if authority in streams:
        chosen.update(at for at, stream in enumerate(streams) if stream == authority)
    return sorted(chosen)


def _hold(*facts: bool) -> None:
    if not all(facts):
        raise ValueError("something does not fit; verify.py knows what")
