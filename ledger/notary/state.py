"""What a notary stores beside the ledger: who started which stream, who stored which blob.

Source: docs/reference/notary.md, "State".
Trust: its own file, in a folder that nobody else can enter.
I/O: one SQLite file.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from ledger.blobs import SMALLEST
from ledger.database import SQLiteFile

__all__ = ["NotaryState"]


class NotaryState(SQLiteFile):
    """Durable; shared by the notary's threads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="rwc")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.executescript(
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE IF NOT EXISTS streams ("
            " stream_id BLOB PRIMARY KEY, uid INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
            "CREATE TABLE IF NOT EXISTS blobs (sha256 TEXT PRIMARY KEY,"
            " uid INTEGER NOT NULL, size INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        )

    def owner(self, stream: bytes) -> int | None:
        """Return the user who began a stream, None if none did here."""
        with self.transaction(write=False) as c:
            row = c.execute("SELECT uid FROM streams WHERE stream_id = ?", (stream,)).fetchone()
        return None if row is None else int(row[0])

    def claim(self, streams: Iterable[bytes], *, uid: int) -> None:
        """Let streams belong to a user from now on."""
        self._all("INSERT INTO streams VALUES (?, ?)", [(stream, uid) for stream in streams])

    def release(self, streams: Iterable[bytes]) -> None:
        """Let streams that were claimed, and then not begun, belong to nobody."""
        self._all("DELETE FROM streams WHERE stream_id = ?", [(stream,) for stream in streams])

    def blob_bytes(self, uid: int) -> int:
        """Return what all blobs that a user stored first take of the disk."""
        with self.transaction(write=False) as c:
            (size,) = c.execute(
                "SELECT COALESCE(SUM(MAX(size, ?)), 0) FROM blobs WHERE uid = ?", (SMALLEST, uid)
            ).fetchone()
        return int(size)

    def add_blob(self, sha256: str, *, uid: int, size: int) -> None:
        """Put a blob down to a user, unless somebody stored it before."""
        self._all("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", [(sha256, uid, size)])

    def _all(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self.transaction(write=True) as c:
            c.executemany(statement, rows)
