"""Tiles against the specification's examples and against the definition by whole trees."""

import pytest
from naive_trees import leaves, root

from ledger.handover.tiles import TILE_WIDTH, Tile, Tiler, tile_path
from ledger.verification.states import State
from ledger.verification.vectorized import Growth

LEAVES = leaves(70_000)


def tiles(size: int) -> dict[str, Tile]:
    tiler = Tiler()
    made = list(tiler.take(Growth(State(), LEAVES[:size]).completed))
    made += tiler.rest()
    by_path = {tile.path: tile for tile in made}
    assert len(by_path) == len(made)
    return by_path


@pytest.fixture(scope="module")
def tiles_of_70_000() -> dict[str, Tile]:
    return tiles(70_000)


@pytest.mark.parametrize(
    ("index", "path"),
    [
        (0, "tile/0/000"),
        (7, "tile/0/007"),
        (999, "tile/0/999"),
        (1_000, "tile/0/x001/000"),
        (1_234_067, "tile/0/x001/x234/067"),  # the specification's
        (2**55 - 1, "tile/0/x036/x028/x797/x018/x963/967"),
    ],
)
def test_path_is_written_in_groups_of_three_digits(index: int, path: str) -> None:
    assert tile_path(0, index) == path
    assert tile_path(0, index, width=112) == f"{path}.p/112"
    assert tile_path("entries", index) == path.replace("tile/0", "tile/entries")


def test_tree_of_70_000_has_the_tiles_of_the_specification(
    tiles_of_70_000: dict[str, Tile],
) -> None:
    paths = set(tiles_of_70_000)
    full = {path for path in paths if ".p/" not in path}
    assert len([path for path in full if path.startswith("tile/0/")]) == 273
    assert {path for path in full if not path.startswith("tile/0/")} == {"tile/1/000"}
    assert paths - full == {"tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"}


@pytest.mark.parametrize(
    ("size", "rightmost"),
    [
        (0, set()),
        (1, {"tile/0/000.p/1"}),
        (255, {"tile/0/000.p/255"}),
        (256, {"tile/1/000.p/1"}),
        (257, {"tile/0/001.p/1", "tile/1/000.p/1"}),
        (65_535, {"tile/0/255.p/255", "tile/1/000.p/255"}),
        (65_536, {"tile/2/000.p/1"}),
        (65_537, {"tile/0/256.p/1", "tile/2/000.p/1"}),
    ],
)
def test_right_edge_has_the_partial_tiles_of_the_formula(size: int, rightmost: set[str]) -> None:
    made = tiles(size)
    assert {path for path in made if ".p/" in path} == rightmost
    for level in range(4):  # floor(s / 256^l) mod 256 hashes, and none of no hashes
        width = size // 256**level % 256
        found = [t for t in made.values() if t.level == level and len(t.hashes) < 32 * TILE_WIDTH]
        assert [len(tile.hashes) // 32 for tile in found] == ([width] if width else [])


@pytest.mark.parametrize("size", [1, 255, 256, 257, 511, 513, 1_000])
def test_hashes_are_the_roots_of_their_entries(size: int) -> None:
    check_hashes(tiles(size))


def test_hashes_of_higher_levels_are_the_roots_of_their_entries(
    tiles_of_70_000: dict[str, Tile],
) -> None:
    check_hashes(tiles_of_70_000)


def check_hashes(made: dict[str, Tile]) -> None:
    """MTH(D[(n * 256 + i) * 256**l : (n * 256 + i + 1) * 256**l])."""
    for tile in made.values():
        span = 256**tile.level
        for i in range(len(tile.hashes) // 32):
            start = (tile.index * 256 + i) * span
            expected = root(LEAVES[start : start + span])
            assert tile.hashes[32 * i : 32 * i + 32] == expected
