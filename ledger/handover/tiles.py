"""The Merkle tree as tiles: files of up to 256 hashes, from which any proof can be made.

Source: C2SP tlog-tiles, "Merkle Tree"; docs/reference/ledger-format.md, "Bundle".
I/O: none.  Memory: at most 256 hashes for each level, of which there are eight at most.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["TILE_WIDTH", "Tile", "Tiler", "tile_path"]

TILE_WIDTH = 256  # hashes in a full tile, entries in a full entry bundle


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Neighbouring hashes of one level: those of 256^level entries each."""

    level: int
    index: int
    hashes: bytes  # (width * 32,)

    @property
    def path(self) -> str:
        """Where the tile lies, below the bundle's folder."""
        return tile_path(self.level, self.index, width=len(self.hashes) // 32)


class Tiler:
    """Makes tiles out of leaf hashes, or out of the nodes of a tree as they are completed."""

    def __init__(self, *, levels: int = 8, start: int = 0) -> None:
        """Begin with the entry `start`, at the edge of a tile of the highest of the levels."""
        self._hashes: list[list[bytes]] = [[] for _ in range(levels)]  # not yet in a full tile
        self._made = [start // TILE_WIDTH ** (level + 1) for level in range(levels)]  # full ones

    def add(self, leaf_hash: bytes) -> Iterator[Tile]:
        """Take in the next leaf; yield the tiles that it fills, lowest first."""
        node = leaf_hash
        for level, hashes in enumerate(self._hashes):  # 256^8 leaves is more than there can be
            hashes.append(node)
            if len(hashes) < TILE_WIDTH:
                return
            node = _root(hashes)
            yield self._filled(level)

    def take(self, grown: Callable[[int], Sequence[bytes]]) -> Iterator[Tile]:
        """Take in the nodes that were completed, by height; yield the tiles that they fill."""
        for level, hashes in enumerate(self._hashes):
            hashes.extend(grown(8 * level))
            while len(hashes) >= TILE_WIDTH:
                yield self._filled(level)

    def rest(self) -> Iterator[Tile]:
        """Yield the partial tiles at the right edge of the tree as it is now."""
        for level, hashes in enumerate(self._hashes):
            if hashes:
                yield Tile(level=level, index=self._made[level], hashes=b"".join(hashes))

    def _filled(self, level: int) -> Tile:
        hashes = self._hashes[level]
        full = b"".join(hashes[:TILE_WIDTH])
        del hashes[:TILE_WIDTH]
        self._made[level] += 1
        return Tile(level=level, index=self._made[level] - 1, hashes=full)


def tile_path(level: int | str, index: int, *, width: int = TILE_WIDTH) -> str:
    """Return a tile's path; the level `entries` is that of the entry bundles."""
    digits = str(index)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    *groups, last = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "/".join(["tile", str(level), *(f"x{group}" for group in groups), last])
    return path if width == TILE_WIDTH else f"{path}.p/{width}"


def _root(hashes: list[bytes]) -> bytes:
    """Return the root over a full tile."""
    while len(hashes) > 1:
        hashes = [
            hashlib.sha256(b"\x01" + left + right).digest()
            for left, right in zip(hashes[::2], hashes[1::2], strict=True)
        ]
    return hashes[0]
