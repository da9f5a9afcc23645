"""What each notary checks and answers alike: the server's desk, and the proxy of a worker.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: none.  Units: bytes.
"""

import struct
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ledger.blobs import SMALLEST, BlobStore, BlobWriter
from ledger.entries import NO_PREVIOUS, Event, join_sized, split_sized
from ledger.errors import (
    EncodingError,
    ForbiddenError,
    LedgerError,
    MalformedError,
    ReadOnlyError,
    StorageError,
)
from ledger.notary.messages import (
    MAX_EVENTS,
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
from ledger.verification.verified_entries import parse_entry

PAGE = 2 << 20  # of an answer: half of what a frame may have
_PIECE = 1 << 20  # of a blob in one answer
_MAX_BLOB = 4 << 30  # 4 GiB
_FREE = 1 << 30  # bytes of the disk that blobs leave for events


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


class _Upload(NamedTuple):
    uid: int
    announced: int  # bytes that it will have
    writer: BlobWriter


class Uploads:
    """The blobs that arrive in pieces, at most one over each connection, within users' quotas."""

    def __init__(
        self,
        store: BlobStore,
        *,
        stored: Callable[[int], int],
        free: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        """`stored` returns what a user's blobs take already, `free` what the disk has left."""
        self._store, self._stored, self._free = store, stored, free
        self._arriving: dict[Hashable, _Upload] = {}

    def take(self, connection: Hashable, user: User, request: PutBlob, piece: bytes) -> bool:
        """Take a piece of a blob; return whether it was the last one, which stores the blob."""
        if request.offset == 0:
            self._begin(connection, user, request.size)
        upload = self._arriving.get(connection)
        try:
            place = (request.offset, request.size)
            if upload is None or place != (upload.writer.size, upload.announced):
                raise MalformedError(
                    "the pieces of a blob must arrive in order; start the blob again"
                )
            _, announced, writer = upload
            if writer.size + len(piece) > announced or (not piece and announced):
                raise MalformedError("a piece of a blob is empty, or larger than announced")
            writer.add(piece)
            if writer.size < announced:
                return False
            writer.finish(expected=request.sha256)
        except LedgerError:
            self.end(connection)
            raise
        self.end(connection)
        return True

    def end(self, connection: Hashable) -> None:
        """Forget what a connection left unfinished."""
        if (upload := self._arriving.pop(connection, None)) is not None:
            upload.writer.close()

    def close(self) -> None:
        """Do so for all connections."""
        for connection in tuple(self._arriving):
            self.end(connection)

    def _begin(self, connection: Hashable, user: User, size: int) -> None:
        self.end(connection)
        if not user.append:
            raise ReadOnlyError(f"user {user.uid} may only read here; the notary's rules say so")
        if not 0 <= size <= _MAX_BLOB:
            raise EncodingError(f"the blob has {size:,} bytes; the limit is {_MAX_BLOB:,}")
        arriving = self._arriving.values()
        pending = sum(each.announced for each in arriving if each.uid == user.uid)
        if self._stored(user.uid) + pending + max(size, SMALLEST) > user.blob_bytes:
            raise ForbiddenError(
                f"this blob exceeds the limit of {user.blob_bytes:,} bytes of blobs for user "
                f"{user.uid}"
            )
        if self._free() - sum(each.announced for each in arriving) - size < _FREE:
            raise StorageError("the notary's disk is too full for blobs; free some space there")
        self._arriving[connection] = _Upload(user.uid, size, self._store.write())


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
