"""Results of reference tasks for both arms, made by hand or drawn at random."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from made_tasks import made_task

from judge.gauntlet.comparison.e_values import DEFAULTS, ComparisonSettings
from judge.gauntlet.comparison.evaluate import wanted_pairs
from judge.gauntlet.tasks.benchmark import Arm, TaskResult
from judge.gauntlet.tasks.reference_set import Task

CONFIRMED = ComparisonSettings().confirmed


def task(task_id: str, *, stochastic: bool = False) -> Task:
    return made_task(task_id, stochastic=stochastic)


def result(
    task_id: str,
    arm: Arm,
    success: bool,
    *,
    repeat: int = 0,
    seed: int | None = None,
    faults: int = 0,
    missing: bool = False,
    **metrics: float,
) -> TaskResult:
    return TaskResult(
        task_id=task_id,
        arm=arm,
        repeat=repeat,
        seed=repeat if seed is None else seed,
        success=success,
        validation_failures=faults,
        metrics=metrics,
        problem=None if success else "wrong",
        isolation=(),
        missing=missing,
    )


def pair(
    task_id: str,
    base: dict[str, Any] | bool,
    candidate: dict[str, Any] | bool,
    *,
    repeat: int = 0,
) -> list[TaskResult]:
    """Return both arms' results; True is a success without metrics, a dict one with these."""
    told: list[TaskResult] = []
    arms: tuple[tuple[Arm, dict[str, Any] | bool], ...] = (("base", base), ("candidate", candidate))
    for arm, what in arms:
        values = {"success": what} if isinstance(what, bool) else {"success": True, **what}
        told.append(result(task_id, arm, repeat=repeat, **values))
    return told


def confirmed(results: Sequence[TaskResult], *, stochastic: Sequence[str] = ()) -> list[TaskResult]:
    """Return results in which the one pair of a deterministic task comes as often as it must."""
    whole = {each.task_id: 0 for each in results if each.task_id not in stochastic}
    for each in results:
        if each.task_id in whole:
            whole[each.task_id] += 1
    return [
        replace(each, repeat=repeat)
        for each in results
        for repeat in (range(CONFIRMED) if whole.get(each.task_id) == 2 else [each.repeat])
    ]


def asked(
    tasks: Sequence[Task],
    answer: Callable[[str, Arm, int], bool],
    results: Iterable[TaskResult] = (),
    *,
    level: float,
    settings: ComparisonSettings = DEFAULTS,
) -> list[TaskResult]:
    """Return all results once no more are wanted; `answer` gives each success."""
    found = list(results)
    while wanted := wanted_pairs(found, tasks=tasks, level=level, settings=settings):
        have = {(each.task_id, each.arm, each.repeat) for each in found}
        arms: tuple[Arm, Arm] = ("base", "candidate")
        for task_id, repeat in wanted:
            found += [
                result(task_id, arm, answer(task_id, arm, repeat), repeat=repeat)
                for arm in arms
                if (task_id, arm, repeat) not in have
            ]
    return found


def flaky(rates: dict[tuple[str, Arm], float], seed: int) -> Callable[[str, Arm, int], bool]:
    """Return answers that fail at these rates, and always come out the same."""

    def answer(task_id: str, arm: Arm, repeat: int) -> bool:
        drawn = np.random.default_rng([seed, *f"{task_id} {arm} {repeat}".encode()]).random()
        return bool(drawn >= rates.get((task_id, arm), 0.0))

    return answer
