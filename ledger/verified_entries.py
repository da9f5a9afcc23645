"""Entries as a verifier takes them apart.

Written from docs/reference/ledger-format.md and not from the writer (entries.py), with which
it shares nothing but the errors.

Trust: every argument but a public key is hostile; what is refused raises VerificationError.
I/O: none.  Units: nanoseconds since the POSIX epoch.
"""

import hashlib
import struct
from dataclasses import dataclass
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.errors import MalformedError, SignatureError

__all__ = ["AuthorBlock", "VerifiedEntry", "parse_entry", "verify_author"]

_LIMIT = 2**63  # integers stay below it


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


def verify_author(entry: VerifiedEntry, *, origin: str, public_key: bytes) -> None:
    """Raise SignatureError unless the entry's author signed it with this key (32 raw bytes).

    `origin` is that of the ledger in which the entry stands.
    """
    author = entry.author
    if author is None or author.key_id != hashlib.sha256(public_key).digest():
        raise SignatureError(f"entry {entry.index} does not name this key", index=entry.index)
    role, name = author.role.encode(), entry.name.encode()
    statement = (
        b"ledger/author/v2\n"
        + origin.encode()
        + b"\n"
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
