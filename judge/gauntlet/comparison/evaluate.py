"""Compares both arms of a benchmark: better, worse, or undecided.

Deterministic tasks are compared exactly, once their differences are confirmed; stochastic and
unsteady ones by what their pairs of repeats prove.

Source: docs/reference/gauntlet.md, "The calibrated gate".
Trust: results are the scorers', which are ours.  I/O: none.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from judge.gauntlet.comparison.claims import THRIFTS, Outcome, Pair, value
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.weighing import Weighed, weigh
from judge.gauntlet.errors import GauntletError

if TYPE_CHECKING:
    from judge.gauntlet.tasks.benchmark import TaskResult
    from judge.gauntlet.tasks.reference_set import Task

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as an event takes them."""
        return {
            "task_id": self.task_id,
            "stochastic": self.stochastic,
            "pairs": self.pairs,
            "verdict": self.verdict,
            "success": None if self.success is None else list(self.success),
            "missing": list(self.missing),
            "metrics": {name: list(means) for name, means in self.metrics.items()},
            "evidence": dict(self.evidence),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What the comparison says, and what it rests on."""

    verdict: str  # better, cannot tell, worse
    level: float  # of error that was spent on it: 0.0 where no repeats were looked at
    regressions: tuple[str, ...]  # ids of tasks
    improvements: tuple[str, ...]
    comparisons: tuple[TaskComparison, ...]
    reasons: tuple[str, ...]


def compare(
    base: Sequence["TaskResult"],
    candidate: Sequence["TaskResult"],
    *,
    tasks: Sequence["Task"],
    level: float,
    settings: ComparisonSettings | None = None,
    record: Mapping[str, Collection[Outcome]] | None = None,
) -> Evaluation:
    """Compare what both arms have answered to these tasks; other tasks' results are left out.

    `level` is what ErrorBudget grants this proposal, `record` what weigh() takes. Raises
    GauntletError where a deterministic task lacks an answer, or results contradict each other.
    """
    if not 0.0 < level < 1.0:
        raise GauntletError(f"an error level must lie between 0 and 1, not {level}")
    settings = settings or ComparisonSettings()
    known = weigh([*base, *candidate], tasks=tasks, level=level, settings=settings, record=record)
    if known.exact.missing:
        missing = ", ".join(known.exact.missing)
        raise GauntletError(f"nothing is compared before both arms have answered {missing}")
    comparisons = tuple(
        _of_repeats(task.task_id, known, level=level, settings=settings)
        if task.task_id in known.proofs
        else _exact(task.task_id, known)
        for task in tasks
    )
    verdict = _verdict(known)
    regressions = [each for each in comparisons if each.verdict == "worse"]
    improvements = [each for each in comparisons if each.verdict == "better"]
    reasons = {
        "worse": [
            *(note for each in regressions for note in each.notes),
            *(
                note
                for each in comparisons
                if each.task_id in known.exact.open_losses
                for note in each.notes
            ),
        ],
        "better": [note for each in improvements for note in each.notes],
        "cannot tell": _doubts(known, improvements, level=level, settings=settings),
    }
    return Evaluation(
        verdict=verdict,
        level=level if any(known.pairs[task] for task in known.proofs) else 0.0,
        regressions=tuple(each.task_id for each in regressions),
        improvements=tuple(each.task_id for each in improvements),
        comparisons=comparisons,
        reasons=tuple(reasons[verdict]),
    )


def _verdict(known: Weighed) -> str:
    if known.exact.losses or (known.standing is not None and known.standing.worse):
        return "worse"
    if known.exact.open_losses:
        return "cannot tell"
    better = bool(known.gains) if known.standing is None else bool(known.standing.better)
    return "better" if better else "cannot tell"


def _exact(task: str, known: Weighed) -> TaskComparison:
    exact, pairs = known.exact, known.pairs[task]
    losses, gains = exact.losses.get(task, ()), known.gains.get(task, ())
    seen = f"(not confirmed: seen in {len(pairs)} pair{'s' if len(pairs) > 1 else ''})"
    open_ = [
        f"{note} {seen}"
        for each in (exact.open_losses, exact.open_gains, exact.open_savings, exact.open_costs)
        for note in each.get(task, ())
    ]
    return TaskComparison(
        task_id=task,
        stochastic=False,
        pairs=len(pairs),
        verdict="worse" if losses else "better" if gains else "unconfirmed" if open_ else "same",
        success=_mean(pairs, "success"),
        missing=_missing(pairs),
        metrics=_means(pairs),
        evidence={},
        notes=(*losses, *gains, *exact.costs.get(task, ()), *open_),
    )


def _of_repeats(
    task: str, known: Weighed, *, level: float, settings: ComparisonSettings
) -> TaskComparison:
    pairs, proof = known.pairs[task], known.proofs[task]
    worse: list[str] = []
    if known.standing is not None and known.standing.worse:
        worse = [name for name, log_e in proof.harmed.items() if log_e >= -log(settings.worse)]
    better = [
        name
        for name, log_e in proof.improved.items()
        if log_e >= -log(level) and not (known.dear and name in THRIFTS)
    ]
    unharmed = proof.unharmed >= -log(level)
    verdict = "worse" if worse else "better" if better else "unharmed" if unharmed else None
    return TaskComparison(
        task_id=task,
        stochastic=task not in known.unsteady,
        pairs=len(pairs),
        verdict=verdict or "cannot tell",
        success=_mean(pairs, "success") if pairs else None,
        missing=_missing(pairs),
        metrics=_means(pairs),
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
    )


def _missing(pairs: Sequence[Pair]) -> tuple[int, int]:
    return sum(pair.base.missing for pair in pairs), sum(pair.candidate.missing for pair in pairs)


def _shown(pairs: Sequence[Pair], name: str) -> str:
    if name == "validity":
        counts = [
            sum(result.validation_failures > 0 for result in arm)
            for arm in ([pair.base for pair in pairs], [pair.candidate for pair in pairs])
        ]
        return f"{counts[0]} -> {counts[1]} invalid answers in {len(pairs)} pairs"
    if name == "repeatability":
        return f"answers differ from one time to the next more often over {len(pairs)} pairs"
    base, candidate = _mean(pairs, name)
    ends = "nothing" if candidate is None else f"{candidate:.3f}"
    begins = "nothing" if base is None else f"{base:.3f}"
    return f"{begins} -> {ends} over {len(pairs)} pairs"


def _doubts(
    known: Weighed,
    improvements: Sequence[TaskComparison],
    *,
    level: float,
    settings: ComparisonSettings,
) -> list[str]:
    """Return why neither is shown."""
    doubts = [f"{task}: its loss was seen in too few pairs" for task in known.exact.open_losses]
    doubts += [f"{task}: {_UNSTEADY}" for task in known.unsteady]
    if not improvements:
        doubts.append("no task is shown to be better")
    if known.dear and known.exact.savings:
        doubts.append("a saving does not count while another metric is worse")
        doubts += [note for notes in known.dear.values() for note in notes]
    if improvements:
        doubts += [
            f"{task}: after {len(known.pairs[task])} pairs, a loss of {settings.margin:g} cannot "
            "be excluded"
            for task, proof in known.proofs.items()
            if proof.unharmed < -log(level)
        ]
    return doubts


def _means(pairs: Sequence[Pair]) -> Mapping[str, Means]:
    names = {
        name for pair in pairs for each in (pair.base, pair.candidate) for name in each.metrics
    }
    return {name: _mean(pairs, name) for name in sorted(names)}


def _mean(pairs: Sequence[Pair], name: str) -> Means:
    """Return base's and candidate's mean, over the pairs in which each has it."""
    arms = ([pair.base for pair in pairs], [pair.candidate for pair in pairs])
    found = [[value(result, name) for result in arm] for arm in arms]
    there = [[each for each in arm if each is not None] for arm in found]
    base, candidate = (sum(arm) / len(arm) if arm else None for arm in there)
    return base, candidate
