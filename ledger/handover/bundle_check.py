"""Verification of a bundle, without the database that it was made of.

Source: docs/reference/ledger-format.md, "Bundle"; C2SP tlog-tiles.
Trust: the bundle is hostile; what was handed to `take` is good when run() has returned.
I/O: reads the bundle's place.
Memory: one entry bundle (16 MiB at most, 100 kB as a rule), one tile for each level, and a
number for each of up to 100,000 streams; beyond those, a temporary file.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from ledger.errors import (
    ConsistencyError,
    MalformedError,
    SignatureError,
    StorageError,
    VerificationError,
)
from ledger.handover.bundle_files import (
    CHECKPOINT,
    HEADS,
    VKEY,
    BlobLimits,
    Place,
    check_blobs,
    place_of,
)
from ledger.handover.tiles import TILE_WIDTH, Tile, Tiler, tile_path
from ledger.progress import advanced
from ledger.verification.reader import VerificationReport
from ledger.verification.states import Versions
from ledger.verification.vectorized import Chunk
from ledger.verification.verified_notes import TreeHead, parse_tree_head
from ledger.verification.verify import HeadRow, Verification, Verified

_MAX_NOTE = 200_000  # bytes
_MAX_ENTRY = 65_535
_SIZE = re.compile(r"[1-9][0-9]{0,18}")


def check_bundle(
    folder: Path | Place,
    *,
    vkey: str | None = None,
    kept_heads: Sequence[str] = (),
    max_blob_bytes: int | None = None,
) -> VerificationReport:
    """Verify the bundle in a folder; report a VerificationError instead of raising it.

    Without a `vkey` the bundle's own is trusted. Raises StorageError for what is no bundle,
    KeptHeadError for what is no tree head, BundleError for blobs above the limits.
    """
    if not is_bundle(folder):
        raise StorageError(f"{folder}: bundle not found; check the path")
    bundle = None
    try:
        bundle = BundlePass(folder, vkey=vkey, kept_heads=kept_heads)
        verified = bundle.run()
        check_blobs(place_of(folder), limits=BlobLimits.of(max_blob_bytes))
    except VerificationError as e:
        if bundle is None:
            return VerificationReport.failed(e, None, shown=None)
        return VerificationReport.failed(e, bundle.verification, shown=bundle.newest.note)
    return VerificationReport.passed(verified)


def is_bundle(folder: Path | Place) -> bool:
    """Tell whether a place claims to be a bundle."""
    return place_of(folder).exists(CHECKPOINT)


def read_vkey(folder: Path | Place, *, owner: str | None = None) -> str:
    """Return the vkey that a bundle states; raise SignatureError if the owner's is another."""
    text = _text(folder, VKEY)
    vkey = text.strip()
    if text != f"{vkey}\n" or "\n" in vkey:
        raise MalformedError(f"{VKEY} must be one line")
    if owner is not None and owner.strip() != vkey:
        raise SignatureError(f"{VKEY}: the bundle's public key is not the one given")
    return vkey


def read_head(folder: Path | Place) -> TreeHead:
    """Return the newest tree head that a bundle claims; nobody's signature is looked at.

    Raises MalformedError naming the file.
    """
    note = _text(folder, CHECKPOINT)
    try:
        return parse_tree_head(note)
    except MalformedError as error:
        raise MalformedError(f"{CHECKPOINT}: {error}") from error


class BundlePass:
    """One walk over a bundle; what is handed on may be a part of a bundle that does not hold."""

    def __init__(
        self,
        folder: Path | Place,
        *,
        vkey: str | None = None,
        kept_heads: Sequence[str] = (),
    ) -> None:
        self.folder = place_of(folder)
        self.vkey = read_vkey(folder, owner=vkey)
        self.newest = read_head(folder)
        if self.newest.origin != self.vkey.partition("+")[0]:
            raise SignatureError(f"{CHECKPOINT} is not a tree head of the ledger in {VKEY}")
        self._sizes = _sizes(self.folder)
        # A note beside the newest of the same size says the same, or is a contradiction.
        beside = [_text(folder, f"{HEADS}/{size}") for size in self._sizes if self._is_last(size)]
        self._versions = _ManyVersions(whole=True)
        self.verification = Verification(
            vkey=self.vkey,
            kept_heads=[*kept_heads, *beside],
            edges=False,
            new_versions=lambda _: self._versions,
        )
        self._tiler = Tiler()
        self._broken: VerificationError | None = None  # where the walk could not go on
        self._fault: VerificationError | None = None  # what else was found, first by index

    def run(
        self,
        *,
        take: Callable[[Chunk], None] = lambda _: None,
        take_head: Callable[[HeadRow, bytes], None] = lambda *_: None,
    ) -> Verified:
        """Raise VerificationError unless the bundle holds; blobs are not looked at.

        `take` and `take_head` are as of Verification.
        """

        def look_at(chunk: Chunk) -> None:  # for what Verification does not: the tiles
            self._compare(self._tiler.take(chunk.growth.completed))
            take(chunk)

        with closing(self._versions):
            try:
                verified = self.verification.run(
                    self._entries(), self._heads(), take=look_at, take_head=take_head
                )
            except VerificationError as e:
                if self._broken is not None and e.index == self._broken.index:
                    raise self._broken from e
                raise
        self._compare(self._tiler.rest())
        if self._fault is not None:
            raise self._fault
        return verified

    def _heads(self) -> Iterator[HeadRow]:
        """Yield the tree heads as rows; a bundle keeps no edges."""
        for size in self._sizes:
            if not self._is_last(size):
                yield size, _text(self.folder, f"{HEADS}/{size}"), b""
        yield self.newest.size, self.newest.note, b""

    def _is_last(self, size: int) -> bool:
        return size == self.newest.size

    def _entries(self) -> Iterator[bytes]:
        """Yield the entries up to the newest tree head's size, or until it breaks off."""
        for start in range(0, self.newest.size, TILE_WIDTH):
            width = min(TILE_WIDTH, self.newest.size - start)
            advanced("verifying the bundle", start + width, self.newest.size)
            path = tile_path("entries", start // TILE_WIDTH, width=width)
            try:
                data = self.folder.read(path, limit=width * (2 + _MAX_ENTRY))
            except MalformedError as e:
                self._broken = MalformedError(str(e), index=start)
                return
            at = 0
            for index in range(start, start + width):
                end = at + 2 + int.from_bytes(data[at : at + 2], "big")
                if end > len(data):
                    self._broken = MalformedError(f"{path} ends within entry {index}", index=index)
                    return
                yield data[at + 2 : end]
                at = end
            if at != len(data):
                last = start + width - 1
                self._found(MalformedError(f"{path} has trailing bytes", index=last))

    def _compare(self, tiles: Iterable[Tile]) -> None:
        """Find tiles that are not, byte for byte, what the entries make them."""
        for tile in tiles:
            first = tile.index * TILE_WIDTH ** (tile.level + 1)
            try:
                found = self.folder.read(tile.path, limit=len(tile.hashes))
            except MalformedError as e:
                self._found(MalformedError(str(e), index=first))
                continue
            if found != tile.hashes:
                places = range(0, len(tile.hashes), 32)
                wrong = (at for at in places if found[at : at + 32] != tile.hashes[at : at + 32])
                index = first + next(wrong) // 32 * TILE_WIDTH**tile.level
                fault = ConsistencyError(f"{tile.path} does not match the entries", index=index)
                self._found(fault)

    def _found(self, fault: VerificationError) -> None:
        """Keep a fault until the entries have been verified, whose own faults say more."""
        if self._fault is None or (fault.index or 0) < (self._fault.index or 0):
            self._fault = fault


class _ManyVersions(Versions):
    """The last version of each stream; in memory for some, and in a temporary file for many."""

    _older: sqlite3.Connection | None = None

    def _begins(self, stream: bytes, version: int) -> bool:
        if self._older is not None:
            found = self._older.execute("SELECT version FROM streams WHERE id = ?", (stream,))
            for (before,) in found:
                return bool(version == before + 1)
        return super()._begins(stream, version)

    def _overflow(self) -> None:
        if self._older is None:
            self._older = sqlite3.connect("")
            self._older.execute("CREATE TABLE streams (id BLOB PRIMARY KEY, version INTEGER)")
        self._older.executemany("REPLACE INTO streams VALUES (?, ?)", self.last.items())
        self._older.commit()
        self.last = {}

    def close(self) -> None:
        """Remove the temporary file."""
        if self._older is not None:
            self._older.close()


def _sizes(folder: Place) -> list[int]:
    """Return the sizes of the earlier tree heads, by the names of their files."""
    return sorted(int(name) for name in folder.names(HEADS) if _SIZE.fullmatch(name))


def _text(folder: Path | Place, relative: str) -> str:
    try:
        return place_of(folder).read(relative, limit=_MAX_NOTE).decode()
    except UnicodeDecodeError as e:
        raise MalformedError(f"{relative} is not text") from e
