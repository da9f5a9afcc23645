"""The evolution that is measured on unseen trainings: its tasks, its proposer, its beginning."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from studies.evolution import unseen
from studies.evolution.beginning import DECIDING, NUMBERS, RESCUE, git, make_repository, weakened
from studies.evolution.mutator import change
from studies.evolution.run import table
from studies.evolution.unseen import SEEN, UNSEEN
from studies.reference.scorers import SCORERS
from studies.reference.seeds import Planned, kinds_of, make, write_set
from studies.reference.worth import FAULTS, Worth, draw_start

from judge.gauntlet.repository.manifest import parse_manifest
from judge.gauntlet.tasks.reference_set import Task, load
from judge.gauntlet.tasks.scoring import Score, drawn
from judge.reference.observations import from_plain
from policies.deciding.rescue import RescuePolicy

ROOT = Path(__file__).parents[2]
FILES = {path: (ROOT / path).read_text(encoding="utf-8") for path in DECIDING}


def task(tmp_path: Path, what: str, seed: int, **expected: Any) -> Task:
    """Return a task as it is asked with this seed; `expected` replaces what was drawn."""
    write_set(tmp_path, [], drawn=[Planned(f"worth-{what}", "medium")])
    (one,) = load(tmp_path, scorers=SCORERS).tasks
    found = drawn(one.with_seed(seed), SCORERS)
    return msgspec.structs.replace(found, expected={**found.expected, **expected})


def answered(asked: Task, policy: Any) -> Score:
    def ask(message: Any) -> Any:
        seen = from_plain(json.loads(json.dumps(message))["observation"])
        return [each.to_dict() for each in policy.decide(seen)] if policy else []

    return SCORERS[asked.scorer](asked, ask)


@pytest.mark.slow
def test_training_is_worth_nothing_under_nobody_and_something_under_the_default(
    tmp_path: Path,
) -> None:
    won = []
    for seed in range(3):
        rng = Random(seed)
        starts = [draw_start(rng, ["infinite_loss"]) for _ in range(5)]  # one of them costs
        asked = task(tmp_path, "loss", seed, starts=starts)
        nobody = answered(asked, None)
        assert not nobody.success
        assert nobody.metrics["agreement"] == 0
        won.append(answered(asked, RescuePolicy()).success)
    assert any(won)


def test_healthy_training_under_nobody_keeps_all(tmp_path: Path) -> None:
    start = draw_start(Random(0), FAULTS["rate"])
    start = {**start, "fault": None, "config": start["healthy"]}
    assert answered(task(tmp_path, "rate", 0, starts=[start]), None).success


def test_answers_that_are_no_decisions_are_counted(tmp_path: Path) -> None:
    rng = Random(0)
    starts = [draw_start(rng, ["infinite_loss"]) for _ in range(5)]
    asked = task(tmp_path, "loss", 0, starts=starts)
    score = SCORERS[asked.scorer](asked, lambda _: [{"cites": ["R7"]}])
    assert not score.success
    assert score.validation_failures
    assert str(score.problem).startswith("epoch ")


def test_a_healthy_start_may_lose_a_little_by_chance_and_no_more() -> None:
    start = draw_start(Random(1), FAULTS["rate"])
    worth = Worth({**start, "fault": None, "config": start["healthy"]}, own=0.0)
    for lost, kept in ((0.0, True), (0.04, True), (0.06, False)):
        worth.own = worth.healthy - lost
        assert worth.success is kept


def test_tasks_are_drawn_alike_from_one_seed_and_not_from_two() -> None:
    one, again, other = (make("worth", seed, "medium").expected for seed in (1, 1, 2))
    assert one == again != other


def test_kinds_of_a_set_are_those_of_its_names() -> None:
    assert kinds_of({"drawn-worth-rate-medium"}) == (Planned("worth-rate", "medium"),)
    assert Planned("rescue-lag", "hard") in kinds_of({"rescue-lag-hard", "drawn-worth-medium"})


def test_each_round_changes_one_number_and_in_time_all_of_them() -> None:
    changed = set()
    for number in range(1, 50):
        found = change(FILES, number=number, seed=0)
        assert found == change(FILES, number=number, seed=0)
        assert found is not None
        path, text, what = found
        pairs = zip(FILES[path].splitlines(), text.splitlines(), strict=True)
        assert sum(before != after for before, after in pairs) == 1
        changed.add(what.split()[0])
    assert {"TARGET", "R7", "clip_norm", "lag_patience"} <= changed
    assert not any(name.endswith("_bytes") for name in changed)


def test_where_nothing_can_be_changed_nothing_is_proposed() -> None:
    assert change({"policies/a.py": "import math\n"}, number=1, seed=0) is None


def test_a_name_that_is_not_there_cannot_be_weakened() -> None:
    assert weakened("TARGET = 0.5  # so\n", {"TARGET": "0.1"}) == "TARGET = 0.1  # so\n"
    with pytest.raises(ValueError, match="AIM"):
        weakened("TARGET = 0.5\n", {"AIM": "0.1"})


def test_unseen_trainings_are_unlike_those_of_the_gate() -> None:
    assert draw_start(Random(0), SEEN)["healthy"]["blocks"] == 1
    for number in range(20):
        (first, *_) = unseen.starts(number)
        assert first["healthy"]["channels"] in (10, 20)
        assert first["healthy"]["blocks"] > 1
    assert {each["fault"] for number in range(20) for each in unseen.starts(number)} == {
        *SEEN,
        *UNSEEN,
    }


def test_table_compares_each_checkpoint_with_its_parent() -> None:
    weak: Mapping[str, Any] = {"healthy": 0.5, "nothing": 0.1, "own": 0.2, "fault": "lr_too_low"}
    good = {**weak, "own": 0.4}
    point: dict[str, Any] = {"parent": None, "proposals": [], "rolled_back": None, "active": False}
    first, second = {**point, "checkpoint": "a"}, {**point, "checkpoint": "b", "parent": "a"}
    second |= {"proposals": ["p"], "active": True}
    rows = [*table([(first, [weak, {**weak, "own": 0.21}]), (second, [good, good])])]
    assert rows[2].startswith("| 0 | the first | 0.26 (")
    assert rows[3].startswith("| 1 | the gate | 0.75 (")
    assert "| +0.49 (" in rows[3]
    assert rows[-1].startswith("From the first to the active one: +0.49 (")


@pytest.mark.slow
def test_the_beginning_is_weak_and_its_tests_pass(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    make_repository(ROOT, repo)
    assert "lag_patience = 6" in git(repo, "show", f"main:{NUMBERS}")
    assert '"R1": 0, "R2": 0' in git(repo, "show", f"main:{RESCUE}")
    manifest = parse_manifest((repo / "judge/tiers.toml").read_bytes())
    assert [manifest.tier_of(path) for path in (RESCUE, "policies/playbook.py")] == [2, 0]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "evolving/tests"]
    subprocess.run(command, cwd=repo, check=True, timeout=300)
