"""Random histories: what is tainted or unlabelled is never drawn, and what was drawn is told of.

The account beside the ledger (tests/helpers/curation_histories.py) is kept without a table.
"""

import random
from pathlib import Path

import pytest
from curation_histories import PREFERENCES, SFT, Scene, check_export, step

from judge.curation.recall import recall


def test_exports_hold_what_may_be_learned_from_and_nothing_else(tmp_path: Path) -> None:
    scene = live(tmp_path, seed=5, steps=20)
    assert any(each.members for each in scene.exports)
    assert check_recall(scene)
    check_again(scene, anew=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 105))
def test_exports_hold_that_in_long_histories(seed: int, tmp_path: Path) -> None:
    scene = live(tmp_path, seed=seed, steps=150)
    check_recall(scene)
    check_again(scene, anew=True)


def live(folder: Path, *, seed: int, steps: int) -> Scene:
    """Go through a history, each export in it held against the account, and to a bad end."""
    rng, scene = random.Random(seed), Scene(folder)
    for origin in (("data", "aa" * 32), ("model", "playbook"), ("model", "small")):
        scene.admit(*origin)
    for _ in range(steps):
        step(scene, rng)
    for query in (SFT, PREFERENCES):
        check_export(scene, query)
    scene.withdraw("model", "small")
    if scene.line.head.parent is not None:
        scene.roll_back(scene.line.active)
    return scene


def check_again(scene: Scene, *, anew: bool) -> None:
    """Draw each export again, as of when it was made."""
    for each in scene.exports:
        again = scene.draw_again(each.query, as_of=each.as_of, anew=anew)
        assert again.lines == each.lines
        assert again.seal().id == each.seal


def check_recall(scene: Scene) -> int:
    """Hold what is called back against the account; return how much it is."""
    found = {(each.export, each.example) for each in recall(scene.tables(), blobs=scene.blobs)}
    expected = {
        (str(export.seal), example)
        for export in scene.exports
        for example, runs in export.members.items()
        if not scene.let_in(runs[0]) or not all(map(scene.usable, runs)) or scene.runs[runs[0]].bad
    }
    assert found == expected
    return len(found)
