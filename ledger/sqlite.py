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
from pathlib import Path
from threading import Lock
from typing import Any

from eventsourcing.persistence import StoredEvent
from eventsourcing.utils import Environment, EnvType

from ledger.database import Database
from ledger.entries import Author, AuthorKey
from ledger.errors import (
    ConsistencyError,
    ReadOnlyError,
    StorageError,
)
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.recording import recorders
from ledger.recording.batch import Batch
from ledger.recording.clocks import BOOT_CLOCK, Clocks
from ledger.recording.newest import Newest, read_newest
from ledger.recording.opening import Signer, open_ledger
from ledger.tree import Tree
from ledger.verification.authority import Authority
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.witnessing.head_lines import add_line

__all__ = ["ENTRIES", "STREAM_DOWN", "STREAM_UP", "LedgerFactory", "SignedSQLiteRecorder"]

_MAX_VERSIONS = 10_000  # streams whose last version is remembered
_NEVER = (-1, -1)

_STREAM = """
    SELECT idx, stream_id, stream_version, name, entry FROM entries
    WHERE stream_id = ? AND stream_version > ? AND stream_version <= ?
    ORDER BY stream_version {order} LIMIT ?"""
STREAM_UP, STREAM_DOWN = _STREAM.format(order="ASC"), _STREAM.format(order="DESC")
ENTRIES = """
    SELECT idx, stream_id, stream_version, name, entry FROM entries
    WHERE idx >= ?1 AND idx <= ?2 AND (?3 IS NULL OR name IN (SELECT value FROM json_each(?3)))
    ORDER BY idx LIMIT ?4"""


class SignedSQLiteRecorder(recorders.EntryRecorder):
    """Appends batches of events, each linked, and closed by a signed tree head.

    `clock` gives POSIX nanoseconds, `steady_clock` nanoseconds that nobody sets, if there is
    such a clock. Without a `signer` the recorder only reads. With a `registry` it takes only events
    that can be read by it.
    """

    def __init__(
        self,
        database: Database,
        *,
        signer: Signer | None,
        clock: Callable[[], int] = time.time_ns,
        steady_clock: Callable[[], int] | None = BOOT_CLOCK,
        registry: EventRegistry | None = None,
    ) -> None:
        self._database = database
        self._signer = signer
        self.registry = registry
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
        StorageError; UnknownEventError or MalformedError for what no reader could read;
        ConsistencyError if the ledger has been changed below its end.
        """
        signer = self._writer()
        if self.registry is not None:
            for event in stored_events:
                self.registry.verify_new(
                    event.topic, event.state, stream_version=event.originator_version
                )
        events = recorders.signed_events(
            stored_events,
            origin=self._origin,
            tracking=kwargs.get("tracking"),
            author=author,
            authors=authors,
        )
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

    def stream_entries(
        self, stream: bytes, *, gt: int | None, lte: int | None, desc: bool, limit: int | None
    ) -> list[VerifiedEntry]:
        """Return entries of one stream, in the order of their versions."""
        return self._entries(
            STREAM_DOWN if desc else STREAM_UP,
            (
                stream,
                -1 if gt is None else gt,
                recorders.MAX_INTEGER if lte is None else lte,
                -1 if limit is None else limit,
            ),
        )

    def entries_between(
        self, first: int, last: int, *, limit: int, topics: Sequence[str]
    ) -> list[VerifiedEntry]:
        """Return entries from one index to another; of these names, if any are given."""
        return self._entries(
            ENTRIES, (first, last, json.dumps(list(topics)) if topics else None, limit)
        )

    def _entries(self, statement: str, parameters: tuple[object, ...]) -> list[VerifiedEntry]:
        with self._database.transaction(write=False) as c:
            return list(map(_checked, c.execute(statement, parameters).fetchall()))

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


class LedgerFactory(recorders.EventsOnlyFactory):
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


def _checked(row: tuple[int, bytes, int, str, bytes]) -> VerifiedEntry:
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
