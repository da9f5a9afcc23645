"""The decoder of entries, for verifiers and all other readers.

Written from docs/reference/ledger-format.md and not from the encoder (entries.py), with which it
shares nothing but the record of an author and the table of signature schemes.

Trust: every argument but a public key is hostile; what is refused raises VerificationError.
I/O: none.  Units: nanoseconds since the POSIX epoch.
"""

import hashlib
import struct
from collections.abc import Container
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidSignature

from ledger.entries import Author
from ledger.errors import MalformedError, SignatureError
from ledger.schemes import algorithm_of

_LIMIT = 2**63  # integers stay below it
_ROLE = 64  # bytes of a role, at most
_HEAD = struct.Struct(">BQ16sQQ32s")


class VerifiedEntry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What an entry says."""

    index: int
    time_ns: int
    stream_id: UUID
    stream_version: int
    name: str
    body: bytes
    author: Author | None
    previous: bytes  # (32,)
    entry_hash: bytes  # (32,)


def parse_entry(data: bytes, *, index: int | None = None) -> VerifiedEntry:
    """Take an entry's bytes apart; `index` is where they lie, if known, for the error message."""
    parts = split_entry(data, index=index)
    return VerifiedEntry(
        index=parts[0],
        time_ns=parts[3],
        stream_id=UUID(bytes=parts[1]),
        stream_version=parts[2],
        name=parts[6],
        body=parts[7],
        author=_author(parts[5], index=index),
        previous=parts[4],
        entry_hash=hashlib.sha256(b"\x00" + data).digest(),
    )


def split_entry(
    data: bytes, *, index: int | None = None
) -> tuple[int, bytes, int, int, bytes, bytes, str, bytes]:
    """Return an entry's index, stream, version, time, previous hash, author block, name and body.

    The author block is as it stands. Raises MalformedError as parse_entry() does. This is for
    columns: it takes 0.9 µs where parse_entry(), with its UUID, hash and object, takes 3.5 µs.
    """
    if not isinstance(data, bytes) or not 77 <= len(data) <= 65_535:
        raise MalformedError(
            f"{_where(index)} is not a byte string of a possible length", index=index
        )
    version, own_index, stream_id, stream_version, time_ns, previous = _HEAD.unpack_from(data)
    if version != 1:
        raise MalformedError(f"{_where(index)} has format {version}, not 1", index=index)
    if own_index >= _LIMIT or stream_version >= _LIMIT or time_ns >= _LIMIT:
        raise MalformedError(f"{_where(index)} has an integer of 2^63 or more", index=index)
    try:
        author_end = 74 + data[73]
        name_end = author_end + 1 + data[author_end]
        body_end = name_end + 2 + (data[name_end] << 8 | data[name_end + 1])
        name = data[author_end + 1 : name_end].decode("utf-8")
    except (IndexError, UnicodeDecodeError) as e:
        raise MalformedError(f"{_where(index)} is malformed: {e}", index=index) from e
    if body_end != len(data) or not name:
        raise MalformedError(
            f"{_where(index)} is malformed: the lengths of its parts do not add up, or it has no "
            "name",
            index=index,
        )
    author, body = data[74:author_end], data[name_end + 2 :]
    return own_index, stream_id, stream_version, time_ns, previous, author, name, body


def row_of(data: bytes) -> tuple[int, bytes, int, str, bytes]:
    """Return an entry as a row of the entries table; raises as split_entry() does."""
    index, stream, version, _, _, _, name, _ = split_entry(data)
    return index, stream, version, name, data


def is_of(data: bytes, streams: Container[bytes], names: Container[bytes]) -> bool:
    """Tell whether a verified entry is in one of these streams, or has one of these names.

    A tenth of the time of taking it apart.
    """
    if data[9:25] in streams:
        return True
    end = 74 + data[73]
    return data[end + 1 : end + 1 + data[end]] in names


def verify_author(entry: VerifiedEntry, *, origin: str, public_key: bytes) -> None:
    """Raise SignatureError unless the entry's author signed it with this key, as in VerifierKey.

    `origin` is that of the ledger in which the entry stands.
    """
    author = entry.author
    if author is None or author.key_id != hashlib.sha256(public_key).digest():
        raise SignatureError(f"entry {entry.index} names a different key", index=entry.index)
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
        algorithm_of(public_key).verify(public_key, author.signature, statement)
    except (InvalidSignature, ValueError) as e:
        raise SignatureError(
            f"entry {entry.index}: the author's signature is invalid", index=entry.index
        ) from e


def _where(index: int | None) -> str:
    return "the entry" if index is None else f"entry {index}"


def _author(block: bytes, *, index: int | None) -> Author | None:
    if not block:
        return None
    length = block[0]
    if length == 0 or length > _ROLE or len(block) != 1 + length + 96:
        raise MalformedError(f"{_where(index)} is malformed: its author block", index=index)
    try:
        role = block[1 : 1 + length].decode("utf-8")
    except UnicodeDecodeError as e:
        raise MalformedError(f"{_where(index)} is malformed: {e}", index=index) from e
    return Author(role=role, key_id=block[1 + length :][:32], signature=block[-64:])
