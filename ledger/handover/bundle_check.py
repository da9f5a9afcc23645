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
from ledger.verification.reader import VerificationReport, Verified
from ledger.verification.states import Signatures, State
from ledger.verification.vectorized import MismatchError, Versions, verify_segment
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import TreeHead, parse_tree_head
from ledger.verification.verify import EntryRow, HeadRow, Verification

__all__ = ["BundlePass", "check_bundle", "is_bundle", "read_head", "read_vkey"]

_MAX_NOTE = 200_000  # bytes
_MAX_ENTRY = 65_535
_MAX_STREAMS = 100_000  # whose versions are kept in memory: some 20 MB
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
        verified = bundle.in_bulk()
        if verified is None:  # something does not fit: what it is, the pass one by one finds
            bundle = BundlePass(folder, vkey=vkey, kept_heads=kept_heads)
            bundle.run()
            found = bundle.verification
            verified = Verified(found.state, found.head, found.authority)
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
    """One walk over a bundle; each entry's row is handed on before it is known to be good."""

    def __init__(
        self,
        folder: Path | Place,
        *,
        vkey: str | None = None,
        kept_heads: Sequence[str] = (),
        signatures: Signatures = "all",
    ) -> None:
        self.folder = place_of(folder)
        self.vkey = read_vkey(folder, owner=vkey)
        self.newest = read_head(folder)
        if self.newest.origin != self.vkey.partition("+")[0]:
            raise SignatureError(f"{CHECKPOINT} is not a tree head of the ledger in {VKEY}")
        self._sizes = _sizes(self.folder)
        # A note beside the newest of the same size says the same, or is a contradiction.
        beside = [_text(folder, f"{HEADS}/{size}") for size in self._sizes if self._is_last(size)]
        self.verification = Verification(
            vkey=self.vkey,
            kept_heads=[*kept_heads, *beside],
            signatures=signatures,
            edges=False,
        )
        self._signatures = signatures
        self._streams = _Streams()
        self._tiler = Tiler()
        self._size = 0  # entries whose tiles were compared
        self._broken: VerificationError | None = None  # where the walk could not go on
        self._fault: VerificationError | None = None  # what else was found, first by index

    def in_bulk(self) -> Verified | None:
        """Verify in columns; return None where something does not fit, or is too large for that.

        As vectorized.py, it may refuse too much. Call it on an object that is not used otherwise.
        """
        try:
            segment = verify_segment(
                self._entries(),
                self._heads(None),
                vkey=self.vkey,
                start=State(),
                kept_heads=self.verification.kept_heads,
                signatures=self._signatures,
                edges=False,
                on_growth=lambda grown: self._compare_all(self._tiler.take(grown)),
            )
            segment.versions.follow(Versions())
        except (MismatchError, VerificationError):
            return None
        self._compare_all(self._tiler.rest())
        if self._fault is not None or segment.versions.overflowed:
            return None
        return Verified(segment.end, segment.head, segment.authority)

    def run(
        self,
        *,
        take: Callable[[EntryRow, bytes], None] | None = None,
        take_head: Callable[[int, str], None] | None = None,
    ) -> None:
        """Raise VerificationError unless the bundle holds; blobs are not looked at.

        `take` is given each entry's row and hash; `take_head` each tree head's size and note, not
        later than the next entry after those that it covers.
        """
        with closing(self._streams):
            try:
                self.verification.run(self._rows(take), self._heads(take_head))
            except VerificationError as e:
                if self._broken is not None and e.index == self._broken.index:
                    raise self._broken from e
                raise
            self._compare_all(self._tiler.rest())
        if self._fault is not None:
            raise self._fault

    def _heads(self, take: Callable[[int, str], None] | None) -> Iterator[HeadRow]:
        """Yield the tree heads as rows; a bundle keeps no edges."""
        for size in self._sizes:
            if not self._is_last(size):
                note = _text(self.folder, f"{HEADS}/{size}")
                if take is not None:
                    take(size, note)
                yield size, note, b""
        if take is not None:
            take(self.newest.size, self.newest.note)
        yield self.newest.size, self.newest.note, b""

    def _is_last(self, size: int) -> bool:
        return size == self.newest.size

    def _rows(self, take: Callable[[EntryRow, bytes], None] | None) -> Iterator[EntryRow]:
        """Yield rows as the database has them; one with no entry where the bundle breaks off."""
        try:
            for index, data in enumerate(self._entries()):
                try:
                    entry = parse_entry(data, index=index)
                except MalformedError:
                    yield index, b"", 0, "", data  # verification says where, and what is wrong
                    return
                self._look_at(entry, index)
                row = (index, entry.stream_id.bytes, entry.stream_version, entry.name, data)
                if take is not None:
                    take(row, entry.entry_hash)
                yield row
        except VerificationError as e:
            self._broken = e
            yield e.index or 0, b"", 0, "", b""

    def _entries(self) -> Iterator[bytes]:
        """Yield the entries of the entry bundles, to the size of the newest tree head."""
        for start in range(0, self.newest.size, TILE_WIDTH):
            width = min(TILE_WIDTH, self.newest.size - start)
            advanced("verifying the bundle", start + width, self.newest.size)
            path = tile_path("entries", start // TILE_WIDTH, width=width)
            try:
                data = self.folder.read(path, limit=width * (2 + _MAX_ENTRY))
            except MalformedError as e:
                raise MalformedError(str(e), index=start) from e
            at = 0
            for index in range(start, start + width):
                end = at + 2 + int.from_bytes(data[at : at + 2], "big")
                if end > len(data):
                    raise MalformedError(f"{path} ends within entry {index}", index=index)
                yield data[at + 2 : end]
                at = end
            if at != len(data):
                last = start + width - 1
                self._found(MalformedError(f"{path} has trailing bytes", index=last))

    def _look_at(self, entry: VerifiedEntry, index: int) -> None:
        """Check what Verification does not: the streams' versions, and the tiles."""
        before = self._streams.last(entry.stream_id.bytes)
        if entry.stream_version not in ((0, 1) if before is None else (before + 1,)):
            self._found(
                ConsistencyError(
                    f"entry {index} is not the next version of its stream", index=index
                )
            )
        self._streams.put(entry.stream_id.bytes, entry.stream_version)
        self._compare_all(self._tiler.add(entry.entry_hash))

    def _compare_all(self, tiles: Iterable[Tile]) -> None:
        for tile in tiles:
            self._compare(tile)

    def _compare(self, tile: Tile) -> None:
        """Find a tile that is not, byte for byte, what the entries make it."""
        first = tile.index * TILE_WIDTH ** (tile.level + 1)
        try:
            found = self.folder.read(tile.path, limit=len(tile.hashes))
        except MalformedError as e:
            self._found(MalformedError(str(e), index=first))
            return
        if found != tile.hashes:
            places = range(0, len(tile.hashes), 32)
            wrong = (at for at in places if found[at : at + 32] != tile.hashes[at : at + 32])
            index = first + next(wrong) // 32 * TILE_WIDTH**tile.level
            self._found(ConsistencyError(f"{tile.path} does not match the entries", index=index))

    def _found(self, fault: VerificationError) -> None:
        """Keep a fault until the entries have been verified, whose own faults say more."""
        if self._fault is None or (fault.index or 0) < (self._fault.index or 0):
            self._fault = fault


class _Streams:
    """The last version of each stream; in memory for some, and in a temporary file for many."""

    def __init__(self) -> None:
        self._recent: dict[bytes, int] = {}
        self._others: sqlite3.Connection | None = None

    def last(self, stream: bytes) -> int | None:
        version = self._recent.get(stream)
        if version is None and self._others is not None:
            found = self._others.execute("SELECT version FROM streams WHERE id = ?", (stream,))
            version = next((row[0] for row in found), None)
        return version

    def put(self, stream: bytes, version: int) -> None:
        self._recent[stream] = version
        if len(self._recent) < _MAX_STREAMS:
            return
        if self._others is None:
            self._others = sqlite3.connect("")
            self._others.execute("CREATE TABLE streams (id BLOB PRIMARY KEY, version INTEGER)")
        self._others.executemany("REPLACE INTO streams VALUES (?, ?)", self._recent.items())
        self._others.commit()
        self._recent = {}

    def close(self) -> None:
        if self._others is not None:
            self._others.close()


def _sizes(folder: Place) -> list[int]:
    """Return the sizes of the earlier tree heads, by the names of their files."""
    return sorted(int(name) for name in folder.names(HEADS) if _SIZE.fullmatch(name))


def _text(folder: Path | Place, relative: str) -> str:
    try:
        return place_of(folder).read(relative, limit=_MAX_NOTE).decode()
    except UnicodeDecodeError as e:
        raise MalformedError(f"{relative} is not text") from e
