"""A persistence module of the eventsourcing library: events as signed, linked entries.

Chosen with PERSISTENCE_MODULE=ledger.sqlite. The library takes the one factory class
that it finds here, so nothing else that is a factory may be imported by name.

Source: docs/reference/ledger-format.md; eventsourcing 9.5, persistence.py.
Trust: what is read back is checked against its own columns only; verify.py judges the whole.
I/O: the database, through database.py.  Units: nanoseconds; notification id = index + 1.
Not covered: snapshots, tracking and subscriptions, which would live outside of the hash links.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn
from uuid import UUID

from eventsourcing import persistence
from eventsourcing.persistence import Notification, StoredEvent
from eventsourcing.utils import Environment, EnvType

from ledger.database import Database
from ledger.entries import Author, AuthorKey, Entry, decode_entry
from ledger.errors import (
    ConsistencyError,
    EncodingError,
    ReadOnlyError,
    StorageError,
    UnsupportedError,
)
from ledger.paths import LedgerPaths
from ledger.recording import factories
from ledger.recording.batch import Batch, Event
from ledger.recording.clocks import BOOT_CLOCK, Clocks
from ledger.recording.newest import Newest, read_newest
from ledger.recording.opening import Signer, open_ledger
from ledger.tree import Tree
from ledger.verification.authority import Authority
from ledger.witnessing.head_lines import add_line

__all__ = ["LedgerFactory", "SignedSQLiteRecorder"]

_MAX_INTEGER = 2**63 - 1
_MAX_VERSIONS = 10_000  # streams whose last version is remembered
_NEVER = (-1, -1)

_SELECT_STREAM = """
    SELECT idx, stream_id, stream_version, name, entry FROM entries
    WHERE stream_id = ? AND stream_version > ? AND stream_version <= ?
    ORDER BY stream_version {order} LIMIT ?"""
_SELECT_STREAM_UP = _SELECT_STREAM.format(order="ASC")
_SELECT_STREAM_DOWN = _SELECT_STREAM.format(order="DESC")
_SELECT_NOTIFICATIONS = """
    SELECT idx, stream_id, stream_version, name, entry FROM entries
    WHERE idx >= ?1 AND idx <= ?2 AND (?3 IS NULL OR name IN (SELECT value FROM json_each(?3)))
    ORDER BY idx LIMIT ?4"""


class SignedSQLiteRecorder(persistence.ApplicationRecorder):
    """Appends batches of events, each linked, and closed by a signed tree head.

    `clock` gives POSIX nanoseconds, `steady_clock` nanoseconds that nobody sets, if there is
    such a clock. Without a `signer` the recorder only reads.
    """

    def __init__(
        self,
        database: Database,
        *,
        signer: Signer | None,
        clock: Callable[[], int] = time.time_ns,
        steady_clock: Callable[[], int] | None = BOOT_CLOCK,
    ) -> None:
        self._database = database
        self._signer = signer
        self._origin = database.meta("origin")
        self._clocks = Clocks(clock, steady_clock)
        self._appending = Lock()  # held past the commit, until what is known is put right
        self._known = Newest(authority=Authority(database.meta("vkey")), tree=Tree())
        self._versions: dict[bytes, int] = {}  # last ones of some streams
        self._stamp = _NEVER  # of the database, when these two were true

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        author: AuthorKey | None = None,
        authors: Sequence[Author | None] | None = None,
        **kwargs: Any,
    ) -> Sequence[int]:
        """Append a batch, all or nothing, and return its notification ids.

        `author` signs each of the events; `authors` are signatures that were made before, one
        for each event. Raises AuthorityError, ConflictError, EncodingError, ReadOnlyError or
        StorageError; ConsistencyError if the ledger has been changed below its end.
        """
        if kwargs.get("tracking") is not None:
            raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")
        signer = self._writer()
        events = _signed(stored_events, origin=self._origin, author=author, authors=authors)
        if not events:
            return []
        with self._append(signer) as batch:
            first = batch.add(events)
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
        with self._append(signer) as batch:
            new, note = signer.rotation(batch.newest.authority.vkey)
            batch.add_authority("key.rotated", {"note": note})
        with self._database.transaction(write=True):
            signer.finish_rotation(new)
        return new

    def add_signature_line(
        self, size: int, line: str, *, witnesses: Sequence[str] | None = None
    ) -> None:
        """Add a signature line to the tree head of this size; one that is there stays one.

        With `witnesses`, vkeys, only these and those that were granted may. Raises EncodingError
        for what would spoil the note, AuthorityError for a line in a known witness's name, but not
        by its key, ForbiddenError for one by somebody else.
        """
        signer = self._writer()
        with self._append(signer) as batch:
            add_line(
                batch.connection,
                size,
                line,
                authority=batch.newest.authority,
                witnesses=witnesses,
            )

    def _authorise(self, name: str, body: dict[str, Any], author: AuthorKey | None) -> int:
        signer = self._writer()
        with self._append(signer) as batch:
            if author is None:
                author = signer.author(batch.newest.authority.vkey)
            return batch.add_authority(name, body, author=author) + 1

    @contextmanager
    def _append(self, signer: Signer) -> Iterator[Batch]:
        """Give a batch in a transaction; remember the ledger's end once it is committed."""
        with self._appending:
            with self._database.transaction(write=True) as c:
                stamp = _stamp(c)
                if stamp != self._stamp:
                    self._known = read_newest(c, path=self._database.path, known=self._known)
                if stamp != self._stamp or len(self._versions) > _MAX_VERSIONS:
                    self._versions = {}
                self._stamp = _NEVER
                signer.take_up(self._known.authority.vkey)
                batch = Batch(
                    connection=c,
                    newest=self._known,
                    versions=self._versions,
                    signer=signer,
                    clocks=self._clocks,
                )
                yield batch
                stamp = (stamp[0], c.total_changes)
            self._known, self._stamp = batch.newest, stamp
            if batch.reading is not None:
                self._clocks.appended(batch.reading)

    def _writer(self) -> Signer:
        if self._signer is None:
            raise ReadOnlyError(
                f"{self._database.path}: the private key is not here, so this ledger is "
                "read-only; put the key in place to append"
            )
        return self._signer

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
        parameters = (
            _stream(originator_id),
            -1 if gt is None else gt,
            _MAX_INTEGER if lte is None else lte,
            -1 if limit is None else limit,
        )
        statement = _SELECT_STREAM_DOWN if desc else _SELECT_STREAM_UP
        with self._database.transaction(write=False) as c:
            rows = c.execute(statement, parameters).fetchall()
        return [
            StoredEvent(
                originator_id=entry.stream_id,
                originator_version=entry.stream_version,
                topic=entry.name,
                state=entry.body,
            )
            for entry in map(_checked, rows)
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
        parameters = (
            first,
            _MAX_INTEGER if stop is None else stop - 1,
            json.dumps(list(topics)) if topics else None,
            limit,
        )
        with self._database.transaction(write=False) as c:
            rows = c.execute(_SELECT_NOTIFICATIONS, parameters).fetchall()
        return [
            Notification(
                id=entry.index + 1,
                originator_id=entry.stream_id,
                originator_version=entry.stream_version,
                topic=entry.name,
                state=entry.body,
            )
            for entry in map(_checked, rows)
        ]

    def max_notification_id(self) -> int | None:
        """Return the last notification id, or None in an empty ledger."""
        with self._database.transaction(write=False) as c:
            (index,) = c.execute("SELECT MAX(idx) FROM entries").fetchone()
        return None if index is None else index + 1

    def tree_head(self) -> str | None:
        """Return the newest tree head's signed note, or None in an empty ledger."""
        with self._database.transaction(write=False) as c:
            row = c.execute("SELECT note FROM tree_heads ORDER BY size DESC LIMIT 1").fetchone()
        return None if row is None else str(row[0])

    def subscribe(
        self,
        gt: int | None = None,  # noqa: ARG002  (the interface's)
        topics: Sequence[str] = (),  # noqa: ARG002  (the interface's)
    ) -> NoReturn:
        """Not offered: SQLite cannot tell another process that something is new."""
        raise UnsupportedError("a ledger has no subscriptions; ask select_notifications() again")


class LedgerFactory(factories.EventsOnlyFactory):
    """Builds the recorder for the directory named by LEDGER_DIRECTORY.

    LEDGER_KEY_PASSPHRASE, if set, is the private key's passphrase.
    """

    LEDGER_DIRECTORY = "LEDGER_DIRECTORY"
    LEDGER_KEY_PASSPHRASE = "LEDGER_KEY_PASSPHRASE"  # noqa: S105  (the setting's name)

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        directory = self.env.get(self.LEDGER_DIRECTORY)
        if not directory:
            raise StorageError(f"set {self.LEDGER_DIRECTORY} to the ledger's directory")
        passphrase = self.env.get(self.LEDGER_KEY_PASSPHRASE)
        self._database, self._signer = open_ledger(
            LedgerPaths(Path(directory)),
            passphrase=None if passphrase is None else passphrase.encode(errors="surrogateescape"),
        )

    def application_recorder(self) -> SignedSQLiteRecorder:
        """Construct the recorder."""
        return SignedSQLiteRecorder(self._database, signer=self._signer)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _stamp(c: sqlite3.Connection) -> tuple[int, int]:
    """Return what changes with every commit: by others, then by this connection."""
    (others,) = c.execute("PRAGMA data_version").fetchone()
    return others, c.total_changes


def _signed(
    stored_events: Sequence[StoredEvent],
    *,
    origin: str,
    author: AuthorKey | None,
    authors: Sequence[Author | None] | None,
) -> list[Event]:
    """Return the events with their streams' bytes and their authors' signatures."""
    streams = [_stream(stored.originator_id) for stored in stored_events]
    if author is not None:
        if authors is not None:
            raise EncodingError("give either a key that signs or signatures, not both")
        authors = [
            author.author(
                origin=origin,
                stream_id=UUID(bytes=stream),
                stream_version=stored.originator_version,
                name=stored.topic,
                body=stored.state,
            )
            for stream, stored in zip(streams, stored_events, strict=True)
        ]
    if authors is not None and len(authors) != len(streams):
        raise EncodingError(f"there are {len(authors)} authors for {len(streams)} events")
    return [
        (stream, stored.originator_version, stored.topic, stored.state, signed)
        for stream, stored, signed in zip(
            streams, stored_events, authors or repeat(None), strict=False
        )
    ]


def _stream(originator_id: UUID | str) -> bytes:
    if not isinstance(originator_id, UUID):
        raise EncodingError(f"originator_id {originator_id!r} is not a UUID")
    return originator_id.bytes


def _checked(row: tuple[int, bytes, int, str, bytes]) -> Entry:
    """Return a row's entry; raise if the columns that found it say something else."""
    index, stream_id, stream_version, name, data = row
    entry = decode_entry(data)
    if (entry.index, entry.stream_id.bytes, entry.stream_version, entry.name) != (
        index,
        stream_id,
        stream_version,
        name,
    ):
        raise ConsistencyError(f"entry {index} does not match its row", index=index)
    return entry
