"""Evidence that stays fair whenever one stops, the error budget, and the plan of repeats."""

from itertools import product
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from paired_results import asked, flaky, pair, result, task
from studies.gate import trials
from studies.gate.disturbances import (
    DISTURBANCES,
    Change,
    follow,
    follow_exact,
    steady,
)
from studies.gate.simulation import Scale, power_row
from studies.gate.trials import (
    World,
    mixed_sequences,
    null_sequences,
    plain_rule,
    try_changes,
)

from judge.gauntlet.comparison.e_values import (
    DEFAULTS,
    ComparisonSettings,
    Floats,
    LogEValues,
    log_e,
    schedule,
    standing,
)
from judge.gauntlet.comparison.evaluate import compare, error_level, share, wanted_pairs
from judge.gauntlet.comparison.weighing import weigh
from judge.gauntlet.tasks.benchmark import Arm, TaskResult

OUTCOMES = np.array([-1.0, 0.0, 1.0])
NULLS = [
    (0.0, (0.2, 0.6, 0.2)),
    (0.0, (0.5, 0.0, 0.5)),
    (0.1, (0.1, 0.9, 0.0)),
    (0.1, (0.3, 0.5, 0.2)),
]
"""Margins, and chances of OUTCOMES whose mean is exactly what is doubted."""


@pytest.mark.parametrize(("margin", "chances"), NULLS)
def test_evidence_expects_one_at_a_stopping_time_when_the_doubted_is_true(
    margin: float, chances: tuple[float, ...]
) -> None:
    def expected(counts: tuple[int, ...], left: int) -> float:
        wealth = exp(log_e(OUTCOMES, counts, margin=margin))
        if not left or wealth > 1.5:
            return wealth  # whoever is ahead stops
        more = [tuple(np.add(counts, one)) for one in np.eye(3, dtype=int)]
        return sum(p * expected(each, left - 1) for p, each in zip(chances, more, strict=True) if p)

    assert expected((0, 0, 0), 6) == pytest.approx(1.0, abs=1e-9)


def test_evidence_grows_when_the_doubted_is_false() -> None:
    assert log_e(OUTCOMES, [0, 60, 0], margin=0.1) > log(1 / 0.02)
    assert log_e(OUTCOMES, [1, 85, 14], margin=0.0) > log(20)
    assert log_e(OUTCOMES, [10, 80, 10], margin=0.0) < 0.0


def weighed(counts: Floats) -> Floats:
    """Return the log e-values of changes from the counts of two tasks, of shape (..., 2, 3)."""
    return standing(
        LogEValues(
            improved=log_e(OUTCOMES, counts, margin=0.0),
            weights=np.array([0.5, 0.5]),
            unharmed=log_e(OUTCOMES, counts, margin=0.1),
            harmed=log_e(-OUTCOMES, counts, margin=0.0),
            hopeless=log_e(-OUTCOMES, counts, margin=0.1),
            spent=np.zeros(counts.shape[:-1], dtype=bool),
            level=0.02,
            exact=False,
        ),
        settings=ComparisonSettings(),
    ).value


def test_whole_evidence_expects_at_most_one_when_one_task_is_better_and_one_harmed() -> None:
    better, harmed = (0.0, 0.1, 0.9), (0.2, 0.7, 0.1)  # the second loses ten points
    runs = list(product(product(range(3), repeat=4), repeat=2))  # four pairs of each task
    chance = [np.prod([*(better[o] for o in one), *(harmed[o] for o in two)]) for one, two in runs]
    counts = np.array([[np.bincount(run, minlength=3) for run in both] for both in runs])
    expected = np.dot(chance, np.exp(weighed(counts.astype(float))))
    assert 0.5 < expected <= 1.0


def test_shares_of_the_budget_sum_to_at_most_one() -> None:
    count = 200_000
    partial = sum(share(number) for number in range(1, count + 1))
    rest = 1.0 / (log(count + 1) * 2.1097)  # the integral over what comes later
    assert 0.9 < partial < 1.0
    assert partial + rest <= 1.0 + 1e-4


def test_level_is_restored_by_promotions() -> None:
    levels = [error_level([False] * count) for count in (0, 1, 10, 100)]
    assert levels == sorted(levels, reverse=True)
    assert error_level([True] * 9 + [False]) == pytest.approx(10 * error_level([False] * 10))
    assert sum(error_level([False] * count) for count in range(1_000)) < 0.05


def test_schedule_ends_at_the_most_pairs() -> None:
    looks = schedule(ComparisonSettings(first=20, most=100))
    assert looks == (20, 25, 32, 40, 50, 63, 79, 99, 100)
    assert schedule(ComparisonSettings(first=20, most=5)) == (5,)


STOCHASTIC = [task("one", stochastic=True), task("two", stochastic=True)]
TASKS = [task("exact"), *STOCHASTIC]
LEVEL = error_level([])


def evaluated(results: list[TaskResult], *, settings: ComparisonSettings = DEFAULTS) -> str:
    base = [each for each in results if each.arm == "base"]
    candidate = [each for each in results if each.arm == "candidate"]
    found = compare([*base, *candidate], tasks=TASKS, level=LEVEL, settings=settings)
    return found.verdict


def counted(results: list[TaskResult], task_id: str) -> int:
    return sum(each.task_id == task_id and each.arm == "base" for each in results)


def test_plan_asks_deterministic_tasks_first() -> None:
    assert wanted_pairs([], tasks=TASKS, level=LEVEL) == [("exact", 0)]
    half = [result("exact", "base", True)]
    assert wanted_pairs(half, tasks=TASKS, level=LEVEL) == [("exact", 0)]


def test_plan_asks_for_no_repeats_when_a_deterministic_task_is_lost() -> None:
    results = asked(TASKS, lambda t, arm, _: t != "exact" or arm == "base", level=LEVEL)
    assert counted(results, "one") == 0
    assert evaluated(results) == "worse"


def test_plan_gives_up_soon_when_nothing_is_improved() -> None:
    results = asked(TASKS, lambda *_: True, level=LEVEL)
    assert (counted(results, "one"), counted(results, "two")) == (40, 40)
    assert evaluated(results) == "cannot tell"


def test_plan_shows_harmlessness_when_a_deterministic_task_is_won() -> None:
    results = asked(TASKS, lambda t, arm, _: t != "exact" or arm != "base", level=LEVEL)
    assert (counted(results, "one"), counted(results, "two")) == (50, 50)
    assert evaluated(results) == "better"


def test_plan_follows_the_task_that_may_be_improved() -> None:
    answer = flaky({("one", "base"): 0.3}, seed=1)
    results = asked(TASKS, answer, level=LEVEL)
    assert evaluated(results) == "better"
    assert counted(results, "one") < 100


def test_plan_stops_at_the_budget_when_a_task_stays_open() -> None:
    rates: dict[tuple[str, Arm], float] = dict.fromkeys(
        [("one", "base"), ("one", "candidate"), ("two", "base"), ("two", "candidate")], 0.5
    )
    settings = ComparisonSettings(most=60)
    results = asked(TASKS, flaky(rates, seed=2), level=LEVEL, settings=settings)
    assert counted(results, "one") == counted(results, "two") == 60
    assert evaluated(results, settings=settings) == "cannot tell"


@pytest.mark.parametrize("cut", [1, 17, 60, 131])
def test_plan_goes_on_as_before_when_it_was_cut_off(cut: int) -> None:
    answer = flaky({("one", "base"): 0.2, ("one", "candidate"): 0.05}, seed=3)
    whole = asked(TASKS, answer, level=LEVEL)
    again = asked(TASKS, answer, whole[:cut], level=LEVEL)

    def told(results: list[TaskResult]) -> set[tuple[str, str, int]]:
        return {(each.task_id, each.arm, each.repeat) for each in results}

    assert told(again) == told(whole)
    assert evaluated(again) == evaluated(whole)


def test_simulation_decides_as_the_gate_does() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        counts = rng.integers([0, 20, 0], [8, 120, 8], size=(2, 3))
        results: list[TaskResult] = []
        for name, (lost, same, won) in zip(("one", "two"), counts.tolist(), strict=True):
            both = [(True, False)] * lost + [(True, True)] * same + [(False, True)] * won
            results += [r for at, b in enumerate(both) for r in pair(name, *b, repeat=at)]
        known = weigh(
            results, tasks=STOCHASTIC, level=LEVEL, settings=ComparisonSettings()
        ).standing
        found = trials._weigh(
            counts[None].astype(float),
            np.zeros((1, 2), dtype=bool),
            np.array([LEVEL]),
            World(flake=0.0, tasks=2),
            ComparisonSettings(),
        )
        assert known is not None
        assert known.value == pytest.approx(found.value[0])
        assert (known.better, known.worse) == (found.better[0], found.worse[0])
        assert known.wanted.tolist() == found.wanted[0].tolist()


def test_null_proposals_are_not_promoted() -> None:
    promoted, pairs = null_sequences(
        World(flake=0.05),
        sequences=3,
        proposals=400,
        cached=True,
        rng=np.random.default_rng(5),
        settings=ComparisonSettings(),
    )
    assert promoted.mean() <= 0.05
    assert promoted.any(axis=-1).mean() <= 0.34
    assert 40 < pairs.mean() / 20 < 130


def test_sequences_go_on_after_a_promotion() -> None:
    promoted, pairs = null_sequences(
        World(flake=0.01, tasks=2, improves=0.4),
        sequences=2,
        proposals=30,
        cached=False,
        rng=np.random.default_rng(8),
        settings=ComparisonSettings(),
    )
    assert promoted.mean() > 0.9
    looks = schedule(ComparisonSettings())
    assert set(pairs.flat) <= {one + two for one in looks for two in looks}


def test_mixed_sequences_tell_right_promotions_from_wrong_ones() -> None:
    worlds = [World(flake=0.01, tasks=2), World(flake=0.01, tasks=2, exact=True)]
    for wrong in ((True, False), (False, True)):
        promotions = mixed_sequences(
            worlds,
            wrong=wrong,
            sequences=4,
            proposals=10,
            rng=np.random.default_rng(9),
            settings=ComparisonSettings(),
        )
        counts = [int(each.sum()) for each in promotions]
        assert counts == ([0, counts[1]] if wrong[0] else [counts[0], 0])
        assert 10 < sum(counts) < 30


def test_harm_of_ten_points_is_rejected_though_another_task_is_better() -> None:
    levels, rng = np.full(300, LEVEL), np.random.default_rng(6)
    harmful = World(flake=0.05, improves=0.10, harms=0.10)
    assert (
        try_changes(harmful, levels, rng=rng, settings=ComparisonSettings()).better.mean() <= 0.10
    )
    honest = World(flake=0.05, improves=0.10)
    assert try_changes(honest, levels, rng=rng, settings=ComparisonSettings()).better.mean() >= 0.80


def test_plain_rule_rejects_harmless_changes_and_promotes_useless_ones() -> None:
    found = plain_rule(World(flake=0.01), metrics=4, changes=100_000, rng=np.random.default_rng(7))
    assert found["regressed"] == pytest.approx(1 - (1 - 0.99 * 0.01) ** 20, abs=0.005)
    assert found["regressed"] == pytest.approx(0.18, abs=0.005)
    assert found["gained"] == pytest.approx(1 - 0.5**4, abs=0.005)
    assert found["promoted"] > 0.75


@pytest.mark.slow
def test_table_in_the_documentation_is_what_the_simulation_gives() -> None:
    row = power_row(Scale(), flake=0.01, tasks=20, position="the 1st")
    page = Path(__file__).parents[4] / "docs" / "studies" / "gate.md"
    del row["shown to be worse"]  # which the page leaves out
    shown = [f"{row.pop('flake rate')}, {row.pop('stochastic tasks')}", *row.values()]
    assert "| " + " | ".join(shown) + " |" in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["quiet and busy spells: 5% and 15% wrong", "bursts of missing answers"]
)
def test_null_proposals_are_not_promoted_when_the_machine_changes(name: str) -> None:
    found = follow(
        DISTURBANCES[name], Change(), sequences=40, proposals=5, rng=np.random.default_rng(10)
    )
    assert found.promoted.any(axis=-1).mean() <= 0.05
    assert found.worse.mean() <= 0.05


@pytest.mark.slow
def test_cached_answers_of_the_base_promote_null_proposals_when_the_machine_changes() -> None:
    found = follow(
        DISTURBANCES["bursts of missing answers"],
        Change(),
        sequences=40,
        proposals=6,
        rng=np.random.default_rng(11),
        cached=True,
    )
    assert found.promoted.any(axis=-1).mean() > 0.2


@pytest.mark.slow
def test_missing_answers_do_not_hide_an_improvement() -> None:
    found = follow(
        DISTURBANCES["5% and 15% missing, in spells"],
        Change(improves=0.10),
        sequences=50,
        proposals=1,
        rng=np.random.default_rng(12),
    )
    assert found.promoted.mean() >= 0.8
    assert found.worse.mean() <= 0.05


@pytest.mark.slow
def test_deterministic_tasks_that_fail_at_random_promote_nothing_and_hide_little() -> None:
    for flake, promoted in ((0.0, 1.0), (0.05, 0.85)):
        rng = np.random.default_rng(13)
        null = follow_exact(flake=flake, tasks=6, sequences=10, proposals=4, rng=rng)
        assert not null.promoted.any()
        assert null.worse.mean() <= 0.05
        good = follow_exact(flake=flake, tasks=6, sequences=20, proposals=1, rng=rng, improved=True)
        assert good.promoted.mean() >= promoted
        assert not good.worse.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTURBANCES)
def test_long_sequences_err_as_seldom_as_is_claimed(name: str) -> None:
    rng = np.random.default_rng(14)
    null = follow(DISTURBANCES[name], Change(), sequences=250, proposals=20, rng=rng)
    assert null.promoted.any(axis=-1).mean() <= 0.05
    assert null.worse.mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("flake", [0.01, 0.05, 0.10])
def test_improvement_of_ten_points_is_promoted_in_nine_of_ten(flake: float) -> None:
    rng = np.random.default_rng(15)
    good = follow(steady(flake), Change(improves=0.10), sequences=500, proposals=1, rng=rng)
    assert good.promoted.mean() >= 0.90
