"""What the recorders share, of a store and of a notary: events from entries, and refusals.

Source: eventsourcing 9.5, persistence.py.
Trust: entries are hostile until parse_entry() returns.
I/O: none; the subclasses read and write.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, NoReturn
from uuid import UUID

from eventsourcing import persistence
from eventsourcing.persistence import Notification, StoredEvent
from msgspec import Meta, Struct

from ledger.entries import AuthorKey, Event
from ledger.errors import EncodingError, UnsupportedError
from ledger.verification.verified_entries import VerifiedEntry

MAX_INTEGER = 2**63 - 1
Int = Annotated[int, Meta(ge=-(2**63), le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]  # SQLite takes a negative LIMIT for none


class OfStream(Struct, frozen=True, kw_only=True):
    """Asks for entries of one stream, in the order of their versions: above `gt`, up to `lte`."""

    stream: bytes
    gt: Int | None
    lte: Int | None
    desc: bool
    limit: Count | None


class InOrder(Struct, frozen=True, kw_only=True):
    """Asks for entries from one index to another; of these names, if any are given."""

    first: Int
    last: Int
    limit: Count
    topics: Annotated[list[str], Meta(max_length=64)]


class EntryRecorder(persistence.ApplicationRecorder):
    """Makes the library's events and notifications of entries."""

    @property
    @abstractmethod
    def vkey(self) -> str:
        """The first vkey of the ledger, which names it."""

    @abstractmethod
    def entries(self, query: OfStream | InOrder) -> Iterable[VerifiedEntry]:
        """Return the entries that a query asks for, in its order."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; a second time does nothing."""

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
        stream = _stream(originator_id)
        query = OfStream(stream=stream, gt=gt, lte=lte, desc=desc, limit=limit)
        return [
            StoredEvent(
                originator_id=entry.stream_id,
                originator_version=entry.stream_version,
                topic=entry.name,
                state=entry.body,
            )
            for entry in self.entries(query)
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
        last = MAX_INTEGER if stop is None else stop - 1
        query = InOrder(first=first, last=last, limit=limit, topics=list(topics))
        return [
            Notification(
                id=entry.index + 1,
                originator_id=entry.stream_id,
                originator_version=entry.stream_version,
                topic=entry.name,
                state=entry.body,
            )
            for entry in self.entries(query)
        ]

    def subscribe(
        self,
        gt: int | None = None,  # noqa: ARG002  (the interface's)
        topics: Sequence[str] = (),  # noqa: ARG002  (the interface's)
    ) -> NoReturn:
        """Not offered: SQLite cannot tell another process that something is new."""
        raise UnsupportedError("a ledger has no subscriptions; ask select_notifications() again")


def signed_events(
    stored_events: Sequence[StoredEvent],
    *,
    origin: str,
    tracking: object = None,
    author: AuthorKey | None = None,
) -> list[Event]:
    """Return the events of a batch, signed by an `author` if there is one.

    Raises UnsupportedError for `tracking`, which the library may pass, EncodingError for a stream
    that is no UUID.
    """
    if tracking is not None:
        raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")
    events: list[Event] = []
    for stored in stored_events:
        stream, version = _stream(stored.originator_id), stored.originator_version
        name, body, signed = stored.topic, stored.state, None
        if author is not None:
            signed = author.author(
                origin=origin,
                stream_id=UUID(bytes=stream),
                stream_version=version,
                name=name,
                body=body,
            )
        events.append((stream, version, name, body, signed))
    return events


def _stream(originator_id: UUID | str) -> bytes:
    if not isinstance(originator_id, UUID):
        raise EncodingError(f"originator_id {originator_id!r} is not a UUID")
    return originator_id.bytes
