"""Fixes, refactorings and slow changes on simulated machines that are busy at times."""

from collections.abc import Mapping
from random import Random

import pytest
from studies.gate.times import MACHINES, PROMISED, Change, fixes_by_chance, judged, measured

from judge.gauntlet.comparison.e_values import DEFAULTS
from judge.gauntlet.testing.suite import cases_fixed


@pytest.mark.parametrize(
    ("pairs", "least", "most"), [(DEFAULTS.confirmed, 0, 8), (1, 1_600, 2_400)]
)
def test_test_that_fails_at_random_is_seldom_a_fix_when_five_pairs_have_to_show_it(
    pairs: int, least: int, most: int
) -> None:
    chances = [
        fixes_by_chance(MACHINES["bursts"], random=Random(each), pairs=pairs)
        for each in range(10_000)
    ]
    assert least <= sum(chances) <= most


@pytest.mark.parametrize(
    ("base", "candidate", "fixed"),
    [
        ({"case": "failed"}, {"case": "passed"}, ("case",)),
        ({"case": "passed"}, {"case": "passed"}, ()),
        ({"case": "failed"}, {"case": "failed"}, ()),
        ({"case": "skipped"}, {"case": "passed"}, ()),
        ({"case": "passed"}, {"case": "failed"}, ()),
        ({}, {"case": "passed"}, ()),
        ({"case": "failed"}, {}, ()),
    ],
)
def test_case_is_fixed_when_it_fails_without_the_change_and_passes_with_it(
    base: Mapping[str, str], candidate: Mapping[str, str], fixed: tuple[str, ...]
) -> None:
    told = {"base": base, "candidate": candidate}
    found = cases_fixed(told.__getitem__, against="base", by="candidate", pairs=5, random=Random(0))
    assert found == fixed


def test_another_case_in_each_pair_is_no_fix() -> None:
    runs: list[str] = []

    def run(arm: str) -> Mapping[str, str]:
        runs.append(arm)
        shown = f"case {runs.count(arm) % 2}"
        return {shown: "failed" if arm == "base" else "passed", "both": "passed"}

    assert not cases_fixed(run, against="base", by="candidate", pairs=5, random=Random(0))


def test_who_runs_first_is_drawn_when_a_case_is_looked_at() -> None:
    runs: list[str] = []

    def run(arm: str) -> Mapping[str, str]:
        runs.append(arm)
        return {"case": "failed" if arm == "base" else "passed"}

    cases_fixed(run, against="base", by="candidate", pairs=40, random=Random(1))
    assert {*zip(runs[::2], runs[1::2], strict=True)} == {
        ("base", "candidate"),
        ("candidate", "base"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_errors_stay_below_what_is_promised_when_a_machine_is_disturbed(name: str) -> None:
    found = measured(name, worlds=40, seed=16, settings=DEFAULTS)
    for claim, most in PROMISED.items():
        low, _ = found[claim].interval(0.998)
        assert low <= most if most is not None else found[claim].count >= 30, claim


def test_refactoring_is_promoted_when_it_takes_no_more_time() -> None:
    found = [
        judged(Change(ratio=ratio), MACHINES["drift of load"], random=Random(7), settings=DEFAULTS)
        for ratio in (1.0, 1.6)
    ]
    assert [each.verdict for each in found] == ["no worse", "worse"]
