"""What of a fault's cost is won back, against a calculation by hand and against a simulation."""

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from aggregates.provocations import CATALOGUE
from proctor.runs.standings import HEALTHY, recovered


def cell(policy: str, condition: str, seed: int, accuracy: float, **changes: Any) -> dict[str, Any]:
    told = {"policy": policy, "condition": condition, "seed": seed, "test_accuracy": accuracy}
    return {**told, "problem": None, "fits": True, **changes}


def cells(own: list[float], nothing: list[float], healthy: list[float]) -> list[dict[str, Any]]:
    return [
        cell(policy, condition, seed, accuracy)
        for policy, condition, values in (
            ("mine", "hot", own),
            ("nothing", "hot", nothing),
            ("nothing", "healthy", healthy),
            ("mine", "healthy", healthy),
        )
        for seed, accuracy in enumerate(values)
    ]


def test_share_is_the_ratio_of_the_means() -> None:
    rows = cells([0.5, 0.6, 0.55], [0.2, 0.25, 0.2], [0.8, 0.82, 0.79])
    (found,) = recovered(rows, ["nothing", "mine"], ["healthy", "hot"])
    assert (found.condition, found.policy, found.seeds) == ("hot", "mine", 3)
    assert found.lost == pytest.approx((2.41 - 0.65) / 3)
    assert found.share == pytest.approx((1.65 - 0.65) / (2.41 - 0.65))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.share < found.high  # type: ignore[operator]


def test_condition_whose_cost_is_not_shown_has_no_share() -> None:
    (found,) = recovered(
        cells([0.5, 0.6], [0.5, 0.7], [0.6, 0.6]), ["mine", "nothing"], ["hot", "healthy"]
    )
    assert (found.share, found.low, found.high) == (None, None, None)


def test_there_is_none_without_a_twin_without_nothing_or_with_one_seed() -> None:
    rows = cells([0.5, 0.6], [0.2, 0.2], [0.8, 0.8])
    assert recovered(rows, ["mine", "nothing"], ["hot"])
    for missing in ({"condition": "healthy"}, {"policy": "nothing"}, {"seed": 1}):
        less = [row for row in rows if not missing.items() <= row.items()]
        assert recovered(less, ["mine", "nothing"], ["hot", "healthy"]) == []


def test_cell_that_does_not_fit_is_left_out_and_a_failed_one_counts_as_zero() -> None:
    rows = cells([0.5, 0.6, 0.9], [0.2, 0.2, 0.2], [0.8, 0.8, 0.81])
    rows[2] = {**rows[2], "fits": False}
    (found,) = recovered(rows, ["mine", "nothing"], ["hot"])
    assert found.seeds == 2
    rows[2] = {**rows[2], "fits": True, "problem": "hard fail", "test_accuracy": None}
    (found,) = recovered(rows, ["mine", "nothing"], ["hot"])
    assert found.share == pytest.approx((1.1 - 0.6) / (2.41 - 0.6))


def test_interval_covers_the_share_as_often_as_it_says() -> None:
    draws, covered = random.Random(5), 0
    for _ in range(2_000):
        base = [draws.gauss(0.2, 0.03) for _ in range(10)]
        twins = [value + draws.gauss(0.4, 0.05) for value in base]
        own = [value + 0.6 * 0.4 + draws.gauss(0.0, 0.06) for value in base]
        (found,) = recovered(cells(own, base, twins), ["mine", "nothing"], ["hot"])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.6 <= found.high
    assert 0.93 <= covered / 2_000 <= 0.97


def test_conditions_of_the_study_are_the_faults_of_the_catalogue() -> None:
    path = Path(__file__).parents[3] / "docs" / "studies" / "rescue.toml"
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {*told} == {HEALTHY, *CATALOGUE}
    assert all(each.get("provoke", HEALTHY) == name for name, each in told.items())


def test_seed_whose_run_under_nothing_failed_is_left_out() -> None:
    rows = cells([0.5, 0.6, 0.9], [0.2, 0.2, 0.2], [0.8, 0.8, 0.81])
    failed = {"problem": "hard fail", "test_accuracy": None}
    rows[5] = {**rows[5], **failed}
    (found,) = recovered(rows, ["mine", "nothing"], ["hot"])
    assert found.seeds == 2
