"""Carries out one request of one user at a notary. It knows users and events, not sockets.

Nothing that a client sends is run, imported or used as a path: names of events are compared with
the rules, streams are 16 bytes, blobs are named by 64 hexadecimal digits that are checked.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: the ledger's directory.  Units: bytes; notification ids from 1.
"""

import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from ledger.blobs import SMALLEST, BlobStore, BlobWriter
from ledger.database import Database
from ledger.entries import NO_PREVIOUS, Author, join_sized, split_sized
from ledger.errors import (
    EncodingError,
    ForbiddenError,
    LedgerError,
    MalformedError,
    ReadOnlyError,
    StorageError,
)
from ledger.mapper import EventRegistry
from ledger.notary.messages import (
    PROTOCOL,
    AddLine,
    Done,
    GetBlob,
    Greeting,
    Heads,
    HeadsPage,
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
)
from ledger.notary.rules import User
from ledger.notary.state import NotaryState
from ledger.notary.wire import MAX_EVENTS
from ledger.paths import LedgerPaths, is_served
from ledger.recorder import STREAM_DOWN, STREAM_UP, SignedRecorder, select_entries
from ledger.recording.opening import open_ledger
from ledger.verification.authority import authority_stream
from ledger.verification.verified_entries import parse_entry

__all__ = ["MAX_BLOB", "WRITES", "ClientConnection", "Desk", "read_events"]

WRITES = (Insert, AddLine)  # what takes the ledger's write lock
MAX_BLOB = 4 << 30  # 4 GiB
_PAGE = 2 << 20  # bytes of an answer: half of what a frame may have
_PIECE = 1 << 20  # bytes of a blob in one answer
_FREE = 1 << 30  # bytes of the disk that blobs leave for events

_HEADS = "SELECT size, note, edge FROM tree_heads WHERE size > ? AND size <= ? ORDER BY size"


@dataclass
class ClientConnection:
    """One connection of a user, and the blob that arrives over it."""

    user: User
    upload: BlobWriter | None = None
    announced: int = 0  # bytes that the upload will have


class Desk:
    """Answers requests; those of WRITES from one thread, all others from another."""

    def __init__(
        self, paths: LedgerPaths, *, passphrase: bytes | None, registry: EventRegistry | None = None
    ) -> None:
        """Open a ledger; with a registry, take only events that its readers can read."""
        database, signer = open_ledger(paths, passphrase=passphrase)
        if is_served(paths):
            database.close()
            raise StorageError(
                f"{paths.server}: this ledger is on a server; a notary keeps its own in a file"
            )
        if signer is None:
            database.close()
            raise ReadOnlyError(f"{paths.key}: a notary needs the private key")
        self.origin, self.vkey = database.meta("origin"), database.meta("vkey")
        self._database = database
        self._recorder = SignedRecorder(database, signer=signer, registry=registry)
        self._reading = Database(paths.database)
        self._state = NotaryState(paths.directory / "notary.sqlite")
        self._blobs = BlobStore(paths.blobs)
        self._blobs.directory.mkdir(parents=True, exist_ok=True)
        self._blobs.clean()
        self._uploading: dict[int, int] = {}  # bytes announced, by user
        self._authority = authority_stream(self.origin).bytes

    def greeting(self, user: User) -> bytes:
        """Return the frame that opens a connection."""
        return pack_message(
            Greeting(
                protocol=PROTOCOL,
                origin=self.origin,
                vkey=self.vkey,
                uid=user.uid,
                append=user.append,
                roles=user.roles,
            )
        )

    def answer(self, client: ClientConnection, request: Request, payload: bytes) -> bytes:
        """Return the answer's frame; raise LedgerError for what is refused."""
        match request:
            case Insert():
                return self._insert(client.user, payload)
            case AddLine():
                return self._add_line(client.user, request)
            case Stream():
                return self._stream(request)
            case Notifications():
                return self._notifications(request)
            case Newest():
                return self._newest()
            case Heads():
                return self._heads(request)
            case PutBlob():
                return self._put_blob(client, request, payload)
            case GetBlob():
                piece, size = self._blobs.piece(request.sha256, offset=request.offset, limit=_PIECE)
                return pack_message(Piece(size=size), piece)
        raise AssertionError(f"no answer is defined for {request}")

    def end(self, client: ClientConnection) -> None:
        """Forget what a connection left unfinished."""
        if client.upload is not None:
            client.upload.close()
            client.upload = None
            self._uploading[client.user.uid] -= client.announced

    def close(self) -> None:
        """Close the files."""
        for each in (self._database, self._reading, self._state):
            each.close()

    def _insert(self, user: User, payload: bytes) -> bytes:
        events, authors = read_events(payload)
        new = self._check_rights(user, events, authors)
        self._state.claim(new, uid=user.uid)  # durable before there is an event in it
        try:
            ids = self._recorder.insert_events(events, authors=authors)
        except StorageError:
            raise  # it may be in the ledger all the same
        except Exception:
            self._state.release(new)
            raise
        return pack_message(Done(), struct.pack(f">{len(ids)}Q", *ids))

    def _check_rights(
        self, user: User, events: Sequence[StoredEvent], authors: Sequence[Author | None]
    ) -> list[bytes]:
        """Return the streams that a batch begins; raise unless the user may append all of it."""
        if not user.append:
            raise ReadOnlyError(f"user {user.uid} may only read here; the notary's rules say so")
        for event, author in zip(events, authors, strict=True):
            if not user.may_append(event.topic):
                raise ForbiddenError(f"user {user.uid} may not append {event.topic!r} events")
            if author is not None and author.role not in user.roles:
                raise ForbiddenError(f"user {user.uid} may not act as {author.role!r}")
        new = []
        for stream in {UUID(str(event.originator_id)).bytes for event in events}:
            owner = self._state.owner(stream)
            if stream == self._authority:
                raise ForbiddenError("only the notary's own user may grant and revoke keys")
            if owner is None and not self._begun(stream):
                new.append(stream)
            elif owner != user.uid and not user.others:
                raise ForbiddenError(
                    f"stream {UUID(bytes=stream)} was not started by user {user.uid}; only the "
                    "user who started a stream may append to it"
                )
        return new

    def _begun(self, stream: bytes) -> bool:
        with self._database.transaction(write=False) as c:
            return bool(c.execute(STREAM_UP, (stream, -1, 2**63 - 1, 1)).fetchall())

    def _add_line(self, user: User, request: AddLine) -> bytes:
        if not user.cosign:
            raise ForbiddenError(f"user {user.uid} may not add lines to tree heads")
        self._recorder.add_signature_line(request.size, request.line, witnesses=user.witnesses)
        return pack_message(Done())

    def _stream(self, request: Stream) -> bytes:
        parameters = (
            request.stream,
            -1 if request.gt is None else request.gt,
            2**63 - 1 if request.lte is None else request.lte,
            2**63 - 1 if request.limit is None else request.limit,
        )
        return self._page(STREAM_DOWN if request.desc else STREAM_UP, parameters)

    def _notifications(self, request: Notifications) -> bytes:
        topics = request.topics or ()
        return self._page(
            select_entries(len(topics)), (request.first, request.last, *topics, request.limit)
        )

    def _page(self, statement: str, parameters: tuple[object, ...]) -> bytes:
        """Answer with as many entries as fit, and tell whether there are more."""
        entries: list[bytes] = []
        size, more = 0, False
        with self._reading.transaction(write=False) as c:
            for *_, entry in c.execute(statement, parameters):
                if size + len(entry) > _PAGE:
                    more = True
                    break
                entries.append(entry)
                size += 2 + len(entry)
        return pack_message(Page(more=more), join_sized(entries))

    def _newest(self) -> bytes:
        with self._reading.transaction(write=False) as c:
            (last,) = c.execute("SELECT MAX(idx) FROM entries").fetchone()
            head = c.execute("SELECT note FROM tree_heads ORDER BY size DESC LIMIT 1").fetchone()
        return pack_message(
            NewestFound(
                last=None if last is None else last + 1, head=None if head is None else head[0]
            )
        )

    def _heads(self, request: Heads) -> bytes:
        """Answer with tree heads, and with how long the notes up to `after` are by now.

        From the length a mirror sees that lines were added to notes that it has.
        """
        rows: list[bytes] = []
        size, more = 0, False
        with self._reading.transaction(write=False) as c:
            (known,) = c.execute(
                "SELECT COALESCE(SUM(LENGTH(note)), 0) FROM tree_heads WHERE size <= ?",
                (request.after,),
            ).fetchone()
            for at, note, edge in c.execute(_HEADS, (request.after, request.upto)):
                text = note.encode()
                row = struct.pack(">QHH", at, len(text), len(edge)) + text + edge
                if size + len(row) > _PAGE:
                    more = True
                    break
                rows.append(row)
                size += len(row)
        return pack_message(HeadsPage(more=more, known=known), b"".join(rows))

    def _put_blob(self, client: ClientConnection, request: PutBlob, payload: bytes) -> bytes:
        """Take a piece of a blob; the last one makes it appear."""
        sha256, size, offset = request.sha256, request.size, request.offset
        self._blobs.path(sha256)  # raises for what is no hash
        if offset == 0:
            self._begin_upload(client, size)
        upload = client.upload
        if upload is None or (offset, size) != (upload.size, client.announced):
            raise MalformedError("the pieces of a blob must arrive in order; start the blob again")
        if offset + len(payload) > size or (not payload and size):
            self.end(client)
            raise MalformedError("a piece of a blob is empty, or larger than announced")
        try:
            upload.add(payload)
            if upload.size < size:
                return pack_message(Done())
            upload.finish(expected=sha256)
        except LedgerError:
            self.end(client)
            raise
        self.end(client)
        self._state.add_blob(sha256, uid=client.user.uid, size=size)
        return pack_message(Done())

    def _begin_upload(self, client: ClientConnection, size: int) -> None:
        self.end(client)
        user = client.user
        if not user.append:
            raise ReadOnlyError(f"user {user.uid} may only read here; the notary's rules say so")
        if not 0 <= size <= MAX_BLOB:
            raise EncodingError(f"the blob has {size:,} bytes; the limit is {MAX_BLOB:,}")
        pending = self._uploading.get(user.uid, 0)
        if self._state.blob_bytes(user.uid) + pending + max(size, SMALLEST) > user.blob_bytes:
            raise ForbiddenError(
                f"this blob exceeds the limit of {user.blob_bytes:,} bytes of blobs for user "
                f"{user.uid}"
            )
        free = shutil.disk_usage(self._blobs.directory).free
        if free - sum(self._uploading.values()) - size < _FREE:
            raise StorageError("the notary's disk is too full for blobs; free some space there")
        client.upload, client.announced = self._blobs.write(), size
        self._uploading[user.uid] = pending + size


def read_events(payload: bytes) -> tuple[list[StoredEvent], list[Author | None]]:
    """Return the events of a batch: entries without index, time and previous hash."""
    entries = list(map(parse_entry, split_sized(payload, limit=MAX_EVENTS)))
    if not entries:
        raise MalformedError("a batch must have at least one event")
    for entry in entries:
        if (entry.index, entry.time_ns, entry.previous) != (0, 0, NO_PREVIOUS):
            raise MalformedError(
                "index, time and previous hash are set by the notary; leave them out"
            )
    events = [
        StoredEvent(
            originator_id=entry.stream_id,
            originator_version=entry.stream_version,
            topic=entry.name,
            state=entry.body,
        )
        for entry in entries
    ]
    return events, [entry.author for entry in entries]
