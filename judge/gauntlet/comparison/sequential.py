"""How many repeats are asked for, and how much error each proposal may spend.

Source of the budget: Xu & Ramdas 2024, "Online multiple testing with e-values" (AISTATS), e-LOND.
I/O: none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count, islice
from math import log

from judge.gauntlet.comparison.claims import Outcome
from judge.gauntlet.comparison.e_values import DEFAULTS, ComparisonSettings, schedule
from judge.gauntlet.comparison.weighing import weigh
from judge.gauntlet.tasks.benchmark import TaskResult
from judge.gauntlet.tasks.reference_set import Task

ALPHA = 0.05
_SHARES = 2.10974280  # sum of 1 / (n ln(n)^2) from n = 2 on, rounded up


def error_level(earlier: Sequence[bool]) -> float:
    """Return the error that the next proposal may spend; `earlier` has those before it.

    Only proposals count of whom repeats were looked at: those whose evaluation has a level above
    zero. Each says whether it was promoted. A promotion is wrong if the change improves nothing, or
    harms a stochastic task by the margin. The t-th proposal gets ALPHA times its share, times one
    more than were promoted before it. The expected share of wrong promotions then stays at most
    ALPHA over all proposals that will ever be made, however their evidence hangs together; while
    there is nothing to find, so does the chance that anything is ever promoted.
    """
    return ALPHA * share(len(earlier) + 1) * (1 + sum(earlier))


def share(number: int) -> float:
    """Return the share of the budget that the number-th proposal (from 1) has; they sum to one."""
    return 1.0 / ((number + 1) * log(number + 1) ** 2 * _SHARES)


def wanted_pairs(
    results: Iterable[TaskResult],
    *,
    tasks: Sequence[Task],
    level: float,
    settings: ComparisonSettings = DEFAULTS,
    record: Mapping[str, Collection[Outcome]] | None = None,
) -> list[tuple[str, int]]:
    """Return (task, repeat) of the pairs that are wanted next; none: it is decided or spent.

    Deterministic tasks come first. Where the arms differ, both are asked again, one task after the
    other, losses before gains: one loss that stays is the end, and one gain that stays is enough.
    Where an arm's answer to a pair is there already, the other's is wanted. `record` as weigh()
    takes it.
    """
    results = list(results)
    known = weigh(results, tasks=tasks, level=level, settings=settings, record=record)
    have = {task: {pair.base.repeat for pair in each} for task, each in known.pairs.items()}
    for result in results:
        if result.cached and result.task_id in have:  # its repeat cannot be answered again
            have[result.task_id].add(result.repeat)

    def more(task: str, wanted: int = 1) -> list[tuple[str, int]]:
        free = (repeat for repeat in count() if repeat not in have[task])
        return [(task, repeat) for repeat in islice(free, wanted)]

    if known.exact.losses:
        return []
    if known.missing:
        return [pair for task in known.missing for pair in more(task)]
    for task in (*known.open.losses, *known.promising):
        return more(task)
    if known.standing is None:
        return []
    pairs = []
    for task, wanted in zip(known.proofs, known.standing.wanted, strict=True):
        if wanted:
            seen = len(known.pairs[task])
            upto = next(look for look in schedule(settings) if look > seen)
            pairs += more(task, upto - seen)
    return pairs
