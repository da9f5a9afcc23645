"""What the answers of both arms show so far: exact findings and accumulated evidence.

Source: claims.py says what is compared, e_values.py what it proves.
I/O: none.  Units: natural logarithms.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from judge.gauntlet.comparison.claims import (
    QUALITIES,
    THRIFTS,
    Pair,
    difference,
    extra_cost,
    fault,
    pairs_of,
    saving,
    value,
)
from judge.gauntlet.comparison.e_values import (
    SUCCESS_SHARE,
    ComparisonSettings,
    LogEValues,
    SequentialState,
    log_e,
    standing,
)

if TYPE_CHECKING:
    from judge.gauntlet.tasks.benchmark import TaskResult
    from judge.gauntlet.tasks.reference_set import Task

__all__ = ["Exact", "TaskEvidence", "Weighed", "weigh"]

Notes = Mapping[str, tuple[str, ...]]
"""Task -> what is found there, in words."""


@dataclass(frozen=True, kw_only=True)
class Exact:
    """What the deterministic tasks say."""

    missing: tuple[str, ...]  # tasks that an arm has not answered
    losses: Notes
    gains: Notes
    savings: Notes  # of thrifts
    costs: Notes


@dataclass(frozen=True, kw_only=True)
class TaskEvidence:
    """What the pairs of one stochastic task prove; all of it log e-values."""

    improved: Mapping[str, float]  # quality or thrift -> that it is better
    harmed: Mapping[str, float]  # quality -> that it is worse
    costs: Mapping[str, float]  # thrift -> that it is worse
    unharmed: float  # that no quality is worse by the margin
    hopeless: float  # that nothing is better by the margin


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Everything together."""

    pairs: Mapping[str, tuple[Pair, ...]]
    exact: Exact
    proofs: Mapping[str, TaskEvidence]  # stochastic task -> what is known of it
    dear: Notes  # thrifts that got worse somewhere: while there are any, none counts as better
    standing: (
        SequentialState | None
    )  # none where no task is stochastic, or an exact loss settles it

    @property
    def gains(self) -> Notes:
        """Improvements that are exact, savings among them where they count."""
        found = dict(self.exact.gains)
        for task, notes in ({} if self.dear else self.exact.savings).items():
            found[task] = (*found.get(task, ()), *notes)
        return found


def weigh(
    results: Iterable["TaskResult"],
    *,
    tasks: Sequence["Task"],
    level: float,
    settings: ComparisonSettings,
) -> Weighed:
    """Weigh all results of both arms; what is no pair is left out.

    Raises GauntletError for results that contradict each other.
    """
    pairs = pairs_of(results, tasks=tasks)
    exact = _exactly({task.task_id: pairs[task.task_id] for task in tasks if not task.stochastic})
    stochastic = [task.task_id for task in tasks if task.stochastic]
    proofs = {task: _prove(pairs[task], settings) for task in stochastic}
    dear = {**exact.costs}
    for task, proof in proofs.items():
        shown = [name for name, log in proof.costs.items() if log >= -np.log(settings.worse)]
        if shown:
            dear[task] = tuple(f"{task}: {name} is worse" for name in shown)
    known = Weighed(pairs=pairs, exact=exact, proofs=proofs, dear=dear, standing=None)
    if exact.losses or not stochastic:
        return known
    evidence = _evidence(known, level=level, settings=settings)
    return replace(known, standing=standing(evidence, settings=settings))


def _exactly(pairs: Mapping[str, tuple[Pair, ...]]) -> Exact:
    answered = {task: each[0] for task, each in pairs.items() if each}
    losses = _notes(answered, QUALITIES, lambda pair, name: -difference(pair, name))
    faults = {task: pair for task, pair in answered.items() if _faults(pair) > 0}
    if sum(_faults(pair) for pair in answered.values()) > 0:
        for task, pair in faults.items():
            losses[task] = (
                *losses.get(task, ()),
                f"{task}: validation failures {pair.base.validation_failures} -> "
                f"{pair.candidate.validation_failures}",
            )
    return Exact(
        missing=tuple(task for task, each in pairs.items() if not each),
        losses=losses,
        gains=_notes(answered, QUALITIES, difference),
        savings=_notes(answered, THRIFTS, saving),
        costs=_notes(answered, THRIFTS, extra_cost),
    )


def _faults(pair: Pair) -> int:
    return pair.candidate.validation_failures - pair.base.validation_failures


def _notes(
    pairs: Mapping[str, Pair], names: Sequence[str], claim: Callable[[Pair, str], float]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for task, pair in pairs.items():
        notes = tuple(_told(task, name, pair) for name in names if claim(pair, name) > 0.0)
        if notes:
            found[task] = notes
    return found


def _told(task: str, name: str, pair: Pair) -> str:
    if name == "success":
        ends = "succeeds" if pair.candidate.success else "fails"
        why = f": {pair.candidate.problem}" if pair.candidate.problem else ""
        return f"{task}: {ends} now{why}"
    before, after = value(pair.base, name), value(pair.candidate, name)
    return f"{task}: {name} {before:g} -> {'nothing' if after is None else f'{after:g}'}"


def _prove(pairs: Sequence[Pair], settings: ComparisonSettings) -> TaskEvidence:
    given = {"success", *(name for pair in pairs for name in pair.base.metrics)}
    better = {name: [difference(pair, name) for pair in pairs] for name in QUALITIES}
    better = {name: each for name, each in better.items() if name in given}
    cheaper = {name: [saving(pair, name) for pair in pairs] for name in THRIFTS if name in given}
    dearer = {name: [extra_cost(pair, name) for pair in pairs] for name in cheaper}
    guarded = {**better, "validity": [-fault(pair) for pair in pairs]}
    claims = {**better, **cheaper}
    margin = settings.margin
    return TaskEvidence(
        improved={name: _log_e(each) for name, each in claims.items()},
        harmed={name: _log_e(_less(each)) for name, each in guarded.items()},
        costs={name: _log_e(each) for name, each in dearer.items()},
        unharmed=min(_log_e(each, margin=margin) for each in guarded.values()),
        hopeless=min(_log_e(_less(each), margin=margin) for each in claims.values()),
    )


def _log_e(differences: Sequence[float], *, margin: float = 0.0) -> float:
    return float(log_e(differences, [1.0] * len(differences), margin=margin))


def _less(differences: Sequence[float]) -> list[float]:
    return [-each for each in differences]


def _evidence(known: Weighed, *, level: float, settings: ComparisonSettings) -> LogEValues:
    """Lay the proofs out, with the money shared among claims that are fixed beforehand.

    A metric that a task does not have wins and loses nothing.
    """
    metrics = [name for name in (*QUALITIES, *THRIFTS) if name != "success"]
    metric_share = (1.0 - SUCCESS_SHARE) / len(metrics)
    improved, weights = [], []
    for proof in known.proofs.values():
        for name in ("success", *metrics):
            lost = known.dear and name in THRIFTS
            improved.append(-np.inf if lost else proof.improved.get(name, 0.0))
            weights.append(SUCCESS_SHARE if name == "success" else metric_share)
    guarded = (*QUALITIES, "validity")
    return LogEValues(
        improved=np.array(improved),
        weights=np.array(weights) / len(known.proofs),
        unharmed=np.array([proof.unharmed for proof in known.proofs.values()]),
        harmed=np.array(
            [proof.harmed.get(name, 0.0) for proof in known.proofs.values() for name in guarded]
        ),
        hopeless=np.array([proof.hopeless for proof in known.proofs.values()]),
        spent=np.array([len(known.pairs[task]) >= settings.most for task in known.proofs]),
        level=level,
        exact=bool(known.gains),
    )
