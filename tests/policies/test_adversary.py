"""Situations near the bounds contradict nothing, and are the same whenever they are made."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from aggregates.decisions import Observation
from aggregates.firing import evaluate_rules
from judge.reference.observations import from_plain, to_plain
from policies.proposing.adversary import edge_cases

TASKS = Path(__file__).parents[2] / "docs" / "studies" / "reference_tasks" / "tasks"


@pytest.fixture(scope="module")
def situations() -> list[Observation]:
    text = (TASKS / "remedies-medium/repo_snapshot/observations.json").read_text(encoding="utf-8")
    return [from_plain(plain) for plain in json.loads(text)]


def test_same_seed_makes_the_same_cases_and_another_seed_others(
    situations: list[Observation],
) -> None:
    made = [
        [to_plain(seen) for seen in edge_cases(situations, seed=seed, count=12)]
        for seed in (1, 1, 2)
    ]
    assert len(made[0]) == 12
    assert made[0] == made[1]
    assert all(one != other for one, other in pairwise(made[1:]))


def test_cases_are_evaluated_anew_where_their_signals_were_moved(
    situations: list[Observation],
) -> None:
    near = 0
    for seen in edge_cases(situations, seed=3, count=40):
        assert seen.due
        if any(seen.history == each.history for each in situations):
            continue  # only its settings were moved
        assert dict(seen.evaluations) == evaluate_rules(seen.history, [], seen.rules)
        averages = {rule: found.ema for rule, found in seen.evaluations.items()}
        bounds = [
            ("R1", seen.rules.r1_low),
            ("R1", seen.rules.r1_high),
            ("R2", seen.rules.r2_low),
            ("R2", seen.rules.r2_high),
            ("R5", seen.rules.r5_high),
            ("R6", seen.rules.r6_low),
            ("R7", seen.rules.r7_high),
        ]
        close = [abs((averages[rule] or 0.0) / bound - 1) < 0.03 for rule, bound in bounds]
        assert any(close)
        near += 1
    assert near >= 8


def test_nothing_is_made_of_nothing() -> None:
    assert list(edge_cases([], seed=1, count=5)) == []
