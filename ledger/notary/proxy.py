"""A notary's answers for one run, given in the process that has the ledger.

A worker on another machine has neither key nor ledger. What it would ask a notary arrives here, and
is appended by the owner. It may append only to the streams that it was given, and sign nothing.
What is answered is durable: a worker that is lost takes nothing with it.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: the recorder and the blobs that are passed in; a temporary file for a blob that arrives.
"""

import hashlib
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from ledger.blobs import SMALLEST, BlobStore
from ledger.database import explained
from ledger.entries import encode_entries
from ledger.errors import (
    BlobError,
    ForbiddenError,
    LedgerError,
    StorageError,
)
from ledger.mapper import EventRegistry
from ledger.notary.answers import (
    answer_piece,
    appended,
    greet,
    page,
    read_events,
    verify_piece,
    verify_size,
)
from ledger.notary.messages import (
    Done,
    GetBlob,
    Insert,
    Newest,
    NewestFound,
    Notifications,
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

_ENTRIES = 500  # of an answer: read at once


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
        return greet(self._vkey, self._user)

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
                return page(_entries(found), full=_ENTRIES)
            case Notifications(first=first, last=last, limit=limit, topics=topics):
                most = min(limit, _ENTRIES)
                found = self._recorder.entries_between(first, last, limit=most, topics=topics)
                return page(_entries(found), full=_ENTRIES)
            case Newest():
                return pack_message(
                    NewestFound(last=self._recorder.max_notification_id(), head=None)
                )
            case PutBlob():
                return self._put(connection, request, payload)
            case GetBlob():
                return answer_piece(self._blobs, request)
        raise ForbiddenError("a worker may not ask for that")

    def _insert(self, payload: bytes) -> bytes:
        events = []
        for stream, version, name, body, author in read_events(payload):
            if author is not None:
                raise ForbiddenError("a worker signs no events")
            if stream not in self._streams:
                raise ForbiddenError(f"stream {UUID(bytes=stream)} is none of this worker's run")
            if not self._user.may_append(name):
                raise ForbiddenError(f"a worker may not append {name!r} events")
            self._registry.verify_new(name, body, stream_version=version)
            events.append(StoredEvent(UUID(bytes=stream), version, name, body))
        return appended(self._recorder.insert_events(events) or ())

    def _put(self, connection: int, request: PutBlob, payload: bytes) -> bytes:
        """Take a piece of a blob; the last one stores it."""
        sha256, size = request.sha256, request.size
        if request.offset == 0:
            self.end(connection)
            verify_size(size)
            if self._stored + max(size, SMALLEST) > self._user.blob_bytes:
                raise ForbiddenError(
                    f"this blob exceeds the limit of {self._user.blob_bytes:,} bytes of one run"
                )
            self._uploads[connection] = _Upload(size)
        upload = self._uploads.get(connection)
        arrived, announced = (None, 0) if upload is None else (upload.size, upload.announced)
        try:
            verify_piece(request, payload, arrived=arrived, announced=announced)
            assert upload is not None, "verify_piece() refuses what has not begun"
            upload.add(payload)
            if upload.size < size:
                return pack_message(Done())
            if upload.hasher.hexdigest() != sha256:
                raise BlobError(f"the blob that was sent is not {sha256}; send it again")
            with explained(Path(upload.file.name)):
                upload.file.flush()
            self._blobs.put_file(Path(upload.file.name))
        except LedgerError:
            self.end(connection)
            raise
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


def _entries(found: Iterable[VerifiedEntry]) -> Iterator[bytes]:
    for entry in found:
        event = (entry.stream_id.bytes, entry.stream_version, entry.name, entry.body, entry.author)
        rows, _ = encode_entries(
            [event], index=entry.index, previous=entry.previous, time_ns=entry.time_ns
        )
        yield rows[0][4]
