"""What a witness must not forget: the latest tree head that it cosigned, for each ledger.

One SQLite file, in WAL mode and with full syncs: of all modes the one in which a commit that
returned is on the disk after one sync. Threads and processes take turns.

Trust: the file is the witness's own. An old copy put back makes it sign what it must not.
I/O: the file.  Units: POSIX seconds.
"""

import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

from ledger.database import check_regular, explained, in_the_making
from ledger.errors import StorageError
from ledger.witnessing.rules import KnownLog

__all__ = ["WitnessStore", "create_store", "origin_hash"]

_T = TypeVar("_T")
_APPLICATION_ID = 0x50525731  # "PRW1"
_LOCK_TIMEOUT = 30.0  # seconds to wait for another process's transaction
_SCHEMA = """
    CREATE TABLE logs (
        origin_hash TEXT PRIMARY KEY,
        vkey TEXT NOT NULL,
        rotations TEXT NOT NULL,
        note TEXT,
        seconds INTEGER NOT NULL
    ) STRICT"""
_SELECT = "SELECT vkey, rotations, note, seconds FROM logs WHERE origin_hash = ?"


class WitnessStore:
    """The ledgers that a witness knows, by the hash of their origin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()  # held through a transaction: threads take turns
        if not path.exists():
            raise StorageError(
                f"{path}: witness database not found; `witness init` makes a witness. If there "
                "was one, do not restore an old copy: start a new witness with a new key"
            )
        check_regular(path)
        with explained(path):
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=rw",
                uri=True,
                timeout=_LOCK_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._connection.execute("PRAGMA synchronous = FULL")
                _check_application(self._connection, path)
                _empty_log(self._connection)
            except BaseException:
                self._connection.close()
                raise

    def get(self, log: str) -> KnownLog | None:
        """Return what is known of a ledger, by its origin's hash."""
        with self._lock, explained(self.path):
            return _known(self._connection, log)

    def update(
        self, log: str, change: Callable[[KnownLog | None], tuple[KnownLog | None, _T]]
    ) -> _T:
        """Let a function decide, alone, and return its answer when its decision is on the disk.

        It gets what is known and returns what is to be known from now on, and the answer.
        """
        with self._lock, explained(self.path):
            c = self._connection
            c.execute("BEGIN IMMEDIATE")
            try:
                before = _known(c, log)
                after, answer = change(before)
                if after is not None and after != before:
                    c.execute(
                        "INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)",
                        (log, after.vkey, after.rotations, after.note, after.seconds),
                    )
                c.execute("COMMIT")
            except BaseException:
                if c.in_transaction:  # SQLite may have rolled back by itself
                    c.execute("ROLLBACK")
                raise
            return answer

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        with self._lock:
            self._connection.close()


def create_store(path: Path) -> None:
    """Make an empty memory under this name; if another process was faster, leave its own."""
    with in_the_making(path) as c:
        c.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        c.execute(_SCHEMA)


def origin_hash(origin: str) -> str:
    """Return the SHA-256 of an origin in hexadecimal, by which the protocol names it."""
    return hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()


def _check_application(c: sqlite3.Connection, path: Path) -> None:
    (application_id,) = c.execute("PRAGMA application_id").fetchone()
    if application_id != _APPLICATION_ID:
        raise StorageError(f"{path}: this is not a witness database; check the path")


def _empty_log(c: sqlite3.Connection) -> None:
    """Move what the write-ahead log holds into the file, unless others are at work.

    A commit whose sync failed may lie in the log, whole in the kernel's memory and not on the
    disk. Nothing may be built on it before it is.
    """
    c.execute("PRAGMA busy_timeout = 0")
    try:
        c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as e:
        if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
    c.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT * 1000:.0f}")


def _known(c: sqlite3.Connection, log: str) -> KnownLog | None:
    row = c.execute(_SELECT, (log,)).fetchone()
    if row is None:
        return None
    vkey, rotations, note, seconds = row
    return KnownLog(vkey=vkey, rotations=rotations, note=note, seconds=seconds)
