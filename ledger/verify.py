"""Verification of a ledger, from its bytes and a public key alone.

Written from docs/reference/ledger-format.md and not from the writer: it has its own
parsers and its own hashing, and shares nothing with the writer but the errors.

Source: the format page; RFC 6962 section 2.1; C2SP signed-note and tlog-checkpoint.
Trust: every argument but the vkey is hostile; nothing is good before verify_entries() returns.
I/O: none.  Memory: constant, beside one hash for each doubling of the ledger's size.
Not covered: the streams' version numbers (reader.py asks the database), meaning of bodies.
"""

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.errors import (
    ConsistencyError,
    KeptHeadError,
    LinkError,
    MalformedError,
    SignatureError,
    VerificationError,
)

__all__ = [
    "AuthorBlock",
    "EntryRow",
    "HeadRow",
    "TreeHead",
    "Verification",
    "VerifiedEntry",
    "open_tree_head",
    "parse_entry",
    "verify_author",
    "verify_entries",
]

EntryRow = tuple[int, bytes, int, str, bytes]
"""idx, stream_id, stream_version, name, entry: a row of the entries table."""
HeadRow = tuple[int, str, bytes]
"""size, note, edge: a row of the tree_heads table."""

_LIMIT = 2**63  # integers stay below it
_MAX_NOTE = 100_000  # characters; 16 post-quantum signatures fit
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class AuthorBlock:
    """Who vouches for an event; see verify_author()."""

    role: str
    key_id: bytes  # (32,)
    signature: bytes  # (64,)


@dataclass(frozen=True, kw_only=True)
class VerifiedEntry:
    """What an entry says."""

    index: int
    time_ns: int
    stream_id: UUID
    stream_version: int
    name: str
    body: bytes
    author: AuthorBlock | None
    previous: bytes  # (32,)
    entry_hash: bytes  # (32,)


@dataclass(frozen=True, kw_only=True)
class TreeHead:
    """What a signed note says: this origin's tree has, at this size, this root."""

    origin: str
    size: int
    root: bytes  # (32,)
    note: str


def verify_entries(
    entries: Iterable[EntryRow],
    heads: Iterable[HeadRow],
    *,
    vkey: str,
    kept_head: str | None = None,
) -> None:
    """Raise VerificationError unless this is the whole ledger that the key's owner signed.

    Entries and heads come in the order of index and size. A `kept_head` is a signed note
    that somebody kept: with it, truncation and rewriting by the key's owner are found too.
    Raises KeptHeadError if that is no tree head at all. One by another key fails verification:
    it may be all that is left of a ledger that was exchanged for this one.
    """
    Verification(vkey=vkey, kept_head=kept_head).run(entries, heads)


class Verification:
    """One pass over a ledger; each step states the section of the format that it enforces.

    After run() has returned, `size` and `head` say what was verified; after it has raised,
    how far it came.
    """

    def __init__(self, *, vkey: str, kept_head: str | None = None) -> None:
        self._vkey = vkey
        self._kept = None if kept_head is None else _open_kept_head(kept_head, vkey=vkey)
        self.size = 0
        self.head: TreeHead | None = None
        self._edge: list[bytes] = []
        self._edge_before: list[bytes] = []  # without the last entry
        self._hash = bytes(32)  # of the last entry
        self._hash_before = bytes(32)  # of the one before it
        self._time = 0

    def run(self, entries: Iterable[EntryRow], heads: Iterable[HeadRow]) -> None:
        """Do as verify_entries() does; a second run needs another object."""
        self._check_kept_head()
        pending = iter(heads)
        head = self._next_head(pending)
        # Each entry is looked at together with the one that follows: when a link is broken,
        # that one tells which of the two ends was changed.
        for row, following in pairwise(chain(entries, [None])):
            assert row is not None  # only the last one is, and it has no successor
            self._entry(row, following, head)
            if head is not None and head[0] == self.size:
                self._head(head, following)
                head = self._next_head(pending)
            self._check_kept_head()
        self._end(head)

    def _entry(self, row: EntryRow, following: EntryRow | None, head: HeadRow | None) -> None:
        at = self.size
        # "Database": entries are stored under their index, from 0, none left out.
        if type(row[0]) is int and row[0] < 0:
            raise ConsistencyError(f"a row has the negative index {row[0]}", index=row[0])
        if type(row[0]) is not int or row[0] != at:
            raise ConsistencyError(f"entry {at} is missing, {row[0]!r} is in its place", index=at)
        # "Entry": the bytes follow the format ...
        entry = parse_entry(row[4], index=at)
        if entry.index != at:
            if at and entry.index == at - 1 and entry.previous == self._hash_before:
                raise LinkError(f"entry {at - 1} was put in between two others", index=at - 1)
            raise LinkError(f"entry {at} says that it is entry {entry.index}", index=at)
        # ... and the columns repeat them.
        said = (entry.stream_id.bytes, entry.stream_version, entry.name)
        if said != (row[1], row[2], row[3]):
            raise ConsistencyError(f"entry {at} is not what its columns say", index=at)
        # "Hashes": it holds the hash of the one before.
        if entry.previous != self._hash:
            bad = self._broken_end(entry, following, head)
            raise LinkError(
                f"entry {bad} was changed: entry {at} does not hold the hash of entry {at - 1}",
                index=bad,
            )
        # "Entry": time does not run backwards.
        if entry.time_ns < self._time:
            raise ConsistencyError(f"entry {at} is older than the one before it", index=at)
        self._time = entry.time_ns
        self._hash_before, self._hash = self._hash, entry.entry_hash
        self._edge_before, self._edge = self._edge, _grown(self._edge, at, entry.entry_hash)
        self.size += 1

    def _head(self, row: HeadRow, following: EntryRow | None) -> None:
        size, note, edge = row
        last = size - 1
        # "Tree head": signed, and about this size and this tree.
        try:
            head = open_tree_head(note, vkey=self._vkey)
        except VerificationError as e:
            raise type(e)(f"tree head at size {size}: {e}", index=last) from e
        if head.size != size:
            raise ConsistencyError(f"tree head at size {size} says size {head.size}", index=last)
        if head.root != _root(self._edge):
            first = self.head.size if self.head else 0
            relinked = _continues(following, self._hash)
            raise ConsistencyError(
                f"entries {first} to {last} are not those that tree head {size} was signed for",
                index=first if relinked else last,
            )
        # "Database": the edge repeats the tree.
        if edge != b"".join(self._edge):
            raise ConsistencyError(f"tree head at size {size} has a wrong edge", index=last)
        self.head = head

    def _end(self, head: HeadRow | None) -> None:
        if head is not None:
            raise ConsistencyError(
                f"the ledger ends after {self.size} entries, but has a tree head of size {head[0]}",
                index=self.size,
            )
        covered = self.head.size if self.head else 0
        if covered != self.size:
            raise ConsistencyError(
                f"no tree head covers entry {covered} and what follows it", index=covered
            )
        if self._kept and self._kept.size > self.size:
            raise ConsistencyError(
                f"the kept tree head covers {self._kept.size} entries, the ledger has only "
                f"{self.size}: it was cut off",
                index=self.size,
            )

    def _next_head(self, heads: Iterator[HeadRow]) -> HeadRow | None:
        head = next(heads, None)
        if head is not None and (type(head[0]) is not int or head[0] <= self.size):
            raise ConsistencyError(
                f"a tree head of size {head[0]!r} stands behind that of size {self.size}",
                index=max(self.size - 1, 0),
            )
        return head

    def _check_kept_head(self) -> None:
        if self._kept and self._kept.size == self.size and self._kept.root != _root(self._edge):
            raise ConsistencyError(
                f"the first {self.size} entries are not those of the kept tree head: "
                "the ledger was rewritten"
            )

    def _broken_end(
        self, entry: VerifiedEntry, following: EntryRow | None, head: HeadRow | None
    ) -> int:
        """Tell which of two entries was changed, when the second does not hold the first's hash."""
        at = self.size
        if at == 0:
            return 0
        intact = _continues(following, entry.entry_hash)
        if intact is None and head is not None and head[0] == at + 1:
            # Nothing follows: ask the tree head, with the hash that this entry claims.
            edge = _grown(self._edge_before, at - 1, entry.previous)
            edge = _grown(edge, at, entry.entry_hash)
            try:
                intact = open_tree_head(head[1], vkey=self._vkey).root == _root(edge)
            except VerificationError:
                intact = False
        return at - 1 if intact else at


def parse_entry(data: bytes, *, index: int) -> VerifiedEntry:
    """Take an entry's bytes apart; `index` is where they lie, for the error message."""
    if not isinstance(data, bytes) or not 77 <= len(data) <= 65_535:
        raise MalformedError(
            f"entry {index} is not a byte string of a possible length", index=index
        )
    if data[0] != 1:
        raise MalformedError(f"entry {index} has format {data[0]}, not 1", index=index)
    own_index, stream_id, stream_version, time_ns, previous = struct.unpack(
        ">Q16sQQ32s", data[1:73]
    )
    if own_index >= _LIMIT or stream_version >= _LIMIT or time_ns >= _LIMIT:
        raise MalformedError(f"entry {index} has an integer of 2^63 or more", index=index)
    try:
        rest = _Bytes(data, at=73)
        author = _author(rest.take(rest.number(1)))
        name = rest.text(rest.number(1))
        body = rest.take(rest.number(2))
        rest.end()
    except (_CutShortError, UnicodeDecodeError) as e:
        raise MalformedError(f"entry {index} is malformed: {e}", index=index) from e
    return VerifiedEntry(
        index=own_index,
        time_ns=time_ns,
        stream_id=UUID(bytes=stream_id),
        stream_version=stream_version,
        name=name,
        body=body,
        author=author,
        previous=previous,
        entry_hash=hashlib.sha256(b"\x00" + data).digest(),
    )


def verify_author(entry: VerifiedEntry, *, public_key: bytes) -> None:
    """Raise SignatureError unless the entry's author signed it with this key (32 raw bytes)."""
    author = entry.author
    if author is None or author.key_id != hashlib.sha256(public_key).digest():
        raise SignatureError(f"entry {entry.index} does not name this key", index=entry.index)
    role, name = author.role.encode(), entry.name.encode()
    statement = (
        b"ledger/author/v1\n"
        + entry.stream_id.bytes
        + entry.stream_version.to_bytes(8, "big")
        + len(role).to_bytes(1, "big")
        + role
        + len(name).to_bytes(1, "big")
        + name
        + hashlib.sha256(entry.body).digest()
    )
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(author.signature, statement)
    except (InvalidSignature, ValueError) as e:
        raise SignatureError(
            f"entry {entry.index} was not signed by its author", index=entry.index
        ) from e


def open_tree_head(note: str, *, vkey: str) -> TreeHead:
    """Return what a signed note says; raise unless it is a tree head signed by this key."""
    name, key_id, public_key = _parse_vkey(vkey)
    text = _verified_text(note, name=name, key_id=key_id, public_key=public_key)
    lines = text.split("\n")
    if len(lines) != 4 or lines[0] != name or not _SIZE.fullmatch(lines[1]):
        raise MalformedError("the note is not a tree head of this ledger")
    root = _base64(lines[2])
    if len(root) != 32 or int(lines[1]) >= _LIMIT:
        raise MalformedError("the tree head's root or size is malformed")
    return TreeHead(origin=name, size=int(lines[1]), root=root, note=note)


def _open_kept_head(note: str, *, vkey: str) -> TreeHead:
    """Return what a kept head says; what is no tree head is the caller's mistake."""
    _parse_vkey(vkey)  # whose faults are not the kept head's
    try:
        return open_tree_head(note, vkey=vkey)
    except MalformedError as e:
        raise KeptHeadError(
            f"the kept tree head cannot be read: {e}; give the note just as it was copied out"
        ) from e
    except SignatureError as e:
        raise SignatureError(f"the kept tree head is not this ledger's: {e}") from e


def _verified_text(note: str, *, name: str, key_id: bytes, public_key: bytes) -> str:
    """Return a signed note's text, having checked the signature by this key."""
    if not isinstance(note, str) or len(note) > _MAX_NOTE:
        raise MalformedError("the note is not a text of a possible length")
    text, separator, signatures = note.rpartition("\n\n")
    text += "\n"
    if not separator or not signatures.endswith("\n") or re.search(r"[\x00-\x09\x0b-\x1f]", note):
        raise MalformedError("the note has no signatures, or control characters")
    lines = signatures[:-1].split("\n")
    if len(lines) > 16:
        raise MalformedError("the note has more than 16 signatures")
    found = []
    for line in lines:
        dash, signer, encoded, *more = [*line.split(" "), "", ""]
        signature = _base64(encoded)
        if dash != "\u2014" or not signer or any(more) or len(signature) < 5:
            raise MalformedError("the note has a malformed signature line")
        if signer == name and signature[:4] == key_id:
            found.append(signature[4:])
    if len(found) != 1:
        raise SignatureError(f"the note has {len(found)} signatures by {name}, not one")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(found[0], text.encode())
    except (InvalidSignature, ValueError) as e:  # not text, or no such point on the curve
        raise SignatureError(f"the signature by {name} does not fit the note") from e
    return text


def _parse_vkey(vkey: str) -> tuple[str, bytes, bytes]:
    name, _, rest = vkey.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        material = _base64(encoded)
        right_id = hashlib.sha256(f"{name}\n".encode() + material).digest()[:4]
    except (MalformedError, UnicodeEncodeError):
        material = right_id = b""
    if not name or re.search(r"\s", name) or material[:1] != b"\x01" or len(material) != 33:
        raise MalformedError("the vkey is not a C2SP verifier key for Ed25519; check the key file")
    if key_id != right_id.hex():
        raise MalformedError("the vkey's key id does not fit its key; check the key file")
    return name, right_id, material[1:]


def _base64(text: str) -> bytes:
    """Decode base64 in its only canonical form."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise MalformedError("base64 is malformed") from e
    if base64.b64encode(data).decode() != text:
        raise MalformedError("base64 is not canonical")
    return data


class _CutShortError(Exception):
    """A length that the bytes do not bear out."""


class _Bytes:
    """Reads a byte string from front to end and never past it."""

    def __init__(self, data: bytes, *, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise _CutShortError(f"it ends before byte {end}")
        part = self._data[self._at : end]
        self._at = end
        return part

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def text(self, length: int) -> str:
        if length == 0:
            raise _CutShortError("a text in it is empty")
        return self.take(length).decode("utf-8")

    def end(self) -> None:
        if self._at != len(self._data):
            raise _CutShortError("bytes follow its end")


def _author(block: bytes) -> AuthorBlock | None:
    if not block:
        return None
    rest = _Bytes(block, at=0)
    role_length = rest.number(1)
    if role_length > 64:
        raise _CutShortError("its author's role is too long")
    author = AuthorBlock(role=rest.text(role_length), key_id=rest.take(32), signature=rest.take(64))
    rest.end()
    return author


def _continues(row: EntryRow | None, entry_hash: bytes) -> bool | None:
    """Tell whether a row's entry holds this hash as its predecessor's; None if it cannot tell."""
    if row is None:
        return None
    try:
        return parse_entry(row[4], index=0).previous == entry_hash
    except MalformedError:
        return None


def _grown(edge: list[bytes], size: int, leaf: bytes) -> list[bytes]:
    """Return the right edge of the tree of `size` leaves after one more."""
    grown = [*edge, leaf]
    while size % 2:
        right = grown.pop()
        grown[-1] = hashlib.sha256(b"\x01" + grown[-1] + right).digest()
        size //= 2
    return grown


def _root(edge: list[bytes]) -> bytes:
    if not edge:
        return hashlib.sha256(b"").digest()
    root = edge[-1]
    for left in edge[-2::-1]:
        root = hashlib.sha256(b"\x01" + left + root).digest()
    return root
