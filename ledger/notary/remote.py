"""A recorder of the eventsourcing library whose events a notary records.

Source: docs/reference/notary.md; eventsourcing 9.5, persistence.py.
Trust: the notary is trusted about what it recorded, until the ledger is verified.
I/O: the notary's socket.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from eventsourcing.persistence import StoredEvent
from msgspec.structs import asdict, replace

from ledger.entries import Event, encode_event, join_sized, split_sized
from ledger.errors import (
    ConflictError,
    EncodingError,
    MalformedError,
)
from ledger.notary.client import NotaryClient
from ledger.notary.messages import (
    MAX_EVENTS,
    AddLine,
    Done,
    Insert,
    Newest,
    NewestFound,
    Notifications,
    Page,
    Stream,
)
from ledger.recording import recorders
from ledger.recording.recorders import InOrder, OfStream
from ledger.verification.verified_entries import VerifiedEntry, parse_entry


class RemoteRecorder(recorders.EntryRecorder):
    """Appends through a notary what SignedRecorder would append itself."""

    def __init__(self, client: NotaryClient) -> None:
        self.client = client

    @property
    def vkey(self) -> str:
        """The first vkey of the ledger, as the notary says it."""
        return self.client.greeting.vkey

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append a batch, all or nothing, and return its notification ids.

        Raises ConflictError, EncodingError, ForbiddenError, ReadOnlyError or StorageError.
        """
        events = recorders.signed_events(
            stored_events, origin=self.client.greeting.origin, **kwargs
        )
        if not events:
            return []
        if len(events) > MAX_EVENTS:
            raise EncodingError(
                f"{len(events):,} events are more than a notary accepts at once "
                f"({MAX_EVENTS:,}); append fewer"
            )
        losses: list[None] = []
        try:
            _, payload = self.client.ask(
                Insert(),
                Done,
                join_sized(encode_event(event) for event in events),
                on_loss=lambda: losses.append(None),
            )
        except ConflictError:
            ids = self._recorded(events) if losses else None
            if ids is None:
                raise
            return ids  # the first time it was sent, only the answer was lost
        if len(payload) != 8 * len(events):
            raise MalformedError("the notary did not answer with one id for each event")
        return list(struct.unpack(f">{len(events)}Q", payload))

    def max_notification_id(self) -> int | None:
        """Return the last notification id, or None in an empty ledger."""
        return self.client.ask(Newest(), NewestFound)[0].last

    def tree_head(self) -> str | None:
        """Return the newest tree head's signed note, or None in an empty ledger."""
        return self.client.ask(Newest(), NewestFound)[0].head

    def add_signature_line(self, size: int, line: str) -> None:
        """Add a witness's line to the note of the tree head of this size."""
        self.client.ask(AddLine(size=size, line=line), Done)

    def entries(self, query: OfStream | InOrder) -> Iterator[VerifiedEntry]:
        """Yield the entries that a query asks for, in its order."""
        return map(parse_entry, self.raw_entries(query))

    def raw_entries(self, query: OfStream | InOrder) -> Iterator[bytes]:
        """Yield the same entries as they are stored and hashed."""
        left = recorders.MAX_INTEGER if query.limit is None else query.limit
        left = min(left, recorders.MAX_INTEGER)
        while left > 0:
            kind = Stream if isinstance(query, OfStream) else Notifications
            request = kind(**asdict(query) | {"limit": left})
            answer, payload = self.client.ask(request, Page)
            page = split_sized(payload, limit=left)
            yield from page
            if not answer.more or not page:
                return
            left, last = left - len(page), parse_entry(page[-1])
            if isinstance(query, InOrder):
                query = replace(query, first=last.index + 1)
            elif query.desc:
                query = replace(query, lte=last.stream_version - 1)
            else:
                query = replace(query, gt=last.stream_version)

    def _recorded(self, events: Sequence[Event]) -> list[int] | None:
        """Return the ids of a batch that is in the ledger already, exactly as it was sent."""
        ids = []
        for stream, version, *said in events:
            query = OfStream(stream=stream, gt=version - 1, lte=version, desc=False, limit=1)
            found = next(self.entries(query), None)
            if found is None or [found.name, found.body, found.author] != said:
                return None
            ids.append(found.index + 1)
        return ids
