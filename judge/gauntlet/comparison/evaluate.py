"""Compares both arms of a benchmark: better, worse, or undecided.

Deterministic tasks are compared exactly, once their differences are confirmed; stochastic and
unsteady ones by what their pairs of repeats prove. How many repeats are asked for, and how much
error each proposal may spend, is said here, too.

Source: docs/reference/gauntlet.md, "The calibrated gate". Of the budget: Xu & Ramdas 2024, "Online
multiple testing with e-values" (AISTATS), e-LOND.
Trust: results are the scorers', which are ours.  I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import log
from typing import Any, Unpack

from judge.gauntlet.comparison.claims import THRIFTS, Pair, value
from judge.gauntlet.comparison.e_values import schedule
from judge.gauntlet.comparison.weighing import Terms, Weighed, weigh
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.tasks.benchmark import TaskResult
from judge.gauntlet.tasks.reference_set import Task

ALPHA = 0.05
_SHARES = 2.10974280  # sum of 1 / (n ln(n)^2) from n = 2 on, rounded up
_UNSTEADY = "its answers differ from one time to the next"
Means = tuple[float | None, float | None]
"""Of the base, and of the candidate; none where an arm never gave it."""


@dataclass(frozen=True, kw_only=True)
class TaskComparison:
    """One task in both arms; shares and means are over its pairs."""

    task_id: str
    stochastic: bool
    pairs: int
    verdict: str  # better, worse; same, unconfirmed (deterministic); unharmed, cannot tell
    success: Means | None  # none where there is no pair
    missing: tuple[int, int]  # answers that were not given, by the base and by the candidate
    metrics: Mapping[str, Means]
    evidence: Mapping[str, float]  # log e-values of a stochastic task
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What the comparison says, and what it rests on."""

    verdict: str  # better, no worse, cannot tell, worse
    level: float  # of error that was spent: 0.0 without repeats or a refactoring
    regressions: tuple[str, ...]  # ids of tasks
    improvements: tuple[str, ...]  # ids of tasks, and cases of added tests
    comparisons: tuple[TaskComparison, ...]
    reasons: tuple[str, ...]


def compare(
    results: Iterable[TaskResult],
    *,
    tasks: Sequence[Task],
    **terms: Unpack[Terms],
) -> Evaluation:
    """Compare what both arms have answered to these tasks; other tasks' results are left out.

    The level among the terms is what error_level() grants this proposal. Raises GauntletError where
    a deterministic task lacks an answer, or results contradict each other.
    """
    level = terms["level"]
    if not 0.0 < level < 1.0:
        raise GauntletError(f"an error level must lie between 0 and 1, not {level}")
    known = weigh(results, tasks=tasks, **terms)
    settings = known.settings
    if known.missing:
        missing = ", ".join(known.missing)
        raise GauntletError(f"nothing is compared before both arms have answered {missing}")
    comparisons = tuple(
        _of_repeats(task.task_id, known)
        if task.task_id in known.proofs
        else _exact(task.task_id, known)
        for task in tasks
    )
    verdict = _verdict(known)
    fixed = [note for notes in known.fixes.values() for note in notes]
    regressions = [each for each in comparisons if each.verdict == "worse"]
    improvements = [each for each in comparisons if each.verdict == "better"]
    if verdict == "cannot tell":
        reasons = _doubts(known, bool(improvements or fixed))
    else:
        open_ = [each for each in comparisons if each.task_id in known.open.losses]
        shown = improvements if verdict == "better" else [*regressions, *open_]
        reasons = [note for each in shown for note in each.notes]
        reasons += fixed if verdict == "better" else []
        if verdict == "no worse":
            margin = f"a loss of {settings.margin:g} or {settings.slower:.0%} more time"
            reasons = [f"as a refactoring: {margin} would be missed with chance {level:.2g}"]
        if _is_slower(known):
            reasons.append(f"{_paced(known)}; an operator can `approve` this")
    return Evaluation(
        verdict=verdict,
        level=level if known.refactoring or any(map(known.pairs.get, known.proofs)) else 0.0,
        regressions=tuple(each.task_id for each in regressions),
        improvements=(*(each.task_id for each in improvements), *known.fixes),
        comparisons=comparisons,
        reasons=tuple(reasons),
    )


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
    **terms: Unpack[Terms],
) -> list[tuple[str, int]]:
    """Return (task, repeat) of the pairs that are wanted next; none: it is decided or spent.

    Deterministic tasks come first. Where the arms differ, both are asked again, one task after the
    other, losses before gains: one loss that stays is the end, and one gain that stays is enough.
    Where an arm's answer to a pair is there already, the other's is wanted.
    """
    results = list(results)
    known = weigh(results, tasks=tasks, **terms)
    have = {task: {pair.base.repeat for pair in each} for task, each in known.pairs.items()}
    for result in results:
        if result.cached and result.task_id in have:  # its repeat cannot be answered again
            have[result.task_id].add(result.repeat)

    def more(task: str, wanted: int = 1) -> list[tuple[str, int]]:
        free = (repeat for repeat in count() if repeat not in have[task])
        return [(task, repeat) for repeat in islice(free, wanted)]

    if known.exact.losses or _is_slower(known):
        return []
    if known.missing:
        return [pair for task in known.missing for pair in more(task)]
    for task in (*known.open.losses, *known.promising):
        return more(task)
    pairs = []
    standing = () if known.standing is None else known.standing.wanted
    for task, wanted in zip(known.proofs, standing, strict=False):
        if wanted:
            seen = len(known.pairs[task])
            upto = next(look for look in schedule(known.settings) if look > seen)
            pairs += more(task, upto - seen)
    if known.refactoring and not pairs and not known.dear and _is_unharmed(known):
        for task, wanted in _unpaced(known).items():
            pairs += more(task, wanted)
    return pairs


def _verdict(known: Weighed) -> str:
    worse = known.standing is not None and known.standing.worse
    if known.exact.losses or worse or _is_slower(known):
        return "worse"
    if known.open.losses or not _is_unharmed(known):
        return "cannot tell"
    if known.gains or (known.standing is not None and not known.refactoring):
        return "better"
    kept = known.refactoring and not known.dear and _is_paced(known)
    return "no worse" if kept else "cannot tell"


def _is_unharmed(known: Weighed) -> bool:
    """Tell whether all stochastic tasks are shown unharmed, and a gain if one is sought."""
    return known.standing is None or bool(known.standing.better)


def _is_slower(known: Weighed) -> bool:
    limit = -log(known.settings.worse / max(1, len(known.paces)))
    return any(pace.slower >= limit or pace.slow for pace in known.paces.values())


def _is_paced(known: Weighed) -> bool:
    return bool(known.paces) and all(
        pace.rounds >= known.settings.paced and pace.kept >= -log(known.level)
        for pace in known.paces.values()
    )


def _unpaced(known: Weighed) -> dict[str, int]:
    """Return how many more pairs of each task may show that a refactoring is not slower."""
    least, most = known.settings.paced, known.settings.paced_most
    if _is_paced(known):
        return {}
    have = {
        task: min(pace.counts.get(task, 0) for pace in known.paces.values()) for task in known.pairs
    }
    short = {task: least - count for task, count in have.items() if count < least}
    wanted = short or dict.fromkeys(have, 1)
    left = {task: min(each, most - len(known.pairs[task])) for task, each in wanted.items()}
    return {task: each for task, each in left.items() if each > 0}


def _paced(known: Weighed) -> str:
    told = [f"{pace.ratio:.2f} times the {name}" for name, pace in known.paces.items()]
    slow = sorted({task for pace in known.paces.values() for task in pace.slow})
    where = f", above all for {', '.join(slow)}" if slow else ""
    return f"an answer takes {' and '.join(told)}{where}"


def _exact(task: str, known: Weighed) -> TaskComparison:
    open_, pairs = known.open, known.pairs[task]
    losses, gains = known.exact.losses.get(task, ()), known.gains.get(task, ())
    seen = f"(not confirmed: seen in {len(pairs)} pair{'s' if len(pairs) > 1 else ''})"
    unconfirmed = [
        f"{note} {seen}"
        for each in (open_.losses, open_.gains, open_.savings, open_.costs)
        for note in each.get(task, ())
    ]
    verdict = "better" if gains else "unconfirmed" if unconfirmed else "same"
    return TaskComparison(
        task_id=task,
        stochastic=False,
        verdict="worse" if losses else verdict,
        evidence={},
        notes=(*losses, *gains, *known.exact.costs.get(task, ()), *unconfirmed),
        **_summed(pairs),
    )


def _of_repeats(task: str, known: Weighed) -> TaskComparison:
    pairs, proof = known.pairs[task], known.proofs[task]
    worse: list[str] = []
    if known.standing is not None and known.standing.worse:
        worse = [
            name for name, log_e in proof.harmed.items() if log_e >= -log(known.settings.worse)
        ]
    better = [
        name
        for name, log_e in proof.improved.items()
        if log_e >= -log(known.level) and not (known.dear and name in THRIFTS)
    ]
    unharmed = proof.unharmed >= -log(known.level)
    verdict = "worse" if worse else "better" if better else "unharmed" if unharmed else None
    return TaskComparison(
        task_id=task,
        stochastic=task not in known.unsteady,
        verdict=verdict or "cannot tell",
        evidence={
            **{f"improved {name}": log_e for name, log_e in proof.improved.items()},
            **{f"harmed {name}": log_e for name, log_e in proof.harmed.items()},
            "unharmed": proof.unharmed,
            "hopeless": proof.hopeless,
        },
        notes=(
            *([f"{task}: {_UNSTEADY}"] if task in known.unsteady else []),
            *(f"{task}: {name} is worse, {_shown(pairs, name)}" for name in worse),
            *(f"{task}: {name} is better, {_shown(pairs, name)}" for name in better),
        ),
        **_summed(pairs),
    )


def _summed(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return what a comparison says of its pairs together."""
    names = {name for pair in pairs for name in (*pair.base.metrics, *pair.candidate.metrics)}
    return {
        "pairs": len(pairs),
        "success": _mean(pairs, "success") if pairs else None,
        "missing": tuple(sum(each.missing for each in arm) for arm in _arms(pairs)),
        "metrics": {name: _mean(pairs, name) for name in sorted(names)},
    }


def _arms(pairs: Sequence[Pair]) -> tuple[list[TaskResult], list[TaskResult]]:
    return [pair.base for pair in pairs], [pair.candidate for pair in pairs]


def _shown(pairs: Sequence[Pair], name: str) -> str:
    if name == "validity":
        before, after = (sum(each.validation_failures > 0 for each in arm) for arm in _arms(pairs))
        return f"{before} -> {after} invalid answers in {len(pairs)} pairs"
    if name == "repeatability":
        return f"answers differ from one time to the next more often over {len(pairs)} pairs"
    begins, ends = ("nothing" if each is None else f"{each:.3f}" for each in _mean(pairs, name))
    return f"{begins} -> {ends} over {len(pairs)} pairs"


def _doubts(known: Weighed, improved: bool) -> list[str]:
    """Return why neither is shown."""
    doubts = [f"{task}: its loss was seen in too few pairs" for task in known.open.losses]
    doubts += [f"{task}: {_UNSTEADY}" for task in known.unsteady]
    if known.refactoring and not known.dear and not _is_paced(known):
        doubts.append(f"{_paced(known)}, which does not exclude {known.settings.slower:.0%} more")
    elif not improved:
        doubts.append("no task is shown to be better")
    if known.dear and (known.exact.savings or known.refactoring):
        what = "refactoring" if known.refactoring else "saving"
        doubts.append(f"a {what} does not count while another metric is worse")
        doubts += [note for notes in known.dear.values() for note in notes]
    if improved:
        doubts += [
            f"{task}: after {len(known.pairs[task])} pairs, a loss of "
            f"{known.settings.margin:g} cannot be excluded"
            for task, proof in known.proofs.items()
            if proof.unharmed < -log(known.level)
        ]
    return doubts


def _mean(pairs: Sequence[Pair], name: str) -> Means:
    """Return base's and candidate's mean, over the pairs in which each has it."""
    found = [[value(result, name) for result in arm] for arm in _arms(pairs)]
    there = [[each for each in arm if each is not None] for arm in found]
    base, candidate = (sum(arm) / len(arm) if arm else None for arm in there)
    return base, candidate
