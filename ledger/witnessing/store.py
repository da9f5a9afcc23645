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
from typing import TypeVar

from ledger.database import SQLiteFile, check_regular, in_the_making
from ledger.errors import StorageError
from ledger.witnessing.rules import KnownLog

_T = TypeVar("_T")
_APPLICATION_ID = 0x50525731  # "PRW1"
_SCHEMA = """
    CREATE TABLE logs (
        origin_hash TEXT PRIMARY KEY,
        vkey TEXT NOT NULL,
        rotations TEXT NOT NULL,
        note TEXT,
        seconds INTEGER NOT NULL
    ) STRICT"""
_SELECT = "SELECT vkey, rotations, note, seconds FROM logs WHERE origin_hash = ?"


class WitnessStore(SQLiteFile):
    """The ledgers that a witness knows, by the hash of their origin."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise StorageError(
                f"{path}: witness database not found; `witness serve --name NAME` makes a witness. "
                "If there was one, do not restore an old copy: start a new witness with a new key"
            )
        check_regular(path)
        super().__init__(path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        if application_id != _APPLICATION_ID:
            raise StorageError(f"{self.path}: this is not a witness database; check the path")

    def get(self, log: str) -> KnownLog | None:
        """Return what is known of a ledger, by its origin's hash."""
        with self.transaction(write=False) as c:
            return _known(c, log)

    def update(
        self, log: str, change: Callable[[KnownLog | None], tuple[KnownLog | None, _T]]
    ) -> _T:
        """Let a function decide, alone, and return its answer when its decision is on the disk.

        It gets what is known and returns what is to be known from now on, and the answer.
        """
        with self.transaction(write=True) as c:
            before = _known(c, log)
            after, answer = change(before)
            if after is not None and after != before:
                c.execute(
                    "INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)",
                    (log, after.vkey, after.rotations, after.note, after.seconds),
                )
        return answer


def create_store(path: Path) -> None:
    """Make an empty memory under this name; if another process was faster, leave its own."""
    with in_the_making(path) as c:
        c.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        c.execute(_SCHEMA)


def origin_hash(origin: str) -> str:
    """Return the SHA-256 of an origin in hexadecimal, by which the protocol names it."""
    return hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()


def _known(c: sqlite3.Connection, log: str) -> KnownLog | None:
    row = c.execute(_SELECT, (log,)).fetchone()
    if row is None:
        return None
    vkey, rotations, note, seconds = row
    return KnownLog(vkey=vkey, rotations=rotations, note=note, seconds=seconds)
