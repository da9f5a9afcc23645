"""A notary's answers for one run, given in the process that has the ledger.

A worker on another machine has neither key nor ledger. What it would ask a notary arrives here, and
is appended by the owner. It may append only to the streams that it was given, and sign nothing.
What is answered is durable: a worker that is lost takes nothing with it.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: the recorder and the blobs that are passed in; a temporary file for a blob that arrives.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from uuid import UUID

from eventsourcing.persistence import StoredEvent
from msgspec.structs import replace

from ledger.blobs import SMALLEST, BlobStore
from ledger.database import explained
from ledger.entries import encode_entries
from ledger.errors import ForbiddenError, LedgerError
from ledger.mapper import EventRegistry
from ledger.notary.answers import (
    Uploads,
    answer_piece,
    appended,
    greet,
    page,
    read_events,
)
from ledger.notary.messages import (
    PREFIX,
    Done,
    GetBlob,
    Insert,
    Newest,
    NewestFound,
    Notifications,
    PutBlob,
    Request,
    Stream,
    error_frame,
    pack_message,
    parse_request,
)
from ledger.notary.remote_blobs import RemoteBlobs
from ledger.notary.rules import User
from ledger.recording.recorders import EntryRecorder
from ledger.verification.verified_entries import VerifiedEntry

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
        with explained(Path(tempfile.gettempdir())):
            self._folder = tempfile.TemporaryDirectory(prefix="proctor-blobs-")
        self._arrived = BlobStore(Path(self._folder.name))
        self._uploads = Uploads(self._arrived, stored=lambda _: self._stored)

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
        self._uploads.end(connection)

    def close(self) -> None:
        """Do so for all connections."""
        self._uploads.close()
        self._folder.cleanup()

    def _answer(self, connection: int, request: Request, payload: bytes) -> bytes:
        match request:
            case Insert():
                return self._insert(payload)
            case Stream() | Notifications():
                return self._page(request)
            case Newest():
                return pack_message(
                    NewestFound(last=self._recorder.max_notification_id(), head=None)
                )
            case PutBlob():
                if self._uploads.take(connection, self._user, request, payload):
                    arrived = self._arrived.path(request.sha256)
                    self._blobs.put_file(arrived)
                    arrived.unlink()
                    self._stored += max(request.size, SMALLEST)
                return pack_message(Done())
            case GetBlob():
                return answer_piece(self._blobs, request)
        raise ForbiddenError("a worker may not ask for that")

    def _page(self, request: Stream | Notifications) -> bytes:
        most = _ENTRIES if request.limit is None else min(request.limit, _ENTRIES)
        found = self._recorder.entries(replace(request, limit=most))
        return page(_entries(found), full=_ENTRIES)

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


def _entries(found: Iterable[VerifiedEntry]) -> Iterator[bytes]:
    for entry in found:
        event = (entry.stream_id.bytes, entry.stream_version, entry.name, entry.body, entry.author)
        rows, _ = encode_entries(
            [event], index=entry.index, previous=entry.previous, time_ns=entry.time_ns
        )
        yield rows[0][4]
