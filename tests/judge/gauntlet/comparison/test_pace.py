"""Processor time of both arms, in a world of noise, bursts, drift and a dear first place."""

from collections.abc import Iterator
from dataclasses import replace
from math import log
from random import Random

import pytest
from paired_results import result, task

from judge.gauntlet.comparison.e_values import DEFAULTS
from judge.gauntlet.comparison.evaluate import compare, wanted_pairs
from judge.gauntlet.comparison.pace import PACES, Pace
from judge.gauntlet.comparison.weighing import Terms, weigh
from judge.gauntlet.tasks.benchmark import ARMS, TaskResult

TASKS = [task(f"task-{number}") for number in range(6)]
NEEDED = -log(0.01)  # a level as for the third proposal
TOO_SLOW = -log(DEFAULTS.worse / len(PACES))


def answers(
    ratio: float, repeats: int, random: Random, *, missing: float = 0.03
) -> Iterator[TaskResult]:
    """Give right answers, the candidate's at `ratio` times the base's processor time."""
    own = {each.task_id: 0.05 * 2.0 ** random.uniform(0, 6) for each in TASKS}
    drift = random.uniform(0.98, 1.02)
    load = 1.0
    for repeat in range(repeats):
        for name in random.sample(sorted(own), k=len(own)):
            for place, arm in enumerate(random.sample(ARMS, k=2)):
                load *= drift
                burst = random.uniform(1.5, 4.0) if random.random() < 0.1 else 1.0
                seconds = own[name] * load * burst * random.lognormvariate(0.0, 0.1)
                seconds *= (1.3, 1.0)[place] * (ratio if arm == "candidate" else 1.0)
                if random.random() < missing:
                    yield result(name, arm, False, repeat=repeat, missing=True)
                    continue
                found = result(name, arm, True, repeat=repeat)
                waited = seconds * random.lognormvariate(0.0, 0.2)
                yield replace(found, cpu_seconds=seconds, seconds=waited)


def paces(name: str, ratio: float, worlds: int) -> Iterator[list[Pace]]:
    """Give of each world what is seen of 8 to 40 answers to each task."""
    for seed in range(worlds):
        found = list(answers(ratio, 40, Random(f"{ratio} {seed}")))
        yield [
            weigh(
                [each for each in found if each.repeat < repeats],
                tasks=TASKS,
                level=0.01,
                settings=DEFAULTS,
            ).paces[name]
            for repeats in range(8, 41, 8)
        ]


@pytest.mark.parametrize("name", PACES)
def test_time_is_no_reason_against_a_change_that_takes_no_more(name: str) -> None:
    worlds = list(paces(name, 1.0, 40))
    assert sum(any(each.slower >= TOO_SLOW for each in looks) for looks in worlds) <= 1
    assert sum(looks[-1].kept >= NEEDED for looks in worlds) >= 36


@pytest.mark.parametrize("name", PACES)
def test_a_change_that_is_slower_by_the_limit_is_hardly_ever_called_no_slower(name: str) -> None:
    worlds = list(paces(name, 1.0 + DEFAULTS.slower, 40))
    assert sum(any(each.kept >= NEEDED for each in looks) for looks in worlds) <= 1
    assert sum(any(each.slower >= TOO_SLOW for each in looks) for looks in worlds) <= 3


@pytest.mark.parametrize("name", PACES)
def test_a_change_that_takes_twice_the_time_is_slower(name: str) -> None:
    worlds = list(paces(name, 2.0, 30))
    assert sum(looks[-1].slower >= TOO_SLOW for looks in worlds) >= 28
    assert not any(each.kept >= NEEDED for looks in worlds for each in looks)


TERMS = Terms(level=0.01, refactoring=True)


def answered(found: list[TaskResult], terms: Terms = TERMS) -> list[TaskResult]:
    """Return those of the answers that are asked for."""
    have: list[TaskResult] = []
    while wanted := wanted_pairs(have, tasks=TASKS, **terms):
        new = [each for each in found if (each.task_id, each.repeat) in wanted]
        assert len(new) == 2 * len(wanted), "it asks for more than it may"
        have += new
    return have


def timed(ratios: dict[str, float], *, success: bool = True) -> list[TaskResult]:
    """Return answers that take so many times as long in the candidate, without noise."""
    return [
        replace(
            result(each.task_id, arm, success, repeat=repeat, missing=not success),
            **dict.fromkeys(
                ("seconds", "cpu_seconds"),
                None if not success else ratios.get(each.task_id, 1.0) ** (arm == "candidate"),
            ),
        )
        for each in TASKS
        for repeat in range(DEFAULTS.paced_most)
        for arm in ARMS
    ]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "no worse"), (2.0, "worse")])
def test_a_refactoring_is_asked_for_until_its_time_is_known(ratio: float, verdict: str) -> None:
    found = list(answers(ratio, 60, Random(f"asked {ratio}"), missing=0.0))
    have = answered(found)
    told = compare(have, tasks=TASKS, **TERMS)
    assert told.verdict == verdict
    assert not told.improvements
    assert told.level == 0.01
    without = [replace(each, seconds=None, cpu_seconds=None) for each in have]  # older records'
    assert compare(without, tasks=TASKS, **TERMS).verdict == "cannot tell"
    approved = Terms(level=0.01, timed=False)
    assert compare(have, tasks=TASKS, **approved).verdict == "cannot tell"


def test_a_refactoring_whose_times_nobody_knows_comes_to_an_end() -> None:
    have = answered(timed({}, success=False))
    assert len(have) == 2 * len(TASKS) * DEFAULTS.paced_most
    assert compare(have, tasks=TASKS, **TERMS).verdict == "cannot tell"
    assert not wanted_pairs([], tasks=[], **TERMS)


def test_one_slow_task_is_not_made_up_for_by_the_others() -> None:
    have = answered(timed({"task-3": 1_000.0}))
    told = compare(have, tasks=TASKS, **TERMS)
    assert told.verdict == "worse"
    assert any("above all for task-3" in each for each in told.reasons)
    assert compare(answered(timed({})), tasks=TASKS, **TERMS).verdict == "no worse"


def test_a_base_that_gives_up_early_is_not_the_faster_one() -> None:
    found = [
        replace(result(each.task_id, arm, arm == "candidate", repeat=repeat), seconds=seconds)
        for each in TASKS
        for repeat in range(DEFAULTS.confirmed)
        for arm, seconds in zip(ARMS, (0.02, 0.2), strict=True)
    ]
    assert compare(found, tasks=TASKS, level=0.01).verdict == "better"
