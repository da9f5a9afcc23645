"""A reader's own copy of a notary's ledger, brought up to date before each use.

The notary's files are closed to everybody else, for reading too: whoever can open SQLite's
shared-memory file can lock it, and so stop the notary. A reader keeps a copy of what the notary
shows instead, and verifies that. The copy only grows, so what was shown once cannot be taken back.

Source: docs/reference/notary.md, "Mirrors"; docs/reference/ledger-format.md, "Database".
Trust: nothing that is copied is trusted here; the copy is verified like any ledger.
I/O: the notary; the mirror's database and vkey.
"""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ledger.database import Database, create_database, explained
from ledger.errors import ConsistencyError, KeyFileError, MalformedError
from ledger.files import create_exclusively, read_text
from ledger.notary.messages import Heads, HeadsPage
from ledger.notary.remote import RemoteRecorder
from ledger.paths import MAX_VKEY, LedgerPaths
from ledger.recording.recorders import MAX_INTEGER, InOrder
from ledger.verification.verified_entries import row_of


def refresh_mirror(recorder: RemoteRecorder, directory: Path) -> None:
    """Copy what is new from the notary into a directory, all or nothing.

    Raises KeyFileError if the directory holds another ledger, ConsistencyError if the notary
    shows less than it once did.
    """
    paths = LedgerPaths(directory)
    greeting = recorder.client.greeting
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if not paths.vkey.exists():
            if paths.exist or paths.key.exists():
                raise KeyFileError(
                    f"{directory}: a different ledger is being started there; choose another home"
                )
            create_exclusively(paths.vkey, f"{greeting.vkey}\n".encode(), mode=0o644)
        if read_text(paths.vkey, most=MAX_VKEY).strip() != greeting.vkey:
            raise KeyFileError(
                f"{paths.vkey}: this home has a different ledger than the notary at "
                f"{recorder.client.path}; choose another home"
            )
    if not paths.database.exists():
        create_database(paths.database, meta={"origin": greeting.origin, "vkey": greeting.vkey})
    with closing(Database(paths.database)) as database, database.transaction(write=True) as c:
        _grow(c, recorder, path=paths.database)


def _grow(c: sqlite3.Connection, recorder: RemoteRecorder, *, path: Path) -> None:
    size = c.execute("SELECT COALESCE(MAX(idx) + 1, 0) FROM entries").fetchone()[0]
    upto = _size(recorder.tree_head())
    if upto < size:
        raise ConsistencyError(
            f"{path}: the notary now shows {upto} entries, but showed {size} before; keep this "
            "copy, it may be the only one of the missing entries",
            index=upto,
        )
    if upto > size:
        entries = recorder.raw_entries(
            InOrder(first=size, last=upto - 1, limit=MAX_INTEGER, topics=[])
        )
        c.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", map(row_of, entries))
    after, notes = c.execute(
        "SELECT COALESCE(MAX(size), 0), COALESCE(SUM(LENGTH(note)), 0) FROM tree_heads"
    ).fetchone()
    known, new = _heads(recorder, after=after, upto=upto)
    c.executemany("INSERT INTO tree_heads VALUES (?, ?, ?)", new)
    if known != notes:  # lines were added to notes that are here already
        _add_lines(c, recorder, upto=after, path=path)


def _add_lines(c: sqlite3.Connection, recorder: RemoteRecorder, *, upto: int, path: Path) -> None:
    _, rows = _heads(recorder, after=0, upto=upto)
    for size, note, _edge in rows:
        done = c.execute(
            "UPDATE tree_heads SET note = :note"
            " WHERE size = :size AND substr(:note, 1, length(note)) = note",
            {"size": size, "note": note},
        )
        if done.rowcount != 1:
            raise ConsistencyError(
                f"{path}: the notary now shows a different tree head of size {size}; keep this "
                "copy, it is evidence",
                index=size - 1,
            )


def _heads(
    recorder: RemoteRecorder, *, after: int, upto: int
) -> tuple[int, Iterator[tuple[int, str, bytes]]]:
    """Return how long the notes up to `after` are at the notary, and the tree heads behind it."""
    first, start = recorder.client.ask(Heads(after=after, upto=upto), HeadsPage)

    def rows() -> Iterator[tuple[int, str, bytes]]:
        answer, payload = first, start
        while page := list(_parse_heads(payload)):
            yield from page
            if not answer.more:
                return
            following = Heads(after=page[-1][0], upto=upto)
            answer, payload = recorder.client.ask(following, HeadsPage)

    return first.known, rows()


def _parse_heads(payload: bytes) -> Iterator[tuple[int, str, bytes]]:
    at = 0
    try:
        while at < len(payload):
            size, note, edge = struct.unpack_from(">QHH", payload, at)
            if size >= 2**63:
                raise MalformedError("the notary's tree heads have a size of 2^63 or more")
            at += 12
            yield size, payload[at : at + note].decode(), payload[at + note : at + note + edge]
            at += note + edge
    except (struct.error, UnicodeDecodeError) as e:
        raise MalformedError(f"the notary's tree heads are cut short: {e}") from e


def _size(note: str | None) -> int:
    """Return the size that a tree head states, unverified."""
    if note is None:
        return 0
    try:
        return int(note.split("\n")[1])
    except (IndexError, ValueError) as e:
        raise MalformedError("the notary's newest tree head is not a valid tree head") from e
