"""Requests and answers between a notary and its clients: the headers of frames, declared.

The order of the fields is that of the header's bytes.

Source: docs/reference/notary.md, "Frames" and "Requests".
Trust: input is hostile; what is refused raises MalformedError only.
I/O: none.
"""

from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from ledger.errors import MalformedError
from ledger.notary.wire import pack_frame, parse_frame
from ledger.recording.recorders import InOrder, Int, OfStream

PROTOCOL = 1


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
