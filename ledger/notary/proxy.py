"""A notary's answers for one run, given in the process that has the ledger.

A worker on another machine has neither key nor ledger. What it would ask a notary arrives here, and
is appended by the owner. It may append only to the streams that it was given, and sign nothing.
What is answered is durable: a worker that is lost takes nothing with it.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: the recorder and the blobs that are passed in; a temporary file for a blob that arrives.
"""

import hashlib
import struct
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import IO

from ledger.blobs import SMALLEST, BlobStore
from ledger.database import explained
from ledger.entries import EntryChain, join_sized
from ledger.errors import (
    BlobError,
    EncodingError,
    ForbiddenError,
    LedgerError,
    MalformedError,
    StorageError,
)
from ledger.mapper import EventRegistry
from ledger.notary.desk import MAX_BLOB, read_events
from ledger.notary.messages import (
    PROTOCOL,
    Done,
    GetBlob,
    Greeting,
    Insert,
    Newest,
    NewestFound,
    Notifications,
    Page,
    Piece,
    PutBlob,
    Request,
    Stream,
    pack_message,
    parse_request,
)
from ledger.notary.remote_blobs import RemoteBlobs
from ledger.notary.rules import User
from ledger.notary.wire import PREFIX, error_frame
from ledger.recording.recorders import EntryRecorder
from ledger.verification.verified_entries import VerifiedEntry

__all__ = ["Proxy"]

_PAGE = 2 << 20  # bytes of an answer: half of what a frame may have
_ENTRIES = 500  # of an answer: read at once
_PIECE = 1 << 20  # bytes of a blob in one answer


class Proxy:
    """Answers the frames of one worker; close() forgets what it left unfinished."""

    def __init__(
        self,
        recorder: EntryRecorder,
        blobs: BlobStore | RemoteBlobs,
        *,
        vkey: str,
        user: User,
        streams: Collection[bytes],
        registry: EventRegistry,
    ) -> None:
        self._recorder = recorder
        self._blobs = blobs
        self._vkey = vkey
        self._user = user
        self._streams = frozenset(streams)
        self._registry = registry
        self._stored = 0  # bytes of the blobs that the worker has put
        self._uploads: dict[int, _Upload] = {}  # by connection

    def greeting(self) -> bytes:
        """Return the frame that opens a connection."""
        return pack_message(
            Greeting(
                protocol=PROTOCOL,
                origin=self._vkey.partition("+")[0],
                vkey=self._vkey,
                uid=self._user.uid,
                append=self._user.append,
                roles=(),
            )
        )

    def answer(self, connection: int, frame: bytes) -> bytes:
        """Return the answer to a frame, prefix included; raises nothing that a request causes."""
        try:
            request, payload = parse_request(frame[PREFIX:])
            return self._answer(connection, request, payload)
        except LedgerError as error:
            return error_frame(error)

    def end(self, connection: int) -> None:
        """Forget what a connection left unfinished."""
        if (upload := self._uploads.pop(connection, None)) is not None:
            upload.file.close()

    def close(self) -> None:
        """Do so for all connections."""
        for connection in tuple(self._uploads):
            self.end(connection)

    def _answer(self, connection: int, request: Request, payload: bytes) -> bytes:
        match request:
            case Insert():
                return self._insert(payload)
            case Stream(stream=stream, gt=gt, lte=lte, desc=desc, limit=limit):
                most = _ENTRIES if limit is None else min(limit, _ENTRIES)
                found = self._recorder.stream_entries(stream, gt=gt, lte=lte, desc=desc, limit=most)
                return _page(found, limit=most)
            case Notifications(first=first, last=last, limit=limit, topics=topics):
                most = min(limit, _ENTRIES)
                found = self._recorder.entries_between(first, last, limit=most, topics=topics)
                return _page(found, limit=most)
            case Newest():
                return pack_message(
                    NewestFound(last=self._recorder.max_notification_id(), head=None)
                )
            case PutBlob():
                return self._put(connection, request, payload)
            case GetBlob(sha256=digest, offset=offset):
                piece, size = self._blobs.piece(digest, offset=offset, limit=_PIECE)
                return pack_message(Piece(size=size), piece)
        raise ForbiddenError("a worker may not ask for that")

    def _insert(self, payload: bytes) -> bytes:
        events, authors = read_events(payload)
        if any(author is not None for author in authors):
            raise ForbiddenError("a worker signs no events")
        for event in events:
            if event.originator_id.bytes not in self._streams:  # type: ignore[union-attr]
                raise ForbiddenError(f"stream {event.originator_id} is none of this worker's run")
            if not self._user.may_append(event.topic):
                raise ForbiddenError(f"a worker may not append {event.topic!r} events")
            self._registry.verify_new(
                event.topic, event.state, stream_version=event.originator_version
            )
        ids = self._recorder.insert_events(events) or ()
        return pack_message(Done(), struct.pack(f">{len(ids)}Q", *ids))

    def _put(self, connection: int, request: PutBlob, payload: bytes) -> bytes:
        """Take a piece of a blob; the last one stores it."""
        sha256, size, offset = request.sha256, request.size, request.offset
        if offset == 0:
            self.end(connection)
            if not 0 <= size <= MAX_BLOB:
                raise EncodingError(f"the blob has {size:,} bytes; the limit is {MAX_BLOB:,}")
            if self._stored + max(size, SMALLEST) > self._user.blob_bytes:
                raise ForbiddenError(
                    f"this blob exceeds the limit of {self._user.blob_bytes:,} bytes of one run"
                )
            self._uploads[connection] = _Upload(size)
        upload = self._uploads.get(connection)
        if upload is None or (offset, size) != (upload.size, upload.announced):
            raise MalformedError("the pieces of a blob must arrive in order; start the blob again")
        if offset + len(payload) > size or (not payload and size):
            self.end(connection)
            raise MalformedError("a piece of a blob is empty, or larger than announced")
        upload.add(payload)
        if upload.size == size:
            if upload.hasher.hexdigest() != sha256:
                self.end(connection)
                raise BlobError(f"the blob that was sent is not {sha256}; send it again")
            with explained(Path(upload.file.name)):
                upload.file.flush()
            self._blobs.put_file(Path(upload.file.name))
            self._stored += max(size, SMALLEST)
            self.end(connection)
        return pack_message(Done())


class _Upload:
    """A blob that arrives."""

    def __init__(self, announced: int) -> None:
        self.announced = announced
        self.size = 0
        self.hasher = hashlib.sha256()
        try:
            self.file: IO[bytes] = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed by end()
        except OSError as error:
            raise StorageError(f"a blob cannot be received: {error}") from error

    def add(self, piece: bytes) -> None:
        """Take one more piece."""
        self.hasher.update(piece)
        with explained(Path(self.file.name)):
            self.file.write(piece)
        self.size += len(piece)


def _page(found: Iterable[VerifiedEntry], *, limit: int) -> bytes:
    """Answer with as many entries as fit, and tell whether there may be more."""
    entries: list[bytes] = []
    size, more = 0, False
    for entry in found:
        chain = EntryChain(index=entry.index, previous=entry.previous, time_ns=entry.time_ns)
        data = chain.append(
            entry.stream_id.bytes, entry.stream_version, entry.name, entry.body, entry.author
        )
        if size + len(data) > _PAGE:
            more = True
            break
        entries.append(data)
        size += 2 + len(data)
    return pack_message(Page(more=more or len(entries) == limit == _ENTRIES), join_sized(entries))
