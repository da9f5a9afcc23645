"""Requests and answers between a notary and its clients: frames, whose headers are declared.

    u32 length of the rest || u16 length of the header || header || payload

The header is a body as in the ledger's own entries (one strict msgpack map), in the order of the
fields; what is large travels behind it as it is: entries, each with its u16 length before it, or a
piece of a blob.

Source: docs/reference/notary.md, "Frames" and "Requests".
Trust: input is hostile; what is refused raises MalformedError only.
I/O: none.  Units: bytes.
"""

import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from ledger import errors
from ledger.bodies import decode_body, encode_body
from ledger.errors import EncodingError, LedgerError, MalformedError, StorageError
from ledger.recording.recorders import InOrder, Int, OfStream

PROTOCOL = 1
PREFIX = 4
MAX_FRAME = 4 << 20  # 4 MiB: 1,000 events of 4 KiB, or 64 of the largest
MAX_EVENTS = 1_000  # in one batch
MAX_HEADER = 8 << 10  # small, because decoding multiplies it

_ERRORS: dict[str, type[LedgerError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, LedgerError) and name != "VerificationError"
}


class Message(Struct, frozen=True, kw_only=True):
    """The header of a frame."""


class Request(Message, frozen=True, kw_only=True, tag_field="op", forbid_unknown_fields=True):
    """What a client asks for."""


class Insert(Request, frozen=True, tag="insert"):
    """Append the events in the payload; the answer's payload has their notification ids."""


class AddLine(Request, frozen=True, kw_only=True, tag="add_line"):
    """Add a signature line to the tree head of this size."""

    size: Int
    line: str


class Stream(OfStream, Request, frozen=True, kw_only=True, tag="stream"):
    """Return entries of one stream."""


class Notifications(InOrder, Request, frozen=True, kw_only=True, tag="notifications"):
    """Return entries in the ledger's order."""


class Newest(Request, frozen=True, tag="newest"):
    """Return the last notification id and the newest tree head."""


class Heads(Request, frozen=True, kw_only=True, tag="heads"):
    """Return the tree heads of sizes above `after`, up to `upto`."""

    after: Int
    upto: Int


class PutBlob(Request, frozen=True, kw_only=True, tag="put_blob"):
    """Store the payload as the next piece of a blob."""

    sha256: str
    size: Int  # of the whole
    offset: Int


class GetBlob(Request, frozen=True, kw_only=True, tag="get_blob"):
    """Return a piece of a blob."""

    sha256: str
    offset: Int


class Greeting(Message, frozen=True, kw_only=True):
    """What opens a connection: whose ledger this is, and what this user may do."""

    protocol: Int
    origin: str
    vkey: str
    uid: Int
    append: tuple[str, ...]
    roles: tuple[str, ...]


class Done(Message, frozen=True):
    """An answer without fields."""


class Page(Message, frozen=True, kw_only=True):
    """An answer whose payload has entries; `more` if it was full."""

    more: bool


class NewestFound(Message, frozen=True, kw_only=True):
    """The answer to Newest."""

    last: Int | None
    head: str | None


class HeadsPage(Page, frozen=True, kw_only=True):
    """An answer whose payload has tree heads; `known`: characters of the notes up to `after`."""

    known: Int


class Piece(Message, frozen=True, kw_only=True):
    """An answer whose payload is a piece of a blob of this size."""

    size: Int


_REQUESTS: dict[str, type[Request]] = {
    str(kind.__struct_config__.tag): kind for kind in Request.__subclasses__()
}
_WITH_PAYLOAD = (Insert, PutBlob)
M = TypeVar("M", bound=Message)


def pack_message(message: Message, payload: bytes = b"") -> bytes:
    """Return the frame of a request or an answer; raise EncodingError if it is too large."""
    return pack_frame(to_builtins(message, builtin_types=(bytes,)), payload)


def parse_request(data: bytes) -> tuple[Request, bytes]:
    """Return the request in a frame's bytes after the prefix, and its payload."""
    frame = parse_frame(data)
    name = frame.header.get("op")
    kind = _REQUESTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MalformedError("unknown request; is the notary an older version?")
    request = read_message(frame.header, kind)
    if frame.payload and kind not in _WITH_PAYLOAD:
        raise MalformedError(f"{name} has no payload")
    return request, frame.payload


def read_message(header: dict[str, Any], kind: type[M]) -> M:
    """Return a header as the message that it has to be."""
    try:
        return convert(header, kind)
    except ValidationError as e:
        raise MalformedError(f"not a valid {kind.__name__} message: {e}") from e


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
