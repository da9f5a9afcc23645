"""Carries out one request of one user at a notary. It knows users and events, not sockets.

Nothing that a client sends is run, imported or used as a path: names of events are compared with
the rules, streams are 16 bytes, blobs are named by 64 hexadecimal digits that are checked.

Source: docs/reference/notary.md, "Requests".
Trust: requests are hostile; what is refused raises LedgerError and has changed nothing.
I/O: the ledger's directory.  Units: bytes; notification ids from 1.
"""

import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger.blobs import BlobStore
from ledger.database import Database, explained
from ledger.entries import Event
from ledger.errors import ForbiddenError, LedgerError, ReadOnlyError, StorageError
from ledger.mapper import EventRegistry
from ledger.notary.answers import (
    PAGE,
    Uploads,
    answer_piece,
    appended,
    greet,
    page,
    read_events,
)
from ledger.notary.messages import (
    AddLine,
    Done,
    GetBlob,
    Heads,
    HeadsPage,
    Insert,
    Newest,
    NewestFound,
    Notifications,
    PutBlob,
    Request,
    Stream,
    pack_message,
)
from ledger.notary.rules import User
from ledger.notary.state import NotaryState
from ledger.paths import LedgerPaths, is_served
from ledger.recorder import SignedRecorder, select
from ledger.recording.batch import Batch
from ledger.recording.opening import open_ledger
from ledger.verification.authority import authority_stream

WRITES = (Insert, AddLine)  # what takes the ledger's write lock

_IS_BEGUN = "SELECT 1 FROM entries WHERE stream_id = ? LIMIT 1"
_HEADS = "SELECT size, note, edge FROM tree_heads WHERE size > ? AND size <= ? ORDER BY size"


@dataclass(frozen=True, eq=False)
class ClientConnection:
    """One connection of a user."""

    user: User


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
        self._recorder = SignedRecorder(database, signer=signer)
        self._registry = registry
        self._reading = Database(paths.database)
        self._reader = SignedRecorder(self._reading, signer=None)
        self._state = NotaryState(paths.directory / "notary.sqlite")
        self._blobs = BlobStore(paths.blobs)
        with explained(self._blobs.directory):
            self._blobs.directory.mkdir(parents=True, exist_ok=True)
        self._blobs.clean()
        self._uploads = Uploads(
            self._blobs,
            stored=self._state.blob_bytes,
            free=lambda: shutil.disk_usage(self._blobs.directory).free,
        )
        self._authority = authority_stream(self.origin).bytes

    def greeting(self, user: User) -> bytes:
        """Return the frame that opens a connection."""
        return greet(self.vkey, user)

    def answer(self, client: ClientConnection, request: Request, payload: bytes) -> bytes:
        """Return the answer's frame; raise LedgerError for what is refused."""
        match request:
            case Insert():
                (done,) = self.insert_each([(client.user, payload)])
                if isinstance(done, LedgerError):
                    raise done
                return done
            case AddLine():
                return self._add_line(client.user, request)
            case Stream() | Notifications():
                return self._page(request)
            case Newest():
                return self._newest()
            case Heads():
                return self._heads(request)
            case PutBlob():
                return self._put_blob(client, request, payload)
            case GetBlob():
                return answer_piece(self._blobs, request)
        raise AssertionError(f"no answer is defined for {request}")

    def insert_each(self, asked: Sequence[tuple[User, bytes]]) -> list[bytes | LedgerError]:
        """Append the events of some users' requests in one transaction, under one tree head.

        Return what each is answered: as if it came alone, behind those before it. Where the events
        could not be stored, none of them is, and each is told so. Any other error is raised, and
        has changed nothing.
        """
        given = [self._read(user, payload) for user, payload in asked]

        def append(batch: Batch) -> list[bytes | LedgerError]:
            claims: dict[bytes, int] = {}
            answers: list[bytes | LedgerError] = []
            for (user, _), events in zip(asked, given, strict=True):
                if isinstance(events, LedgerError):
                    answers.append(events)
                    continue
                try:
                    answers.append(self._take(batch, user, events, claims))
                except StorageError:
                    raise
                except LedgerError as e:
                    answers.append(e)
            batch.write()
            self._state.claim(claims)  # durable before there are events in the streams
            return answers

        if all(isinstance(each, LedgerError) for each in given):
            return [each for each in given if isinstance(each, LedgerError)]
        try:
            return self._recorder.append(append)
        except StorageError as e:  # they may be in the ledger all the same
            return [each if isinstance(each, LedgerError) else e for each in given]

    def end(self, client: ClientConnection) -> None:
        """Forget what a connection left unfinished."""
        self._uploads.end(client)

    def close(self) -> None:
        """Close the files."""
        for each in (self._database, self._reading, self._state):
            each.close()

    def _read(self, user: User, payload: bytes) -> list[Event] | LedgerError:
        """Return a request's events, or why this user may not append them, whatever is there."""
        try:
            if not user.append:
                raise ReadOnlyError(
                    f"user {user.uid} may only read here; the notary's rules say so"
                )
            events = read_events(payload)
            for stream, version, name, body, author in events:
                if not user.may_append(name):
                    raise ForbiddenError(f"user {user.uid} may not append {name!r} events")
                if author is not None and author.role not in user.roles:
                    raise ForbiddenError(f"user {user.uid} may not act as {author.role!r}")
                if stream == self._authority:
                    raise ForbiddenError("only the notary's own user may grant and revoke keys")
                if self._registry is not None:
                    self._registry.verify_new(name, body, stream_version=version)
        except LedgerError as e:
            return e
        return events

    def _take(
        self,
        batch: Batch,
        user: User,
        events: list[Event],
        claims: dict[bytes, int],
    ) -> bytes:
        """Take a request's events into a batch, and claim the streams that they begin."""
        new = self._begun(batch, user, {event[0] for event in events}, claims)
        first = batch.take(events) + 1
        claims.update(dict.fromkeys(new, user.uid))
        return appended(range(first, first + len(events)))

    def _begun(
        self, batch: Batch, user: User, streams: set[bytes], claims: Mapping[bytes, int]
    ) -> list[bytes]:
        """Return those streams that nobody has begun; raise unless the user may append to all."""
        new = []
        for stream in streams:
            owner = claims.get(stream)
            if owner is None:
                owner = self._state.owner(stream)
            if owner is None and not batch.rows.execute(_IS_BEGUN, (stream,)).fetchall():
                new.append(stream)
            elif owner != user.uid and not user.others:
                raise ForbiddenError(
                    f"stream {UUID(bytes=stream)} was not started by user {user.uid}; only the "
                    "user who started a stream may append to it"
                )
        return new

    def _add_line(self, user: User, request: AddLine) -> bytes:
        if not user.cosign:
            raise ForbiddenError(f"user {user.uid} may not add lines to tree heads")
        self._recorder.add_signature_line(request.size, request.line, witnesses=user.witnesses)
        return pack_message(Done())

    def _page(self, request: Stream | Notifications) -> bytes:
        """Answer with as many entries as fit, and tell whether there are more."""
        with self._reading.transaction(write=False) as c:
            return page(row[-1] for row in c.execute(*select(request)))

    def _newest(self) -> bytes:
        last, head = self._reader.max_notification_id(), self._reader.tree_head()
        return pack_message(NewestFound(last=last, head=head))

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
                if size + len(row) > PAGE:
                    more = True
                    break
                rows.append(row)
                size += len(row)
        return pack_message(HeadsPage(more=more, known=known), b"".join(rows))

    def _put_blob(self, client: ClientConnection, request: PutBlob, payload: bytes) -> bytes:
        """Take a piece of a blob; the last one makes it appear."""
        self._blobs.path(request.sha256)  # raises for what is no hash
        if self._uploads.take(client, client.user, request, payload):
            self._state.add_blob(request.sha256, uid=client.user.uid, size=request.size)
        return pack_message(Done())
