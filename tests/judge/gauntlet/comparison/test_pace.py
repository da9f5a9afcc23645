"""Processor time of both arms, in a world of noise, bursts, drift and a dear first place."""

from collections.abc import Iterator
from dataclasses import replace
from math import log
from random import Random

import pytest
from paired_results import result, task

from judge.gauntlet.comparison.e_values import DEFAULTS
from judge.gauntlet.comparison.evaluate import compare, wanted_pairs
from judge.gauntlet.comparison.weighing import PACES, Pace, weigh
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
    worlds = list(paces(name, 1.0, 80))
    assert sum(any(each.slower >= TOO_SLOW for each in looks) for looks in worlds) <= 1
    assert sum(looks[-1].kept >= NEEDED for looks in worlds) >= 72


@pytest.mark.parametrize("name", PACES)
def test_a_change_that_is_slower_by_the_limit_is_hardly_ever_called_no_slower(name: str) -> None:
    worlds = list(paces(name, 1.0 + DEFAULTS.slower, 80))
    assert sum(any(each.kept >= NEEDED for each in looks) for looks in worlds) <= 2
    assert sum(any(each.slower >= TOO_SLOW for each in looks) for looks in worlds) <= 5


@pytest.mark.parametrize("name", PACES)
def test_a_change_that_takes_twice_the_time_is_slower(name: str) -> None:
    worlds = list(paces(name, 2.0, 50))
    assert sum(looks[-1].slower >= TOO_SLOW for looks in worlds) >= 48
    assert not any(each.kept >= NEEDED for looks in worlds for each in looks)


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "no worse"), (2.0, "worse")])
def test_a_refactoring_is_asked_for_until_its_time_is_known(ratio: float, verdict: str) -> None:
    found = list(answers(ratio, 50, Random(f"asked {ratio}"), missing=0.0))
    have: list[TaskResult] = []
    terms = {"tasks": TASKS, "level": 0.01, "refactoring": True}
    while wanted := wanted_pairs(have, **terms):  # type: ignore[arg-type]
        have += [each for each in found if (each.task_id, each.repeat) in wanted]
        assert {repeat for _, repeat in wanted} <= set(range(50))
    assert len(have) <= 2 * DEFAULTS.paced
    told = compare(have, **terms)  # type: ignore[arg-type]
    assert told.verdict == verdict
    assert not told.improvements
    assert told.level == 0.01
    without = [
        replace(each, seconds=None, cpu_seconds=None) for each in have
    ]  # as older records have it
    assert compare(without, **terms).verdict == "cannot tell"  # type: ignore[arg-type]
