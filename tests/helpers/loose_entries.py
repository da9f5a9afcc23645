"""Single entries, outside of any ledger: for tests that forge, replace and misplace them."""

from dataclasses import dataclass
from uuid import UUID

import msgspec

from ledger.entries import Author, encode_entries
from ledger.verification.verified_entries import parse_entry

__all__ = ["Entry", "decode_entry", "encode_entry"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What an entry says."""

    index: int
    stream_id: UUID
    stream_version: int
    time_ns: int
    previous: bytes
    name: str
    body: bytes
    author: Author | None = None


def encode_entry(entry: Entry) -> bytes:
    """Return the entry's bytes."""
    event = (entry.stream_id.bytes, entry.stream_version, entry.name, entry.body, entry.author)
    rows, _ = encode_entries(
        [event], index=entry.index, previous=entry.previous, time_ns=entry.time_ns
    )
    return rows[0][4]


def decode_entry(data: bytes) -> Entry:
    """Return what an entry says, to be changed and encoded again."""
    found = msgspec.structs.asdict(parse_entry(data))
    del found["entry_hash"]
    return Entry(**found)
