"""What a notary stores beside the ledger: who started which stream, who stored which blob.

Source: docs/reference/notary.md, "State".
Trust: its own file, in a folder that nobody else can enter.
I/O: one SQLite file.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledger.blobs import SMALLEST
from ledger.database import SQLiteFile

_MAX_OWNERS = 10_000  # streams whose owner is remembered


class NotaryState(SQLiteFile):
    """Durable; shared by the notary's threads, and nobody else writes it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="rwc")
        self._owners: dict[bytes, int] = {}  # of streams asked for lately

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
        known = self._owners.get(stream)
        if known is not None:
            return known
        with self.transaction(write=False) as c:
            row = c.execute("SELECT uid FROM streams WHERE stream_id = ?", (stream,)).fetchone()
        if row is None:
            return None
        if len(self._owners) >= _MAX_OWNERS:
            self._owners.clear()
        self._owners[stream] = int(row[0])
        return int(row[0])

    def claim(self, streams: Mapping[bytes, int]) -> None:
        """Let streams belong to users from now on."""
        if streams:
            self._all("INSERT INTO streams VALUES (?, ?)", streams.items())

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

    def _all(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        with self.transaction(write=True) as c:
            c.executemany(statement, rows)
