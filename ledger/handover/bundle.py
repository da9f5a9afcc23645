"""Export of a ledger as a bundle: a folder to be handed over, or served by any web server.
It may also be a place in object storage.

Source: docs/reference/ledger-format.md, "Bundle"; C2SP tlog-tiles.
Trust: the ledger is verified first, and exported from the snapshot that was verified. A folder
that holds a bundle already is extended, if the ledger continues it.
I/O: the ledger's directory; the bundle's place.  Memory: one entry bundle and one tile a level.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ledger.entries import join_sized
from ledger.errors import BundleError, MalformedError
from ledger.handover.bundle_check import read_head
from ledger.handover.bundle_files import (
    CHECKPOINT,
    HEADS,
    VERIFIER,
    VKEY,
    Place,
    copy_blobs,
    place_of,
    strangers,
)
from ledger.handover.tiles import TILE_WIDTH, Tiler, tile_path
from ledger.paths import LedgerPaths
from ledger.progress import advanced
from ledger.verification.proofs import leaf_hash
from ledger.verification.reader import VerifiedLedger, open_verified, read_vkey
from ledger.verification.states import State
from ledger.verification.vectorized import Growth
from ledger.verification.verified_notes import TreeHead, open_tree_head, parse_tree_head


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What export_bundle() has written."""

    head: TreeHead
    earlier: int  # tree heads beside the newest
    blobs: int


def export_bundle(
    directory: Path, out: Path | Place, *, vkey: str | None = None, blobs: bool = True
) -> Exported:
    """Write the ledger in a directory into a folder, new or with an earlier export of it.

    The newest tree head is written after all that it covers: what is there at any time agrees
    with the one that is there. Raises BundleError for a folder that holds something else,
    ContradictionError for one that holds what this ledger does not continue, and all that
    open_verified() raises.
    """
    out = place_of(out)
    key = read_vkey(LedgerPaths(directory).vkey) if vkey is None else vkey
    shown = _prepare(out, origin=key.partition("+")[0])
    with open_verified(directory, vkey=vkey, kept_head=shown) as ledger:
        if ledger.head is None:
            raise BundleError(
                "the ledger is empty: it has no tree head, so there is nothing to export"
            )
        out.put(VKEY, f"{ledger.vkey}\n".encode())
        out.put(VERIFIER, Path(__file__).with_name("second_verifier.py").read_bytes())
        copied = copy_blobs(directory, out, limits=None) if blobs else 0
        _write_tree(out, ledger)
        out.sync()
        out.put(CHECKPOINT, ledger.head.note.encode())
        earlier = 0  # these last: one that is larger than the newest would contradict it
        for head in _earlier_heads(ledger):
            out.put(f"{HEADS}/{head.size}", head.note.encode())
            earlier += 1
        out.sync()
        return Exported(head=ledger.head, earlier=earlier, blobs=copied)


def _prepare(out: Place, *, origin: str) -> str | None:
    """Make the place, or look at what it holds: the newest tree head of an earlier export."""
    if others := strangers(out):
        raise BundleError(
            f"{out} contains {others[0]!r}, which is not part of a bundle; export into an empty "
            "folder"
        )
    extended = out.exists(CHECKPOINT)
    out.begin(extended=extended)
    if not extended:
        return None
    try:
        shown = read_head(out)
    except MalformedError as e:
        raise BundleError(f"{out} cannot be read: {e}; export into an empty folder") from e
    if shown.origin != origin:
        raise BundleError(
            f"{out} contains the bundle of a different ledger; export into an empty folder"
        )
    return shown.note


def _write_tree(out: Place, ledger: VerifiedLedger) -> None:
    """Write entry bundles and tiles, the partial ones last."""
    tiler = Tiler()
    state = State()
    raw = ledger.raw_entries()
    while entries := list(islice(raw, TILE_WIDTH)):
        path = tile_path("entries", state.size // TILE_WIDTH, width=len(entries))
        out.put(path, join_sized(entries))
        growth = Growth(state, [leaf_hash(data) for data in entries])
        size = state.size + len(entries)
        state = State(size=size, edge=growth.edge(size))
        for tile in tiler.take(growth.completed):
            out.put(tile.path, tile.hashes)
        advanced("exporting entries", size, ledger.size)
    for tile in tiler.rest():
        out.put(tile.path, tile.hashes)


def _earlier_heads(ledger: VerifiedLedger) -> Iterator[TreeHead]:
    """Yield the tree heads before the newest that are cosigned, or the last before a rotation."""
    before: TreeHead | None = None
    authority = ledger.authority
    for note in ledger.head_notes():
        head = parse_tree_head(note)
        if before is not None:
            signer = authority.ledger_vkey_at(before.size)
            cosigned = before.note.count("\n\u2014 ") > 1
            if cosigned or signer != authority.ledger_vkey_at(head.size):
                yield open_tree_head(before.note, vkey=signer)
        before = head
