"""What each notary checks and answers alike: the server's desk, and the proxy of a worker.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: none.  Units: bytes.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Protocol

from ledger.entries import NO_PREVIOUS, Event, join_sized, split_sized
from ledger.errors import EncodingError, MalformedError
from ledger.notary.messages import (
    PROTOCOL,
    Done,
    GetBlob,
    Greeting,
    Page,
    Piece,
    PutBlob,
    pack_message,
)
from ledger.notary.rules import User
from ledger.notary.wire import MAX_EVENTS
from ledger.verification.verified_entries import parse_entry

__all__ = [
    "PAGE",
    "answer_piece",
    "appended",
    "greet",
    "page",
    "read_events",
    "verify_piece",
    "verify_size",
]

PAGE = 2 << 20  # of an answer: half of what a frame may have
_PIECE = 1 << 20  # of a blob in one answer
_MAX_BLOB = 4 << 30  # 4 GiB


class _Pieces(Protocol):
    def piece(self, digest: str, *, offset: int, limit: int) -> tuple[bytes, int]: ...


def greet(vkey: str, user: User) -> bytes:
    """Return the frame that opens a connection."""
    return pack_message(
        Greeting(
            protocol=PROTOCOL,
            origin=vkey.partition("+")[0],
            vkey=vkey,
            uid=user.uid,
            append=user.append,
            roles=user.roles,
        )
    )


def appended(ids: Sequence[int]) -> bytes:
    """Answer with the notification ids of a batch."""
    return pack_message(Done(), struct.pack(f">{len(ids)}Q", *ids))


def page(entries: Iterable[bytes], *, full: int | None = None) -> bytes:
    """Answer with as many entries as fit, and tell whether there may be more.

    There may also be more after `full` entries, where no more were read.
    """
    taken: list[bytes] = []
    size, more = 0, False
    for entry in entries:
        if size + len(entry) > PAGE:
            more = True
            break
        taken.append(entry)
        size += 2 + len(entry)
    return pack_message(Page(more=more or len(taken) == full), join_sized(taken))


def answer_piece(blobs: _Pieces, request: GetBlob) -> bytes:
    """Answer with a piece of a blob."""
    piece, size = blobs.piece(request.sha256, offset=request.offset, limit=_PIECE)
    return pack_message(Piece(size=size), piece)


def verify_size(size: int) -> None:
    """Raise EncodingError for a blob of a size that no notary takes."""
    if not 0 <= size <= _MAX_BLOB:
        raise EncodingError(f"the blob has {size:,} bytes; the limit is {_MAX_BLOB:,}")


def verify_piece(request: PutBlob, piece: bytes, *, arrived: int | None, announced: int) -> None:
    """Raise MalformedError unless the piece goes on where a blob has come to."""
    if arrived is None or (request.offset, request.size) != (arrived, announced):
        raise MalformedError("the pieces of a blob must arrive in order; start the blob again")
    if arrived + len(piece) > announced or (not piece and announced):
        raise MalformedError("a piece of a blob is empty, or larger than announced")


def read_events(payload: bytes) -> list[Event]:
    """Return the events of a batch: entries without index, time and previous hash."""
    entries = list(map(parse_entry, split_sized(payload, limit=MAX_EVENTS)))
    if not entries:
        raise MalformedError("a batch must have at least one event")
    for entry in entries:
        if (entry.index, entry.time_ns, entry.previous) != (0, 0, NO_PREVIOUS):
            raise MalformedError(
                "index, time and previous hash are set by the notary; leave them out"
            )
    return [
        (entry.stream_id.bytes, entry.stream_version, entry.name, entry.body, entry.author)
        for entry in entries
    ]
