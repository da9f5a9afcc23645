"""The Merkle tree as tiles: files of up to 256 hashes, from which any proof can be made.

Source: C2SP tlog-tiles, "Merkle Tree"; docs/reference/ledger-format.md, "Bundle".
I/O: none.  Memory: at most 256 hashes for each level, of which there are eight at most.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

TILE_WIDTH = 256  # hashes in a full tile, entries in a full entry bundle
_LEVELS = 8  # 256^8 leaves is more than there can be


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
    """Makes tiles out of the nodes of a tree as they are completed."""

    def __init__(self) -> None:
        """Begin with no entries."""
        self._hashes: list[list[bytes]] = [[] for _ in range(_LEVELS)]  # not yet in a full tile
        self._made = [0] * _LEVELS  # full ones

    def take(self, grown: Callable[[int], Sequence[bytes]]) -> Iterator[Tile]:
        """Take in the nodes that were completed, by height; yield the tiles that they fill."""
        for level, hashes in enumerate(self._hashes):
            hashes.extend(grown(8 * level))
            while len(hashes) >= TILE_WIDTH:
                full = b"".join(hashes[:TILE_WIDTH])
                del hashes[:TILE_WIDTH]
                self._made[level] += 1
                yield Tile(level=level, index=self._made[level] - 1, hashes=full)

    def rest(self) -> Iterator[Tile]:
        """Yield the partial tiles at the right edge of the tree as it is now."""
        for level, hashes in enumerate(self._hashes):
            if hashes:
                yield Tile(level=level, index=self._made[level], hashes=b"".join(hashes))


def tile_path(level: int | str, index: int, *, width: int = TILE_WIDTH) -> str:
    """Return a tile's path; the level `entries` is that of the entry bundles."""
    digits = str(index)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    *groups, last = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "/".join(["tile", str(level), *(f"x{group}" for group in groups), last])
    return path if width == TILE_WIDTH else f"{path}.p/{width}"
