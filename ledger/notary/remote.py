"""A persistence module of the eventsourcing library: events recorded by a notary.

Chosen with PERSISTENCE_MODULE=ledger.notary.remote. As in sqlite.py, exactly one factory class is
defined here, and none is imported by name.

Source: docs/reference/notary.md; eventsourcing 9.5, persistence.py.
Trust: the notary is trusted about what it recorded, until the ledger is verified.
I/O: the notary's socket.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from eventsourcing import persistence
from eventsourcing.persistence import Notification, StoredEvent
from eventsourcing.utils import Environment, EnvType

from ledger.entries import NO_PREVIOUS, Author, AuthorKey, Entry, decode_entry, encode_entry
from ledger.errors import (
    ConflictError,
    EncodingError,
    MalformedError,
    StorageError,
    UnsupportedError,
)
from ledger.notary.client import NotaryClient
from ledger.notary.wire import MAX_EVENTS, pack_entries, parse_entries
from ledger.recording import factories

__all__ = ["RemoteFactory", "RemoteRecorder"]

_MAX_INTEGER = 2**63 - 1


class RemoteRecorder(persistence.ApplicationRecorder):
    """Appends through a notary what the recorder of sqlite.py would append itself."""

    def __init__(self, client: NotaryClient) -> None:
        self.client = client

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append a batch, all or nothing, and return its notification ids.

        Raises ConflictError, EncodingError, ForbiddenError, ReadOnlyError or StorageError.
        """
        if kwargs.get("tracking") is not None:
            raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")
        if not stored_events:
            return []
        if len(stored_events) > MAX_EVENTS:
            raise EncodingError(
                f"{len(stored_events):,} events are more than a notary accepts at once "
                f"({MAX_EVENTS:,}); append fewer"
            )
        authors = _authors(stored_events, kwargs, origin=self.client.greeting.origin)
        entries = [
            _entry(stored, author=author)
            for stored, author in zip(stored_events, authors, strict=True)
        ]
        losses: list[None] = []
        try:
            answer = self.client.ask(
                {"op": "insert"},
                pack_entries(map(encode_entry, entries)),
                on_loss=lambda: losses.append(None),
            )
        except ConflictError:
            ids = self._recorded(entries) if losses else None
            if ids is None:
                raise
            return ids  # the first time it was sent, only the answer was lost
        if len(answer.payload) != 8 * len(entries):
            raise MalformedError("the notary did not answer with one id for each event")
        return list(struct.unpack(f">{len(entries)}Q", answer.payload))

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return events of one stream, in the order of their versions."""
        return [
            StoredEvent(
                originator_id=entry.stream_id,
                originator_version=entry.stream_version,
                topic=entry.name,
                state=entry.body,
            )
            for entry in self._stream(
                _stream(originator_id), gt=gt, lte=lte, desc=desc, limit=limit
            )
        ]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return events in the ledger's order, from notification id `start` to `stop`."""
        first = 0 if start is None else start - (1 if inclusive_of_start else 0)
        last = _MAX_INTEGER if stop is None else stop - 1
        found = []
        for data in self.entries(first, last, limit=limit, topics=topics):
            entry = decode_entry(data)
            found.append(
                Notification(
                    id=entry.index + 1,
                    originator_id=entry.stream_id,
                    originator_version=entry.stream_version,
                    topic=entry.name,
                    state=entry.body,
                )
            )
        return found

    def max_notification_id(self) -> int | None:
        """Return the last notification id, or None in an empty ledger."""
        last: int | None = self.client.ask({"op": "newest"}).header["last"]
        return last

    def tree_head(self) -> str | None:
        """Return the newest tree head's signed note, or None in an empty ledger."""
        head: str | None = self.client.ask({"op": "newest"}).header["head"]
        return head

    def add_signature_line(self, size: int, line: str) -> None:
        """Add a witness's line to the note of the tree head of this size."""
        self.client.ask({"op": "add_line", "size": size, "line": line})

    def subscribe(
        self,
        gt: int | None = None,  # noqa: ARG002  (the interface's)
        topics: Sequence[str] = (),  # noqa: ARG002  (the interface's)
    ) -> NoReturn:
        """Not offered, as by the recorder behind the notary."""
        raise UnsupportedError("a ledger has no subscriptions; ask select_notifications() again")

    def entries(
        self, first: int, last: int, *, limit: int = _MAX_INTEGER, topics: Sequence[str] = ()
    ) -> Iterator[bytes]:
        """Yield the entries from one index to another, as they stand."""
        while limit > 0 and first <= last:
            answer = self.client.ask(
                {
                    "op": "notifications",
                    "first": max(first, 0),
                    "last": last,
                    "limit": min(limit, _MAX_INTEGER),
                    "topics": list(topics),
                }
            )
            page = parse_entries(answer.payload, limit=limit)
            yield from page
            if not answer.header["more"] or not page:
                return
            first, limit = decode_entry(page[-1]).index + 1, limit - len(page)

    def _stream(
        self, stream: bytes, *, gt: int | None, lte: int | None, desc: bool, limit: int | None
    ) -> Iterator[Entry]:
        left = _MAX_INTEGER if limit is None else limit
        while left > 0:
            answer = self.client.ask(
                {
                    "op": "stream",
                    "stream": stream,
                    "gt": gt,
                    "lte": lte,
                    "desc": desc,
                    "limit": left,
                }
            )
            page = [decode_entry(data) for data in parse_entries(answer.payload, limit=left)]
            yield from page
            if not answer.header["more"] or not page:
                return
            left -= len(page)
            if desc:
                lte = page[-1].stream_version - 1
            else:
                gt = page[-1].stream_version

    def _recorded(self, entries: Sequence[Entry]) -> list[int] | None:
        """Return the ids of a batch that is in the ledger already, exactly as it was sent."""
        ids = []
        for entry in entries:
            version = entry.stream_version
            found = next(
                self._stream(
                    entry.stream_id.bytes, gt=version - 1, lte=version, desc=False, limit=1
                ),
                None,
            )
            if found is None or (found.name, found.body, found.author) != (
                entry.name,
                entry.body,
                entry.author,
            ):
                return None
            ids.append(found.index + 1)
        return ids


class RemoteFactory(factories.EventsOnlyFactory):
    """Builds the recorder for the notary that listens at LEDGER_SOCKET."""

    LEDGER_SOCKET = "LEDGER_SOCKET"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        path = self.env.get(self.LEDGER_SOCKET)
        if not path:
            raise StorageError(f"set {self.LEDGER_SOCKET} to the notary's socket")
        self._client = NotaryClient(Path(path))

    def application_recorder(self) -> RemoteRecorder:
        """Construct the recorder."""
        return RemoteRecorder(self._client)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _authors(
    stored_events: Sequence[StoredEvent], kwargs: dict[str, Any], *, origin: str
) -> Sequence[Author | None]:
    key: AuthorKey | None = kwargs.get("author")
    authors: Sequence[Author | None] | None = kwargs.get("authors")
    if key is not None:
        return [
            key.author(
                origin=origin,
                stream_id=UUID(bytes=_stream(stored.originator_id)),
                stream_version=stored.originator_version,
                name=stored.topic,
                body=stored.state,
            )
            for stored in stored_events
        ]
    if authors is None:
        return [None] * len(stored_events)
    if len(authors) != len(stored_events):
        raise EncodingError(f"{len(authors)} authors were given for {len(stored_events)} events")
    return list(authors)


def _stream(originator_id: UUID | str) -> bytes:
    if not isinstance(originator_id, UUID):
        raise EncodingError(f"originator_id {originator_id!r} is not a UUID")
    return originator_id.bytes


def _entry(stored: StoredEvent, *, author: Author | None) -> Entry:
    """Return an event as an entry without what the recorder has to say."""
    return Entry(
        index=0,
        stream_id=UUID(bytes=_stream(stored.originator_id)),
        stream_version=stored.originator_version,
        time_ns=0,
        previous=NO_PREVIOUS,
        name=stored.topic,
        body=stored.state,
        author=author,
    )
