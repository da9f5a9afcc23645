"""The recorder: events as signed, linked entries of a store.

Source: docs/reference/ledger-format.md; eventsourcing 9.5, persistence.py.
Trust: what is read back is checked against its own columns only; verify.py judges the whole.
I/O: the store's database.  Units: nanoseconds; notification id = index + 1.
Not covered: snapshots, tracking and subscriptions, which would live outside of the hash links.
"""

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeVar

from eventsourcing.persistence import StoredEvent

from ledger.entries import AuthorKey
from ledger.errors import ConsistencyError, ReadOnlyError
from ledger.recording.batch import Batch
from ledger.recording.clocks import BOOT_CLOCK, Clocks
from ledger.recording.newest import Newest, has_end, read_newest
from ledger.recording.opening import Signer
from ledger.recording.recorders import (
    MAX_INTEGER,
    EntryRecorder,
    InOrder,
    OfStream,
    signed_events,
)
from ledger.store import EntryColumns, Rows, Store
from ledger.verification.authority import Authority
from ledger.verification.states import State
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.witnessing.head_lines import add_line

_MAX_VERSIONS = 10_000  # streams whose last version is remembered
_T = TypeVar("_T")

_STREAM = """
    SELECT idx, stream_id, stream_version, name, entry FROM entries
    WHERE stream_id = ? AND stream_version > ? AND stream_version <= ?
    ORDER BY stream_version {order} LIMIT ?"""
_ENTRIES = """
    SELECT idx, stream_id, stream_version, name, entry FROM entries
    WHERE idx >= ? AND idx <= ? {named} ORDER BY idx LIMIT ?"""
_NEWEST_NOTE = "SELECT note FROM tree_heads ORDER BY size DESC LIMIT 1"


def select(query: OfStream | InOrder) -> tuple[str, tuple[object, ...]]:
    """Return the statement that finds what a query asks for, and its parameters."""
    if isinstance(query, InOrder):
        topics = query.topics
        named = f"AND name IN ({', '.join('?' * len(topics))})" if topics else ""
        return _ENTRIES.format(named=named), (query.first, query.last, *topics, query.limit)
    least = -1 if query.gt is None else query.gt
    most, limit = (MAX_INTEGER if n is None else n for n in (query.lte, query.limit))
    order = "DESC" if query.desc else "ASC"
    return _STREAM.format(order=order), (query.stream, least, most, limit)


class SignedRecorder(EntryRecorder):
    """Appends batches of events, each linked, and closed by a signed tree head.

    `clock` gives POSIX nanoseconds, `steady_clock` nanoseconds that nobody sets, if there is
    such a clock. Without a `signer` the recorder only reads.
    """

    def __init__(
        self,
        store: Store,
        *,
        signer: Signer | None,
        clock: Callable[[], int] = time.time_ns,
        steady_clock: Callable[[], int] | None = BOOT_CLOCK,
    ) -> None:
        self._store = store
        self._signer = signer
        self._origin = store.meta("origin")
        self._clocks = Clocks(clock, steady_clock)
        self._appending = Lock()  # held past the commit, until what is known is put right
        self._known = Newest(authority=Authority(store.meta("vkey")), state=State())
        self._versions: dict[bytes, int] = {}  # last ones of some streams
        self._stamp: object = None  # of the store, when these two were true

    @property
    def vkey(self) -> str:
        """The first vkey of the ledger, which names it."""
        return self._known.authority.keys[0].vkey

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append a batch, all or nothing, and return its notification ids.

        An `author` (AuthorKey), if given, signs each of the events. Raises AuthorityError,
        ConflictError, EncodingError, ReadOnlyError or StorageError; ConsistencyError if the ledger
        has been changed below its end.
        """
        self._writer()
        events = signed_events(stored_events, origin=self._origin, **kwargs)
        if not events:
            return []
        first = self.append(lambda batch: batch.add(events))
        return list(range(first + 1, first + 1 + len(events)))

    def grant_key(self, vkey: str, *, role: str, author: AuthorKey | None = None) -> int:
        """Let a key act in a role from here on; return the notification id.

        Without an `author` it is the ledger's key that grants, which it may do until the first
        operator is there. Raises AuthorityError for what a verifier would refuse.
        """
        return self._authorise("key.granted", {"role": role, "vkey": vkey}, author)

    def revoke_key(
        self, vkey: str, *, role: str, since: int, reason: str, author: AuthorKey | None = None
    ) -> int:
        """Declare that a key is not to be trusted from a time on (ns); return as grant_key()."""
        body = {"role": role, "vkey": vkey, "since": since, "reason": reason}
        return self._authorise("key.revoked", body, author)

    def rotate_key(self) -> str:
        """Replace the ledger's private key by a new one, and return the new vkey.

        Both keys sign the rotation. Killed at any point, the ledger opens with the key that is
        in force, and the old one's file is gone when this returns.
        """
        signer = self._writer()

        def rotate(batch: Batch) -> str:
            new, note = signer.rotation(batch.newest.authority.vkey)
            batch.add_authority("key.rotated", {"note": note})
            return new

        new = self.append(rotate)
        self._store.run(lambda _: signer.finish_rotation(new), write=True)
        return new

    def add_signature_line(
        self, size: int, line: str, *, witnesses: Sequence[str] | None = None
    ) -> None:
        """Add a signature line to the tree head of this size; one that is there stays one.

        With `witnesses`, vkeys, only these and those that were granted may. Raises EncodingError
        for what would spoil the note, AuthorityError for a line in a known witness's name, but not
        by its key, ForbiddenError for one by somebody else.
        """
        self.append(
            lambda batch: add_line(
                batch.rows, size, line, authority=batch.newest.authority, witnesses=witnesses
            )
        )

    def _authorise(self, name: str, body: dict[str, Any], author: AuthorKey | None) -> int:
        signer = self._writer()

        def authorise(batch: Batch) -> int:
            by = author or signer.author(batch.newest.authority.vkey)
            return batch.add_authority(name, body, author=by) + 1

        return self.append(authorise)

    def append(self, work: Callable[[Batch], _T]) -> _T:
        """Do some work on a batch in a transaction; remember the ledger's end once it is there.

        A store that lost its connection does it again. What was committed then without an answer
        is there by now, or never will be: the lock was waited for. Raises what the work raises,
        ReadOnlyError, StorageError, and ConsistencyError if the ledger was changed below its end.
        """
        signer = self._writer()
        made: list[tuple[Batch, _T]] = []  # of the attempts that reached their commit

        def attempt(c: Rows) -> tuple[Batch, _T, object]:
            stamp = self._store.stamp(c)
            if stamp != self._stamp:
                self._known = read_newest(c, path=self._store.path, known=self._known)
            if stamp != self._stamp or len(self._versions) > _MAX_VERSIONS:
                self._versions = {}
            self._stamp = None
            for earlier, result in made:
                if earlier.head is not None and has_end(c, earlier.newest):
                    return earlier, result, None
            signer.take_up(self._known.authority.vkey)
            batch = Batch(
                store=self._store,
                rows=c,
                newest=self._known,
                versions=self._versions,
                signer=signer,
                clocks=self._clocks,
            )
            made.append((batch, work(batch)))
            if batch.head is None:  # else it was checked
                self._store.check_tables(c)
            return *made[-1], self._store.stamp(c, written=batch.head)

        with self._appending:
            batch, result, stamp = self._store.run(attempt, write=True)
            if stamp is not None:
                self._known, self._stamp = batch.newest, stamp
            if batch.head is not None:
                self._clocks.appended(batch.reading)
            return result

    def _writer(self) -> Signer:
        if self._signer is None:
            raise ReadOnlyError(
                f"{self._store.path}: the private key is not here, so this ledger is "
                "read-only; put the key in place to append"
            )
        return self._signer

    def entries(self, query: OfStream | InOrder) -> list[VerifiedEntry]:
        """Return the entries that a query asks for, in its order."""
        found = self._read(lambda c: c.execute(*select(query)).fetchall())
        return list(map(_checked, found))

    def _read(self, work: Callable[[Rows], _T]) -> _T:
        return self._store.run(work, write=False)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def max_notification_id(self) -> int | None:
        """Return the last notification id, or None in an empty ledger."""
        (index,) = self._read(lambda c: c.execute("SELECT MAX(idx) FROM entries").fetchone())
        return None if index is None else index + 1

    def tree_head(self) -> str | None:
        """Return the newest tree head's signed note, or None in an empty ledger."""
        row = self._read(lambda c: c.execute(_NEWEST_NOTE).fetchone())
        return None if row is None else str(row[0])


def _checked(row: EntryColumns) -> VerifiedEntry:
    """Return a row's entry; raise if the columns that found it say something else."""
    index, stream_id, stream_version, name, data = row
    entry = parse_entry(data, index=index)
    if (entry.index, entry.stream_id.bytes, entry.stream_version, entry.name) != (
        index,
        stream_id,
        stream_version,
        name,
    ):
        raise ConsistencyError(f"entry {index} does not match its row", index=index)
    return entry
