"""Simulated bug fixes, refactorings and slow changes, on machines that are busy at times.

All answers of a world follow each other on one time axis, where each point has a load, a chance of
a wrong answer and one of none: tasks are correlated, and so are successive answers. Whatever comes
first in a pair takes 30% longer. The decisions are those of wanted_pairs(), compare() and
cases_fixed().

Source: docs/reference/gauntlet.md, "The calibrated gate".
I/O: none; random numbers are passed in.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import exp, inf, pi, sin, sqrt
from random import Random

from judge.gauntlet.comparison.e_values import DEFAULTS, ComparisonSettings
from judge.gauntlet.comparison.evaluate import Evaluation, compare, error_level, wanted_pairs
from judge.gauntlet.comparison.weighing import Terms
from judge.gauntlet.tasks.benchmark import ARMS, TaskResult
from judge.gauntlet.testing.suite import cases_fixed
from studies.gate.disturbances import simulated_result, simulated_task
from studies.statistics import Share

__all__ = ["MACHINES", "PROMISED", "Change", "fixes_by_chance", "judged", "measured"]

Moment = tuple[float, float, float, float]
"""Load; chances of a wrong answer, and of none; the time, of a usual answer's, that is too late."""
Machine = Callable[[Random], Iterator[Moment]]
_LEVEL = error_level([])
_SLOWER = 2.0 * DEFAULTS.worse  # one task, or all together
_FLAKY = "flaky test: counted as a fix"
_DEAR = 1.3  # times what comes first in a pair
_TASKS = [simulated_task(name, stochastic=name == "drawn") for name in ("drawn", "one", "two")]


def _quiet(_random: Random) -> Iterator[Moment]:
    while True:
        yield 1.0, 0.05, 0.0, inf


def _bursts(random: Random) -> Iterator[Moment]:
    """A sixth of the time, for 40 answers on average, the load is up to 4 and 25% are wrong."""
    busy = random.random() < 1.0 / 6.0
    while True:
        busy = random.random() < (39.0 / 40.0 if busy else 1.0 / 200.0)
        yield (random.uniform(1.5, 4.0), 0.25, 0.0, inf) if busy else (1.0, 0.03, 0.0, inf)


def _drift(random: Random) -> Iterator[Moment]:
    """The load goes from a third to three and back within 600 answers; 2% to 15% are wrong."""
    begin = random.uniform(0.0, 2.0 * pi)
    for at in count():
        load = 3.0 ** sin(begin + at / 100.0)
        yield load, 0.05 * load, 0.0, inf


def _missing(_random: Random) -> Iterator[Moment]:
    while True:
        yield 1.0, 0.05, 0.05, inf


def _late(random: Random) -> Iterator[Moment]:
    """What takes over 2.4 times as long as usual is missing, which are 5%."""
    for load, _ in _waves(random):
        yield load, 0.05, 0.0, 2.4


def _together(random: Random) -> Iterator[Moment]:
    """Loads and the odds of wrong answers have a common cause."""
    for load, state in _waves(random):
        odds = 0.05 / 0.95 * exp(1.5 * state)
        yield load, odds / (1.0 + odds), 0.0, inf


def _waves(random: Random) -> Iterator[tuple[float, float]]:
    """Yield a lognormal(0.35) load, AR(1) with 0.95, and its cause."""
    state = random.gauss(0.0, 1.0)
    while True:
        state = 0.95 * state + sqrt(1.0 - 0.95**2) * random.gauss(0.0, 1.0)
        yield exp(0.35 * state), state


MACHINES: Mapping[str, Machine] = {
    "quiet": _quiet,
    "bursts": _bursts,
    "drift of load": _drift,
    "5% missing": _missing,
    "5% too late": _late,
    "tasks together": _together,
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a change does."""

    ratio: float = 1.0  # of its time to the base's
    harms: float = 0.0  # right answers to the first task that it loses, as a share of all answers
    fixes: tuple[str, ...] = ()  # cases; without any it is a refactoring


def judged(
    change: Change, machine: Machine, *, random: Random, settings: ComparisonSettings
) -> Evaluation:
    """Return what the gate finds of one change, as the first proposal of a line."""
    terms = Terms(level=_LEVEL, settings=settings, fixes=change.fixes, refactoring=not change.fixes)
    now = machine(random)
    results: list[TaskResult] = []
    usual = {task.task_id: 0.05 * 2.0 ** random.uniform(0.0, 6.0) for task in _TASKS}
    while wanted := wanted_pairs(results, tasks=_TASKS, **terms):
        for name, repeat in random.sample(wanted, k=len(wanted)):
            for place, arm in enumerate(random.sample(ARMS, k=2)):
                load, wrong, gone, late = next(now)
                changed = arm == "candidate"
                wrong += change.harms / (1.0 - gone) if changed else 0.0
                busy = load * random.lognormvariate(0.0, 0.1) * (1.0 if place else _DEAR)
                busy *= change.ratio if changed else 1.0
                waited = busy * random.lognormvariate(0.0, 0.2)
                missing = random.random() < gone or waited > late
                right = not missing and (name != "drawn" or random.random() >= wrong)
                times = {"seconds": waited * usual[name], "cpu_seconds": busy * usual[name]}
                told = {"missing": True} if missing else times
                results.append(simulated_result(name, arm, repeat, right, **told))
    return compare(results, tasks=_TASKS, **terms)


def fixes_by_chance(machine: Machine, *, random: Random, pairs: int) -> bool:
    """Tell whether an added test that knows nothing of the change is counted as a fix.

    It fails at random: in 5 to 50% of runs, or as often as the machine's answers are wrong.
    """
    now, own = machine(random), random.uniform(0.05, 0.5)

    def run(_arm: str) -> Mapping[str, str]:
        _, wrong, gone, _ = next(now)
        if random.random() < gone:
            return {}
        return {"case": "failed" if random.random() < max(own, wrong) else "passed"}

    return bool(cases_fixed(run, against="base", by="candidate", pairs=pairs, random=random))


def _promoted(found: Evaluation) -> bool:
    return found.verdict in ("better", "no worse")


def _slower(found: Evaluation) -> bool:
    return found.verdict == "worse" and not found.regressions


_CLAIMS: Mapping[str, tuple[float | None, Change, Callable[[Evaluation], bool]]] = {
    "ten points worse: promoted": (_LEVEL, Change(harms=0.10), _promoted),
    "25% more time: promoted": (_LEVEL, Change(ratio=1.25), _promoted),
    "25% more time: called slower": (_SLOWER, Change(ratio=1.25), _slower),
    "35% more time: promoted": (_LEVEL, Change(ratio=1.35), _promoted),
    "no effect: called slower": (_SLOWER, Change(), _slower),
    "no effect: promoted": (None, Change(), _promoted),
    "50% more time, with a fix: worse": (
        None,
        Change(ratio=1.5, fixes=("case",)),
        lambda found: found.verdict == "worse",
    ),
}
"""Change and outcome -> the chance that it has at most, and what it is; None: it is wanted."""
PROMISED: Mapping[str, float | None] = {
    _FLAKY: 0.25**DEFAULTS.confirmed,  # (q(1 - q))^5, for the worst q
    **{claim: most for claim, (most, _, _) in _CLAIMS.items()},
}


def measured(
    name: str, *, worlds: int, seed: int, settings: ComparisonSettings
) -> dict[str, Share]:
    """Return how often what is claimed or wanted happens on one machine."""
    machine = MACHINES[name]

    def random(*of: object) -> Random:
        return Random(f"{seed} {name} {of}")  # noqa: S311 - a simulation

    found = {
        change: [
            judged(change, machine, random=random(change, each), settings=settings)
            for each in range(worlds)
        ]
        for change in {change for _, change, _ in _CLAIMS.values()}
    }
    flaky = (
        fixes_by_chance(machine, random=random(each), pairs=settings.confirmed)
        for each in range(100 * worlds)
    )
    return {
        _FLAKY: Share.true(flaky),
        **{
            claim: Share.true(map(holds, found[change]))
            for claim, (_, change, holds) in _CLAIMS.items()
        },
    }
