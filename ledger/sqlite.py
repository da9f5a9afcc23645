"""A persistence module of the eventsourcing library: events as signed, linked entries.

Chosen with PERSISTENCE_MODULE=ledger.sqlite. The library takes the one factory class
that it finds here, so nothing else that is a factory may be imported by name.

Source: docs/reference/ledger-format.md; eventsourcing 9.5, persistence.py.
Trust: what is read back is checked against its own columns only; verify.py judges the whole.
I/O: the database, through database.py.  Units: nanoseconds; notification id = index + 1.
Not covered: snapshots, tracking and subscriptions, which would live outside of the hash links.
"""

import base64
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from eventsourcing import persistence
from eventsourcing.persistence import Notification, StoredEvent
from eventsourcing.utils import Environment, EnvType

from ledger.database import Database
from ledger.entries import NO_PREVIOUS, Entry, decode_entry, encode_entry, entry_hash
from ledger.errors import (
    ConflictError,
    ConsistencyError,
    EncodingError,
    ReadOnlyError,
    StorageError,
    UnsupportedError,
)
from ledger.opening import Signer, open_ledger
from ledger.paths import LedgerPaths
from ledger.tree import Tree

__all__ = ["LedgerFactory", "SignedSQLiteRecorder"]

_MAX_INTEGER = 2**63 - 1

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

    `clock` gives POSIX nanoseconds; without a `signer` the recorder only reads.
    """

    def __init__(
        self,
        database: Database,
        *,
        signer: Signer | None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._database = database
        self._signer = signer
        self._clock = clock

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append a batch, all or nothing, and return its notification ids.

        Raises ConflictError, EncodingError, ReadOnlyError or StorageError.
        """
        if kwargs.get("tracking") is not None:
            raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")
        if self._signer is None:
            raise ReadOnlyError(
                f"{self._database.path}: the private key is not here, so this ledger can only be "
                "read; put its key into place to append"
            )
        if not stored_events:
            return []
        with self._database.transaction(write=True) as c:
            tree, previous, last_time = self._newest(c)
            _check_versions(c, stored_events)
            now = max(self._clock(), last_time)
            first = tree.size
            rows = []
            for stored in stored_events:
                entry = _entry(stored, index=tree.size, time_ns=now, previous=previous)
                previous = entry_hash(entry)
                tree.append(previous)
                rows.append(
                    (
                        tree.size - 1,
                        _stream(stored.originator_id),
                        stored.originator_version,
                        stored.topic,
                        entry,
                    )
                )
            c.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
            note = self._signer.tree_head(size=tree.size, root=tree.root())
            c.execute(
                "INSERT INTO tree_heads VALUES (?, ?, ?)", (tree.size, note, b"".join(tree.edge))
            )
        return list(range(first + 1, tree.size + 1))

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

    def _newest(self, c: sqlite3.Connection) -> tuple[Tree, bytes, int]:
        """Return the tree, the last entry's hash and its time, as of the last tree head."""
        head = c.execute(
            "SELECT size, note, edge FROM tree_heads ORDER BY size DESC LIMIT 1"
        ).fetchone()
        last = c.execute("SELECT idx, entry FROM entries ORDER BY idx DESC LIMIT 1").fetchone()
        if head is None and last is None:
            return Tree(), NO_PREVIOUS, 0
        size, note, edge = head or (0, "", b"")
        tree = Tree(size=size, edge=[edge[at : at + 32] for at in range(0, len(edge), 32)])
        root = base64.b64encode(tree.root()).decode()
        if last is None or last[0] != size - 1 or note.split("\n")[1:3] != [str(size), root]:
            raise ConsistencyError(
                f"{self._database.path}: entries and tree heads do not fit together at size "
                f"{size}; nothing was appended, verify the ledger to see where it was changed",
                index=size,
            )
        return tree, entry_hash(last[1]), decode_entry(last[1]).time_ns


class LedgerFactory(persistence.InfrastructureFactory[persistence.TrackingRecorder]):
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

    def aggregate_recorder(self, purpose: str = "events") -> NoReturn:
        """Not offered: snapshots would be trusted on reading without being in the ledger."""
        raise UnsupportedError(f"a ledger keeps no {purpose} beside its entries")

    def tracking_recorder(
        self,
        tracking_recorder_class: type | None = None,  # noqa: ARG002  (the interface's)
    ) -> NoReturn:
        """Not offered: positions of projections belong to the projections."""
        raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")

    def process_recorder(self) -> NoReturn:
        """Not offered: positions of projections belong to the projections."""
        raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _check_versions(c: sqlite3.Connection, stored_events: Sequence[StoredEvent]) -> None:
    """Raise ConflictError unless each event is the next of its stream."""
    newest: dict[bytes, int | None] = {}
    for stored in stored_events:
        stream = _stream(stored.originator_id)
        if stream not in newest:
            row = c.execute(
                "SELECT MAX(stream_version) FROM entries WHERE stream_id = ?", (stream,)
            ).fetchone()
            newest[stream] = row[0]
        version, last = stored.originator_version, newest[stream]
        if version not in ((0, 1) if last is None else (last + 1,)):
            raise ConflictError(
                f"stream {stored.originator_id} is at version {last}, so {version} cannot follow; "
                "another writer may have appended to it: load it again and retry"
            )
        newest[stream] = version


def _stream(originator_id: UUID | str) -> bytes:
    if not isinstance(originator_id, UUID):
        raise EncodingError(f"originator_id {originator_id!r} is not a UUID")
    return originator_id.bytes


def _entry(stored: StoredEvent, *, index: int, time_ns: int, previous: bytes) -> bytes:
    return encode_entry(
        Entry(
            index=index,
            stream_id=UUID(bytes=_stream(stored.originator_id)),
            stream_version=stored.originator_version,
            time_ns=time_ns,
            previous=previous,
            name=stored.topic,
            body=stored.state,
        )
    )


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
        raise ConsistencyError(f"entry {index} is not the one that its row says", index=index)
    return entry
