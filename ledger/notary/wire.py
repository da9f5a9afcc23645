"""Frames between a notary and its clients.

    u32 length of the rest || u16 length of the header || header || payload

The header is a body as in the ledger's own entries (one strict msgpack map); what is large
travels behind it as it is: entries, each with its u16 length before it, or a piece of a blob.

Source: docs/reference/notary.md, "Frames".
Trust: input is hostile; what is refused raises MalformedError only.
I/O: none.  Units: bytes.
"""

import struct
from dataclasses import dataclass
from typing import Any

from ledger import errors
from ledger.bodies import decode_body, encode_body
from ledger.errors import EncodingError, LedgerError, MalformedError, StorageError

PREFIX = 4
MAX_FRAME = 4 << 20  # 4 MiB: 1,000 events of 4 KiB, or 64 of the largest
MAX_EVENTS = 1_000  # in one batch
MAX_HEADER = 8 << 10  # small, because decoding multiplies it

_ERRORS: dict[str, type[LedgerError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, LedgerError) and name != "VerificationError"
}


@dataclass(frozen=True)
class Frame:
    """One request or one answer."""

    header: dict[str, Any]
    payload: bytes = b""


def pack_frame(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return a frame's bytes, prefix included; raise EncodingError if they are too many."""
    head = encode_body(header)
    length = 2 + len(head) + len(payload)
    if len(head) > MAX_HEADER or length > MAX_FRAME:
        raise EncodingError(
            f"a request of {length:,} bytes is more than a notary accepts at once "
            f"({MAX_FRAME:,}); append fewer events, or ask for fewer names, at a time"
        )
    return struct.pack(">IH", length, len(head)) + head + payload


def frame_length(prefix: bytes) -> int:
    """Return how many bytes follow the prefix."""
    (length,) = struct.unpack(">I", prefix)
    if not 3 <= length <= MAX_FRAME:
        raise MalformedError(f"a frame of {length:,} bytes is not between 3 and {MAX_FRAME:,}")
    return int(length)


def parse_frame(data: bytes) -> Frame:
    """Return what the bytes after the prefix say."""
    size = int.from_bytes(data[:2], "big")
    if len(data) < 2 + size or size > MAX_HEADER:
        raise MalformedError("a frame's header is too long")
    return Frame(decode_body(data[2 : 2 + size]), data[2 + size :])


def error_frame(error: LedgerError) -> bytes:
    """Return the answer that reports an error."""
    kind = type(error).__name__
    return pack_frame(
        {
            "error": kind if kind in _ERRORS else "StorageError",
            "message": str(error).encode(errors="replace")[:4_000].decode(errors="replace"),
            "index": getattr(error, "index", None),
        }
    )


def raise_error(header: dict[str, Any]) -> None:
    """Raise the error that an answer reports, if it reports one."""
    if "error" not in header:
        return
    kind, index = _ERRORS.get(str(header["error"]), StorageError), header.get("index")
    error = kind(str(header.get("message")))
    if isinstance(error, errors.VerificationError) and isinstance(index, int):
        error.index = index
    raise error
