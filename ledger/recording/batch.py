"""One append: a batch of events at the end of the ledger, closed by a signed tree head.

Source: docs/reference/ledger-format.md, "Entry", "Tree head" and "Keys".
Trust: what a verifier would refuse to read is refused here, by the verifier's own rules.
I/O: a connection that is in a transaction.  Units: nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from ledger.bodies import encode_body
from ledger.entries import AuthorKey, Event, encode_entries
from ledger.errors import AuthorityError, ConflictError, StorageError, VerificationError
from ledger.recording.clocks import Clocks, Reading
from ledger.recording.newest import Newest
from ledger.recording.opening import Signer
from ledger.store import EntryColumns, Rows, Store
from ledger.verification.authority import Authority
from ledger.verification.verified_entries import parse_entry

_LAST_VERSION = "SELECT MAX(stream_version) FROM entries WHERE stream_id = ?"
_NO_EVENTS = -1  # in place of a stream's last version


@dataclass(kw_only=True)
class Batch:
    """What one transaction appends; `newest` is the ledger's end, before and then after it."""

    store: Store
    rows: Rows  # the store's, in the transaction
    newest: Newest
    versions: dict[bytes, int]  # known last versions of streams; added to
    signer: Signer
    clocks: Clocks
    head: tuple[int, str] | None = None  # size and note, once something was written

    def __post_init__(self) -> None:
        """Begin at the ledger's end."""
        self._taken: list[EntryColumns] = []
        self._hashes: list[bytes] = []  # of these entries
        self._last: dict[bytes, int] = {}  # versions of their streams
        self._authority = self.newest.authority  # as of the last of them

    def add(self, events: Sequence[Event]) -> int:
        """Write events and their tree head; return the index of the first."""
        first = self.take(events)
        self.write()
        return first

    def add_authority(
        self, name: str, fields: dict[str, Any], *, author: AuthorKey | None = None
    ) -> int:
        """Write an event of the authority stream and its tree head; return its index."""
        jumped = self._jumped()
        self._take([*jumped, self._authority_event(name, fields, len(jumped), author)])
        self.write()
        return self.newest.state.size - 1

    def take(self, events: Sequence[Event]) -> int:
        """Put events behind those that were taken before; return the index of the first.

        Raises ConflictError, EncodingError or AuthorityError for events that could not follow; none
        of them is taken then. A jump of the clock is noted before the batch, or, where events
        write to the authority stream themselves, in the next batch: their versions there are
        settled.
        """
        stream = self._authority.stream_id.bytes
        own = any(event[0] == stream for event in events)
        self._take(events if own or self._taken else [*self._jumped(), *events])
        return self.newest.state.size + len(self._taken) - len(events)

    def write(self) -> None:
        """Write what was taken, if anything was, and its tree head."""
        if not self._taken:
            return
        before, authority = self.newest, self._authority
        self.store.add_entries(self.rows, self._taken)
        state = before.state.grown(self._hashes, time_ns=self._time())
        note = self.signer.tree_head(size=state.size, root=state.root, vkey=authority.vkey)
        stored = self.store.add_head(self.rows, state.size, note, b"".join(state.edge))
        if stored != (note, *self._taken[-1][::4]):
            raise StorageError(
                f"{self.store.path}: the database does not store what was written to it; nothing "
                "was appended. Look for triggers and rules on its tables, then verify the ledger"
            )
        self.versions.update(self._last)
        self.newest = Newest(
            authority=authority,
            authority_version=self._last.get(authority.stream_id.bytes, before.authority_version),
            state=state,
        )
        self.head = state.size, note

    @cached_property
    def reading(self) -> Reading:
        """What the clocks showed when the first of it was taken."""
        return self.clocks.read()

    def _time(self) -> int:
        return max(self.reading.clock, self.newest.state.time_ns)

    def _take(self, events: Sequence[Event]) -> None:
        versions = self._next_versions(events)
        first = self.newest.state.size + len(self._taken)
        entries, hashes = encode_entries(
            events,
            index=first,
            previous=self._hashes[-1] if self._hashes else self.newest.state.last_hash,
            time_ns=self._time(),
        )
        self._authority = self._authorised(events, entries)
        self._taken += entries
        self._hashes += hashes
        self._last.update(versions)

    def _jumped(self) -> list[Event]:
        by = self.clocks.jump(
            self.reading,
            newest=self.newest.state.time_ns,
            last_jump=self.newest.authority.last_jump,
        )
        if by is None:
            return []
        return [
            self._authority_event("clock.jumped", {"by": by, "clock": self.reading.clock}, 0, None)
        ]

    def _authority_event(
        self, name: str, fields: dict[str, Any], ahead: int, author: AuthorKey | None
    ) -> Event:
        stream_id = self.newest.authority.stream_id
        version = max(self.newest.authority_version, 0) + 1 + ahead
        body = encode_body({"v": 1, **fields})
        signed = None
        if author is not None:
            signed = author.author(
                origin=self.newest.authority.origin,
                stream_id=stream_id,
                stream_version=version,
                name=name,
                body=body,
            )
        return stream_id.bytes, version, name, body, signed

    def _next_versions(self, events: Sequence[Event]) -> dict[bytes, int]:
        """Return the streams' last versions; raise ConflictError unless each event is the next."""
        last_versions: dict[bytes, int] = {}
        for event in events:
            stream, version = event[0], event[1]
            last = last_versions.get(stream)
            if last is None:
                last = self._last_version(stream)
            if version != last + 1 and not (last == _NO_EVENTS and version == 1):
                where = "has no events" if last == _NO_EVENTS else f"is at version {last}"
                raise ConflictError(
                    f"stream {UUID(bytes=stream)} {where}, so {version} cannot follow; another "
                    "writer may have appended to it: load it again and retry"
                )
            last_versions[stream] = version
        return last_versions

    def _last_version(self, stream: bytes) -> int:
        known = self._last.get(stream)
        if known is None:
            known = self.versions.get(stream)
        if known is not None:
            return known
        (last,) = self.rows.execute(_LAST_VERSION, (stream,)).fetchone()
        return _NO_EVENTS if last is None else int(last)

    def _authorised(self, events: Sequence[Event], entries: Sequence[EntryColumns]) -> Authority:
        """Return what stands after the events; raise AuthorityError for what may not be."""
        stream = self._authority.stream_id.bytes
        special = [
            entry
            for event, entry in zip(events, entries, strict=True)
            if event[4] is not None or event[0] == stream
        ]
        if not special:
            return self._authority
        authority = self._authority.copy()
        try:
            for index, *_, data in special:
                authority.apply(parse_entry(data, index=index))
        except VerificationError as e:
            raise AuthorityError(f"nothing was appended: verification would fail: {e}") from e
        if not self.signer.holds(authority.vkey):
            raise AuthorityError(
                "nothing was appended: the private key for the ledger's next key is not here; "
                "use rotate_key(), which makes the key and the event together"
            )
        return authority
