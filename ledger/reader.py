"""Reading a ledger's file for verification, without ever writing to it.

Verified, then used: both passes run in one read transaction, so what was verified
is what the caller gets.

Source: docs/reference/ledger-format.md, "Database".
Trust: the file is hostile; entries are released only after all of them were verified.
I/O: reads the database and the vkey; where its folder cannot be written, works on a copy.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.database import check_file, check_schema, explained
from ledger.errors import (
    ConsistencyError,
    KeyFileError,
    SignatureError,
    StorageError,
    VerificationError,
)
from ledger.paths import LedgerPaths
from ledger.verified_entries import VerifiedEntry, parse_entry
from ledger.verified_notes import TreeHead
from ledger.verify import EntryRow, HeadRow, Verification

__all__ = [
    "VerificationReport",
    "VerifiedLedger",
    "check_ledger",
    "open_verified",
    "read_tree_head",
]

_MAX_VALUE = 1_000_000  # bytes of one column; ten times what the format allows
# Always from the very first row: a WHERE would hide rows below it, and would look for its start
# in the tree's inner pages, which nobody verifies. What lies in its place is at the same offset.
_ENTRIES = """
    SELECT idx, stream_id, stream_version, name, CASE WHEN length(entry) <= 65535 THEN entry END
    FROM entries NOT INDEXED ORDER BY idx LIMIT -1 OFFSET ?"""
_HEADS = "SELECT size, note, edge FROM tree_heads ORDER BY size"
_NEWEST_HEAD = "SELECT note FROM tree_heads ORDER BY size DESC LIMIT 1"
_FIRST_VERSION_OUT_OF_STEP = """
    SELECT idx FROM (
        SELECT idx, stream_version, LAG(stream_version)
            OVER (PARTITION BY stream_id ORDER BY idx) AS before
        FROM entries NOT INDEXED)
    WHERE CASE WHEN before IS NULL THEN stream_version > 1 ELSE stream_version <> before + 1 END
    ORDER BY idx LIMIT 1"""


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """What check_ledger() found."""

    ok: bool
    size: int  # entries that fit together, up to the fault if there is one
    head: TreeHead | None  # the newest tree head that holds
    error: str | None = None
    error_type: str | None = None
    index: int | None = None  # the first bad entry, where one is known


@dataclass(frozen=True)
class VerifiedLedger:
    """A ledger that held, as of one moment; for use inside of open_verified() only."""

    size: int
    head: TreeHead | None
    vkey: str
    _path: Path
    _connection: sqlite3.Connection

    def entries(self, *, start: int = 0) -> Iterator[VerifiedEntry]:
        """Yield the entries that were verified, from this index on."""
        with explained(self._path):
            rows = self._connection.execute(_ENTRIES, (start,))
        while True:
            with explained(self._path):  # around each step, so as not to explain a caller's errors
                row = rows.fetchone()
            if row is None:
                return
            yield parse_entry(row[4], index=row[0])


@contextmanager
def open_verified(
    directory: Path, *, vkey: str | None = None, kept_head: str | None = None
) -> Iterator[VerifiedLedger]:
    """Verify the ledger in a directory, then give access to exactly what was verified.

    Without a `vkey` the one beside the ledger is believed. Raises VerificationError for a
    ledger that does not hold, StorageError or KeyFileError for what is not a ledger at all,
    KeptHeadError for a `kept_head` that is not a tree head.
    """
    paths = LedgerPaths(directory)
    key = _read_vkey(paths.vkey) if vkey is None else vkey.strip()
    verification = Verification(vkey=key, kept_heads=() if kept_head is None else (kept_head,))
    with _snapshot(paths.database) as connection:
        _verify(connection, verification, path=paths.database, vkey=key)
        yield VerifiedLedger(verification.size, verification.head, key, paths.database, connection)


def check_ledger(
    directory: Path, *, vkey: str | None = None, kept_head: str | None = None
) -> VerificationReport:
    """Verify as open_verified() does, but report a VerificationError instead of raising it."""
    paths = LedgerPaths(directory)
    key = _read_vkey(paths.vkey) if vkey is None else vkey.strip()
    verification = None
    try:
        verification = Verification(vkey=key, kept_heads=() if kept_head is None else (kept_head,))
        with _snapshot(paths.database) as connection:
            _verify(connection, verification, path=paths.database, vkey=key)
    except VerificationError as e:
        return VerificationReport(
            ok=False,
            size=verification.size if verification else 0,
            head=verification.head if verification else None,
            error=str(e),
            error_type=type(e).__name__,
            index=e.index,
        )
    return VerificationReport(ok=True, size=verification.size, head=verification.head)


def read_tree_head(directory: Path) -> str | None:
    """Return the newest tree head's note, unverified, for keeping; None in an empty ledger."""
    path = LedgerPaths(directory).database
    with _snapshot(path) as connection, explained(path):
        row = connection.execute(_NEWEST_HEAD).fetchone()
    return None if row is None else str(row[0])


def _read_vkey(path: Path) -> str:
    if not path.exists():
        raise KeyFileError(f"{path}: the public key is missing; give the ledger's vkey")
    with explained(path):
        return path.read_text(encoding="utf-8", errors="replace").strip()


def _verify(
    connection: sqlite3.Connection, verification: Verification, *, path: Path, vkey: str
) -> None:
    with explained(path):
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        if meta != {"origin": vkey.partition("+")[0], "vkey": vkey}:
            raise SignatureError(f"{path}: this ledger states another key than the one given")
        entries: Iterator[EntryRow] = connection.execute(_ENTRIES, (0,))
        heads: Iterator[HeadRow] = connection.execute(_HEADS)
        verification.run(entries, heads)
        # Here and not there, because it takes memory or a sort: the columns are verified by now.
        bad = connection.execute(_FIRST_VERSION_OUT_OF_STEP).fetchone()
    if bad is not None:
        raise ConsistencyError(
            f"entry {bad[0]} is not the next version of its stream", index=bad[0]
        )


@contextmanager
def _snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection inside of a read transaction."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(_connect(path)))
        except StorageError as e:
            # SQLite wants to write -wal and -shm beside the file; where it cannot, use a copy.
            cause = getattr(e.__cause__, "sqlite_errorname", "")
            if not cause.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
                raise
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with explained(path):
                for source in (path, path.with_name(f"{path.name}-wal")):
                    if source.exists():
                        shutil.copyfile(source, folder / source.name)
            connection = stack.enter_context(closing(_connect(folder / path.name)))
        yield connection


def _connect(path: Path) -> sqlite3.Connection:
    check_file(path)
    with explained(path):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30.0, isolation_level=None
        )
        try:
            # A text that is not UTF-8 must reach the verifier, not fail in between.
            connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN")
            check_schema(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection
