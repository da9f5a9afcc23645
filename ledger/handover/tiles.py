"""The Merkle tree as tiles: files of up to 256 hashes, from which any proof can be made.

Source: C2SP tlog-tiles, "Merkle Tree"; docs/reference/ledger-format.md, "Bundle".
I/O: none.  Memory: at most 256 hashes for each level, of which there are eight at most.
"""

import hashlib
from collections.abc import Iterator
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
    """Makes tiles out of leaf hashes that come one by one."""

    def __init__(self) -> None:
        self._levels: list[list[bytes]] = []  # what is not yet in a full tile
        self._made: list[int] = []  # full tiles of each level

    def add(self, leaf_hash: bytes) -> Iterator[Tile]:
        """Take in the next leaf; yield the tiles that it fills, lowest first."""
        node = leaf_hash
        for level in range(8):  # 256^8 leaves is more than there can be
            if level == len(self._levels):
                self._levels.append([])
                self._made.append(0)
            hashes = self._levels[level]
            hashes.append(node)
            if len(hashes) < TILE_WIDTH:
                return
            yield Tile(level=level, index=self._made[level], hashes=b"".join(hashes))
            node = _root(hashes)
            self._levels[level] = []
            self._made[level] += 1

    def rest(self) -> Iterator[Tile]:
        """Yield the partial tiles at the right edge of the tree as it is now."""
        for level, hashes in enumerate(self._levels):
            if hashes:
                yield Tile(level=level, index=self._made[level], hashes=b"".join(hashes))


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
