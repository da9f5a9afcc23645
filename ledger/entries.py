"""Entries: the bytes that are stored, hashed and linked.

Source: docs/reference/ledger-format.md, "Entry" and "Hashes".
Trust: decode_entry() takes hostile bytes and raises MalformedError only.
I/O: none.  Units: nanoseconds since the POSIX epoch.
Not covered: verification, which has a parser of its own (verified_entries.py).
"""

import hashlib
import struct
from dataclasses import dataclass, field
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.errors import EncodingError, MalformedError

__all__ = [
    "MAX_ENTRY_SIZE",
    "NO_PREVIOUS",
    "Author",
    "AuthorKey",
    "Entry",
    "EntryChain",
    "author_statement",
    "decode_entry",
    "encode_entry",
    "entry_hash",
]

FORMAT = 1
MAX_ENTRY_SIZE = 65_535  # bytes: the length prefix of a C2SP tlog-tiles entry is a u16
MAX_INTEGER = 2**63 - 1  # SQLite's integers are signed
NO_PREVIOUS = bytes(32)

_HEADER = struct.Struct(">BQ16sQQ32s")  # format, index, stream id, stream version, time, previous
_KEY_AND_SIGNATURE = 32 + 64  # bytes


@dataclass(frozen=True)
class Author:
    """Who vouches for an event: a role, the key's id and a signature over author_statement()."""

    role: str
    key_id: bytes  # (32,) SHA-256 of the raw public key
    signature: bytes  # (64,) Ed25519


@dataclass(frozen=True)
class AuthorKey:
    """A private key, and the role in which it signs."""

    role: str
    key: Ed25519PrivateKey = field(repr=False)

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
        public_key = self.key.public_key().public_bytes_raw()
        return Author(self.role, hashlib.sha256(public_key).digest(), self.key.sign(statement))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One event in its place: see the format page for the fields."""

    index: int
    stream_id: UUID
    stream_version: int
    time_ns: int
    previous: bytes  # (32,) entry hash of the entry before
    name: str
    body: bytes
    author: Author | None = None


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


class EntryChain:
    """Encodes one entry after another, each with the hash of the one before.

    `hashes` are those of the entries so far. Raises EncodingError for what the format cannot
    hold. Everything that costs time here is paid once for each event that is ever written.
    """

    def __init__(self, *, index: int, previous: bytes, time_ns: int) -> None:
        _check_integer("index", index)
        _check_integer("time_ns", time_ns)
        if len(previous) != 32:
            raise EncodingError(f"the previous hash has {len(previous)} bytes, not 32")
        self.hashes: list[bytes] = []
        self._index = index
        self._previous = previous
        self._time_ns = time_ns
        self._names: dict[str, bytes] = {}  # what stands before the body's length

    def append(
        self, stream_id: bytes, version: int, name: str, body: bytes, author: Author | None = None
    ) -> bytes:
        """Return the next entry's bytes."""
        middle = self._names.get(name)
        if middle is None:
            middle = self._names[name] = b"\x00" + _short_text("event name", name, limit=255)
        if author is not None:
            block = _encode_author(author)
            middle = bytes((len(block),)) + block + middle[1:]
        size = _HEADER.size + len(middle) + 2 + len(body)
        if size > MAX_ENTRY_SIZE:
            raise EncodingError(
                f"event {name!r} would make an entry of {size:,} bytes; the limit is "
                f"{MAX_ENTRY_SIZE:,}. Store the large part as a blob and refer to it by its "
                "SHA-256"
            )
        if not 0 <= version <= MAX_INTEGER:
            _check_integer("stream_version", version)
        entry = b"".join(
            (
                _HEADER.pack(
                    FORMAT, self._index, stream_id, version, self._time_ns, self._previous
                ),
                middle,
                len(body).to_bytes(2, "big"),
                body,
            )
        )
        self._index += 1
        self._previous = entry_hash(entry)
        self.hashes.append(self._previous)
        return entry


def encode_entry(entry: Entry) -> bytes:
    """Return the entry's bytes; raise EncodingError for what the format cannot hold."""
    chain = EntryChain(index=entry.index, previous=entry.previous, time_ns=entry.time_ns)
    return chain.append(
        entry.stream_id.bytes, entry.stream_version, entry.name, entry.body, entry.author
    )


def decode_entry(data: bytes) -> Entry:
    """Return the entry that these bytes hold; raise MalformedError if they are not exactly one."""
    try:
        return _decode_entry(data)
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise MalformedError(f"entry of {len(data):,} bytes is cut short or not text: {e}") from e


def _decode_entry(data: bytes) -> Entry:
    if len(data) > MAX_ENTRY_SIZE:
        raise MalformedError(f"entry has {len(data):,} bytes; the limit is {MAX_ENTRY_SIZE:,}")
    version, index, stream_id, stream_version, time_ns, previous = _HEADER.unpack_from(data)
    if version != FORMAT:
        raise MalformedError(
            f"entry has format {version}, but this program supports format {FORMAT}"
        )
    if max(index, stream_version, time_ns) > MAX_INTEGER:
        raise MalformedError("entry has an integer above 2^63 - 1")
    at = _HEADER.size
    author_end = at + 1 + data[at]
    author = _decode_author(data[at + 1 : author_end]) if data[at] else None
    name_end = author_end + 1 + data[author_end]
    name = data[author_end + 1 : name_end].decode()
    (body_size,) = struct.unpack_from(">H", data, name_end)
    body = data[name_end + 2 :]
    if not name or len(body) != body_size:
        raise MalformedError(f"entry's lengths do not add up to its {len(data):,} bytes")
    return Entry(
        index=index,
        stream_id=UUID(bytes=stream_id),
        stream_version=stream_version,
        time_ns=time_ns,
        previous=previous,
        name=name,
        body=body,
        author=author,
    )


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


def _decode_author(block: bytes) -> Author:
    role_size = block[0]
    if not 1 <= role_size <= 64 or len(block) != 1 + role_size + _KEY_AND_SIGNATURE:
        raise MalformedError(f"author block has {len(block)} bytes for a role of {role_size}")
    key_at = 1 + role_size
    return Author(
        role=block[1:key_at].decode(),
        key_id=block[key_at : key_at + 32],
        signature=block[key_at + 32 :],
    )
