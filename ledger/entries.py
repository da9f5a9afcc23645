"""Entries: the bytes that are stored, hashed and linked.

Source: docs/reference/ledger-format.md, "Entry" and "Hashes".
I/O: none.  Units: nanoseconds since the POSIX epoch.
Not covered: decoding, which is the verifier's (verification/verified_entries.py) for every reader.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from ledger.errors import EncodingError, MalformedError
from ledger.schemes import PrivateKey, algorithm_of
from ledger.store import EntryColumns

FORMAT = 1
MAX_ENTRY_SIZE = 65_535  # bytes: the length prefix of a C2SP tlog-tiles entry is a u16
MAX_INTEGER = 2**63 - 1  # SQLite's integers are signed
NO_PREVIOUS = bytes(32)

_HEADER = struct.Struct(">BQ16sQQ32s")  # format, index, stream id, stream version, time, previous


@dataclass(frozen=True)
class Author:
    """Who vouches for an event: a role, the key's id and a signature over author_statement()."""

    role: str
    key_id: bytes  # (32,) SHA-256 of the raw public key
    signature: bytes  # (64,) Ed25519


Event = tuple[bytes, int, str, bytes, Author | None]
"""stream id, stream version, name, body, author: a plain tuple, for there are many."""


@dataclass(frozen=True)
class AuthorKey:
    """A private key, and the role in which it signs."""

    role: str
    key: PrivateKey = field(repr=False)

    def author(
        self, *, origin: str, stream_id: UUID, stream_version: int, name: str, body: bytes
    ) -> Author:
        """Sign one event of the ledger with this origin."""
        statement = author_statement(
            origin=origin,
            stream_id=stream_id,
            stream_version=stream_version,
            role=self.role,
            name=name,
            body=body,
        )
        algorithm = algorithm_of(self.key)
        key_id = hashlib.sha256(algorithm.public_bytes(self.key)).digest()
        return Author(self.role, key_id, algorithm.sign(self.key, statement))


def entry_hash(entry: bytes) -> bytes:
    """Return the hash that the next entry holds, which is also the RFC 6962 leaf hash."""
    return hashlib.sha256(b"\x00" + entry).digest()


def author_statement(
    *, origin: str, stream_id: UUID, stream_version: int, role: str, name: str, body: bytes
) -> bytes:
    """Return the bytes that an author signs."""
    return b"".join(
        (
            f"ledger/author/v2\n{origin}\n".encode(),
            stream_id.bytes,
            struct.pack(">Q", stream_version),
            _short_text("author role", role, limit=64),
            _short_text("event name", name, limit=255),
            hashlib.sha256(body).digest(),
        )
    )


def encode_entries(
    events: Iterable[Event], *, index: int, previous: bytes, time_ns: int
) -> tuple[list[EntryColumns], list[bytes]]:
    """Return events as rows of entries, each with the hash of the one before, and their hashes.

    Raises EncodingError for what the format cannot hold. Everything that costs time here is paid
    once for each event that is ever written.
    """
    _check_integer("index", index)
    _check_integer("time_ns", time_ns)
    if len(previous) != 32:
        raise EncodingError(f"the previous hash has {len(previous)} bytes, not 32")
    rows: list[EntryColumns] = []
    hashes: list[bytes] = []
    names: dict[str, bytes] = {}  # what stands before the body's length
    pack, sha256 = _HEADER.pack, hashlib.sha256
    for at, (stream_id, version, name, body, author) in enumerate(events, index):
        middle = names.get(name)
        if middle is None:
            middle = names[name] = b"\x00" + _short_text("event name", name, limit=255)
        if author is not None:
            block = _encode_author(author)
            middle = bytes((len(block),)) + block + middle[1:]
        size = len(body)
        if _HEADER.size + len(middle) + 2 + size > MAX_ENTRY_SIZE:
            raise EncodingError(
                f"event {name!r} would make an entry of "
                f"{_HEADER.size + len(middle) + 2 + size:,} bytes; the limit is "
                f"{MAX_ENTRY_SIZE:,}. Store the large part as a blob and refer to it by its "
                "SHA-256"
            )
        if not 0 <= version <= MAX_INTEGER:
            _check_integer("stream_version", version)
        header = pack(FORMAT, at, stream_id, version, time_ns, previous)
        entry = b"".join((header, middle, size.to_bytes(2, "big"), body))
        previous = sha256(b"\x00" + entry).digest()
        rows.append((at, stream_id, version, name, entry))
        hashes.append(previous)
    return rows, hashes


def encode_event(event: Event) -> bytes:
    """Return an event as an entry without what the recorder adds: index, time, previous hash."""
    return encode_entries([event], index=0, previous=NO_PREVIOUS, time_ns=0)[0][0][4]


def join_sized(parts: Iterable[bytes]) -> bytes:
    """Return byte strings one behind the other, each with its u16 length before it."""
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def split_sized(data: bytes, *, limit: int) -> list[bytes]:
    """Return what join_sized() was given, at most `limit` byte strings; raise MalformedError."""
    parts: list[bytes] = []
    at, size = 0, len(data)
    while at < size:
        begin = at + 2
        if begin > size or (at := begin + (data[at] << 8 | data[at + 1])) > size:
            raise MalformedError(f"part {len(parts)} is cut short")
        if len(parts) == limit:
            raise MalformedError(f"there are more than {limit:,} parts")
        parts.append(data[begin:at])
    return parts


def _check_integer(field: str, value: int) -> None:
    if not 0 <= value <= MAX_INTEGER:
        raise EncodingError(f"{field} is {value}, outside of 0 to 2^63 - 1")


def _short_text(what: str, text: str, *, limit: int) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as e:
        raise EncodingError(f"{what} {text!r} is not valid text: {e.reason}") from e
    if not 1 <= len(data) <= limit:
        raise EncodingError(f"{what} has {len(data)} bytes, not 1 to {limit}")
    return bytes((len(data),)) + data


def _encode_author(author: Author) -> bytes:
    if len(author.key_id) != 32 or len(author.signature) != 64:
        raise EncodingError("an author needs a key id of 32 bytes and a signature of 64")
    return _short_text("author role", author.role, limit=64) + author.key_id + author.signature
