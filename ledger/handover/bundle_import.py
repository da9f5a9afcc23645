"""Import of a bundle: a ledger to be read, queried and replayed where it was not written.

Source: docs/reference/ledger-format.md, "Bundle", "Files" and "Database".
Trust: the bundle is hostile; the ledger appears when all of it has been verified, or not at all.
I/O: the bundle's place; the new ledger's directory.  Memory: as bundle_check.py.
Not covered: appending. There is no private key beside an imported ledger.
"""

import secrets
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ledger.database import Database, create_database, explained
from ledger.errors import BundleError, ContradictionError, MalformedError
from ledger.files import create_exclusively, sync_folder, sync_folders
from ledger.handover.bundle_check import BundlePass, read_vkey
from ledger.handover.bundle_files import BlobLimits, Place, copy_blobs, measure_blobs, place_of
from ledger.paths import LedgerPaths
from ledger.verification.reader import open_verified
from ledger.verification.vectorized import Chunk
from ledger.verification.verified_entries import row_of
from ledger.verification.verified_notes import TreeHead, parse_note
from ledger.verification.verify import HeadRow


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What import_bundle() has made."""

    origin: str
    size: int  # entries in the ledger now
    new: int  # of them, those that were not there before
    blobs: int


def import_bundle(
    bundle: Path | Place,
    directory: Path,
    *,
    vkey: str | None = None,
    kept_heads: Sequence[str] = (),
    max_blob_bytes: int | None = None,
) -> Imported:
    """Verify a bundle and make a ledger of it, or extend the one that was made of it before.

    Without a `vkey` the bundle's own is trusted. Raises VerificationError for a bundle that does
    not hold or does not continue what is there, BundleError where no bundle can be imported, or
    where its blobs are above the limits.
    """
    bundle, limits = place_of(bundle), BlobLimits.of(max_blob_bytes)
    measure_blobs(bundle, limits=limits)
    if LedgerPaths(directory).database.exists():
        have = _newest(directory, bundle)
        notes = [] if have is None else [have.note]
        walk = BundlePass(bundle, vkey=vkey, kept_heads=[*kept_heads, *notes])
        if have is not None and walk.newest.size < have.size:
            raise ContradictionError(
                f"the bundle is out of date: it has {walk.newest.size} entries, the ledger in "
                f"{directory} has {have.size}; ask for a newer bundle",
                kept=have.note,
                index=walk.newest.size,
            )
        return _fill(directory, walk, have=have.size if have else 0, limits=limits)
    made = [each for each in directory.parents if not each.exists()]  # the innermost first
    with explained(directory):
        if directory.exists() and any(directory.iterdir()):
            raise BundleError(
                f"{directory} is not empty and does not contain a ledger; choose another folder"
            )
        directory.parent.mkdir(parents=True, exist_ok=True)
    new = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}")
    try:
        walk = BundlePass(bundle, vkey=vkey, kept_heads=kept_heads)
        imported = _build(new, walk, limits=limits)
        with explained(directory):
            sync_folders(new)
            new.rename(directory)  # fails if somebody else was quicker
            sync_folder(directory.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        with suppress(OSError):  # a folder that is not empty stays
            for folder in made:
                folder.rmdir()
    return imported


def _build(new: Path, walk: BundlePass, *, limits: BlobLimits) -> Imported:
    paths = LedgerPaths(new)
    with explained(new):
        new.mkdir()
    create_database(paths.database, meta={"origin": walk.newest.origin, "vkey": walk.vkey})
    imported = _fill(new, walk, have=0, limits=limits)
    with explained(new):
        create_exclusively(paths.vkey, f"{walk.vkey}\n".encode(), mode=0o644)
    return imported


def _newest(directory: Path, bundle: Place) -> TreeHead | None:
    """Return the newest tree head of the ledger that is there; raise unless it can be extended."""
    if LedgerPaths(directory).key.exists():
        raise BundleError(
            f"{directory}: this ledger has its private key, so it is written here, not imported; "
            "import into another home"
        )
    with open_verified(directory) as ledger:
        own_vkey, have = ledger.vkey, ledger.head
    if read_vkey(bundle) != own_vkey:
        raise BundleError(f"{directory} contains a different ledger; import into another home")
    return have


def _fill(directory: Path, walk: BundlePass, *, have: int, limits: BlobLimits) -> Imported:
    """Copy what a bundle has beyond the entries that are there, all of it or nothing."""
    path = LedgerPaths(directory).database
    with closing(Database(path)) as database, database.transaction(write=True) as c:
        (size,) = c.execute("SELECT COUNT(*) FROM entries").fetchone()
        if size != have:
            raise BundleError(f"{path}: another import changed the ledger meanwhile; try again")
        walk.run(
            take=lambda chunk: _add_entries(c, chunk, have=have),
            take_head=lambda row, edge: _add_head(c, row, edge),
        )
    blobs = copy_blobs(walk.folder, directory, limits=limits)
    size = walk.newest.size
    return Imported(origin=walk.newest.origin, size=size, new=size - have, blobs=blobs)


def _add_entries(connection: sqlite3.Connection, chunk: Chunk, *, have: int) -> None:
    """Insert the entries that are not there already."""
    start = chunk.growth.start.size
    rows = map(row_of, chunk.entries[max(have - start, 0) :])
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)


def _add_head(connection: sqlite3.Connection, row: HeadRow, edge: bytes) -> None:
    """Insert a tree head, or add its cosignatures to those of the one that is there."""
    size, note, _ = row
    found = connection.execute("SELECT note FROM tree_heads WHERE size = ?", (size,))
    for (there,) in found.fetchall():
        lines = note.rpartition("\n\n")[2].splitlines(keepends=True)
        longer = there + "".join(line for line in lines if line not in there)
        try:
            parse_note(longer)
        except MalformedError:  # too many lines: those that are here stay
            longer = there
        note = longer
    connection.execute("REPLACE INTO tree_heads VALUES (?, ?, ?)", (size, note, edge))
