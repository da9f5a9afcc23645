"""What the answers of both arms show so far: exact findings and accumulated evidence.

A difference on a deterministic task counts once several pairs show the same one; losses count
together while no pair shows a gain. A task whose answers contradict each other is unsteady: it is
weighed like a stochastic one.

Source: claims.py says what is compared, e_values.py what it proves.
I/O: none.  Units: natural logarithms.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Required, TypedDict, Unpack

import numpy as np

from judge.gauntlet.comparison.claims import (
    QUALITIES,
    THRIFTS,
    Outcome,
    Pair,
    difference,
    extra_cost,
    fault,
    outcome,
    pairs_of,
    saving,
    value,
)
from judge.gauntlet.comparison.e_values import (
    DEFAULTS,
    SUCCESS_SHARE,
    ComparisonSettings,
    LogEValues,
    SequentialState,
    log_e_of,
    standing,
)
from judge.gauntlet.comparison.pace import PACES, Pace, pace_of
from judge.gauntlet.tasks.benchmark import TaskResult
from judge.gauntlet.tasks.reference_set import Task

GUARDED = (*QUALITIES, "validity", "repeatability")
"""What a change can be called worse for."""

Notes = Mapping[str, tuple[str, ...]]
"""Task -> what is found there, in words."""


class Terms(TypedDict, total=False):
    """What a comparison is made by."""

    level: Required[float]  # of error
    settings: ComparisonSettings
    # What the base answered to deterministic tasks before, for earlier proposals. It can only make
    # a task unsteady.
    record: Mapping[str, Collection[Outcome]]
    fixes: Sequence[str]  # cases of added tests that fail without the change: exact gains
    refactoring: bool  # no gain is sought: it is enough to be no worse
    timed: bool  # whether times count; by default they do


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What pairs of deterministic tasks show."""

    losses: Notes
    gains: Notes
    savings: Notes  # of thrifts
    costs: Notes


@dataclass(frozen=True, kw_only=True)
class TaskEvidence:
    """What the pairs of one stochastic or unsteady task prove; all of it log e-values."""

    improved: Mapping[str, float]  # quality or thrift -> that it is better
    harmed: Mapping[str, float]  # quality -> that it is worse
    costs: Mapping[str, float]  # thrift -> that it is worse
    unharmed: float  # that no quality is worse by the margin
    hopeless: float  # that nothing is better by the margin


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Everything together."""

    pairs: Mapping[str, tuple[Pair, ...]]
    missing: tuple[str, ...]  # deterministic tasks that an arm has not answered
    exact: Findings
    open: Findings  # shown by too few pairs so far
    proofs: Mapping[str, TaskEvidence]  # stochastic or unsteady task -> what is known of it
    unsteady: tuple[str, ...]  # deterministic tasks whose answers contradict each other
    dear: Notes  # thrifts that got worse somewhere: while there are any, no saving counts
    fixes: Notes  # cases of added tests that the change makes pass
    paces: Mapping[str, Pace]  # of PACES
    level: float
    settings: ComparisonSettings
    refactoring: bool
    # None where no task is stochastic or unsteady, or an exact loss settles it.
    standing: SequentialState | None = None

    @property
    def gains(self) -> Notes:
        """Improvements that are exact, savings among them where they count."""
        found = {**self.exact.gains, **self.fixes}
        for task, notes in ({} if self.dear else self.exact.savings).items():
            found[task] = (*found.get(task, ()), *notes)
        return found

    @property
    def promising(self) -> tuple[str, ...]:
        """Tasks of which more pairs may yield a gain; none where there is one already.

        A cost that is not confirmed yet is cleared up first where something else is saved.
        """
        if self.refactoring:  # which a cost ends
            return tuple(self.open.costs)
        if self.gains:
            return ()
        found = dict.fromkeys(self.open.gains)
        thrifty = any(name in THRIFTS for proof in self.proofs.values() for name in proof.improved)
        saved = self.exact.savings or self.open.savings or thrifty
        if saved and all(task in self.open.costs for task in self.dear):
            found |= dict.fromkeys([*self.open.costs, *self.open.savings])
        return tuple(task for task in found if task not in self.open.losses)


def weigh(
    results: Iterable[TaskResult], *, tasks: Sequence[Task], **terms: Unpack[Terms]
) -> Weighed:
    """Weigh all results of both arms; what is no pair is left out.

    Raises GauntletError for results that contradict each other.
    """
    level, settings = terms["level"], terms.get("settings", DEFAULTS)
    record, refactoring = terms.get("record", {}), terms.get("refactoring", False)
    pairs = pairs_of(results, tasks=tasks)
    exact_pairs = {task.task_id: pairs[task.task_id] for task in tasks if not task.stochastic}
    unsteady = tuple(
        task for task, each in exact_pairs.items() if _is_unsteady(each, record.get(task, ()))
    )
    steady = {task: each for task, each in exact_pairs.items() if task not in unsteady}
    together = not unsteady and _lose_together(exact_pairs, settings.confirmed)
    exact, open_ = _findings(steady, confirmed=settings.confirmed, together=together)
    proofs = {
        task.task_id: _prove(pairs[task.task_id], settings, repeatable=not task.stochastic)
        for task in tasks
        if task.stochastic or task.task_id in unsteady
    }
    dear = {**exact.costs, **open_.costs}
    for task, proof in proofs.items():
        shown = [name for name, log in proof.costs.items() if log >= -np.log(settings.worse)]
        if shown:
            dear[task] = tuple(f"{task}: {name} is worse" for name in shown)
    known = Weighed(
        pairs=pairs,
        missing=tuple(task for task, each in steady.items() if not each),
        exact=exact,
        open=open_,
        proofs=proofs,
        unsteady=unsteady,
        dear=dear,
        fixes={
            case: (f"{case}: fails without the change, passes with it",)
            for case in terms.get("fixes", ())
        },
        paces={
            name: pace_of(pairs, seconds, settings=settings)
            for name, seconds in (PACES if terms.get("timed", True) else {}).items()
        },
        level=level,
        settings=settings,
        refactoring=refactoring,
    )
    if exact.losses or not proofs:
        return known
    evidence = _evidence(known, tasks=len(tasks))
    return replace(known, standing=standing(evidence, settings=settings))


def _is_unsteady(pairs: Sequence[Pair], before: Collection[Outcome]) -> bool:
    """Tell whether an arm contradicts itself, or the base its record where the arms differ."""
    base = {outcome(pair.base) for pair in pairs}
    candidate = {outcome(pair.candidate) for pair in pairs}
    return len(base) > 1 or len(candidate) > 1 or (base != candidate and bool({*before} - base))


def _lose_together(pairs: Mapping[str, tuple[Pair, ...]], confirmed: int) -> bool:
    """Tell whether so many pairs of any tasks show a loss, and none a gain.

    If a change changes nothing, the drawn order makes either of the two as likely in each pair.
    """
    found = [_loses(pair) for each in pairs.values() for pair in each]
    return False not in found and found.count(True) >= confirmed


def _loses(pair: Pair) -> bool | None:
    """Tell whether a pair shows a loss and no gain; None where it shows neither."""
    signs = [difference(pair, name) for name in QUALITIES] + [-_faults(pair)]
    return all(sign <= 0 for sign in signs) if any(signs) else None


def _findings(
    pairs: Mapping[str, tuple[Pair, ...]], *, confirmed: int, together: bool
) -> Iterator[Findings]:
    """Yield what is shown, and what is shown by too few pairs; losses count `together` or alone."""
    answered = {task: each[0] for task, each in pairs.items() if each}
    losses = _lost(answered)
    for shown in (True, False):
        some = {t: pair for t, pair in answered.items() if (len(pairs[t]) >= confirmed) is shown}
        yield Findings(
            losses={
                task: notes
                for task, notes in losses.items()
                if (together or len(pairs[task]) >= confirmed) is shown
            },
            gains=_notes(some, QUALITIES, difference),
            savings=_notes(some, THRIFTS, _saved),
            costs=_notes(some, THRIFTS, extra_cost),
        )


def loss_of(base: TaskResult, candidate: TaskResult) -> str | None:
    """Return what one answer to a deterministic task lost, in words; None if nothing."""
    losses = _lost({base.task_id: Pair(base, candidate)})
    return losses[base.task_id][0] if losses else None


def _lost(answered: Mapping[str, Pair]) -> dict[str, tuple[str, ...]]:
    losses = _notes(answered, QUALITIES, lambda pair, name: -difference(pair, name))
    faults = {task: pair for task, pair in answered.items() if _faults(pair) > 0}
    if sum(_faults(pair) for pair in answered.values()) > 0:
        for task, pair in faults.items():
            losses[task] = (
                *losses.get(task, ()),
                f"{task}: validation failures {pair.base.validation_failures} -> "
                f"{pair.candidate.validation_failures}",
            )
    return losses


def _saved(pair: Pair, name: str) -> float:
    """Return what a thrift has gained where both arms succeed and the guard is no worse."""
    both = pair.base.success and pair.candidate.success
    return difference(pair, name) if both and saving(pair, name) > 0.0 else 0.0


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
    then, now = ("nothing" if each is None else f"{each:g}" for each in (before, after))
    return f"{task}: {name} {then} -> {now}"


def _prove(
    pairs: Sequence[Pair], settings: ComparisonSettings, *, repeatable: bool
) -> TaskEvidence:
    given = {"success"}
    for pair in pairs:
        given |= pair.base.metrics.keys() | pair.candidate.metrics.keys()
    better = {q: [difference(pair, q) for pair in pairs] for q in QUALITIES if q in given}
    cheaper = {name: [saving(pair, name) for pair in pairs] for name in THRIFTS if name in given}
    dearer = {name: [extra_cost(pair, name) for pair in pairs] for name in cheaper}
    guarded = {**better, "validity": [-fault(pair) for pair in pairs]}
    if repeatable:
        guarded["repeatability"] = _repeated(pairs)
    claims = {**better, **cheaper}
    margin = settings.margin
    return TaskEvidence(
        improved={name: log_e_of(each) for name, each in claims.items()},
        harmed={name: log_e_of(_less(each)) for name, each in guarded.items()},
        costs={name: log_e_of(each) for name, each in dearer.items()},
        unharmed=min(log_e_of(each, margin=margin) for each in guarded.values()),
        hopeless=min(log_e_of(_less(each), margin=margin) for each in claims.values()),
    )


def _repeated(pairs: Sequence[Pair]) -> list[float]:
    """Return by how much more often the candidate gives one right answer twice.

    No pair counts twice. To be wrong twice is no virtue: a base that always fails is not ahead.
    """
    blocks = zip(pairs[::2], pairs[1::2], strict=False)
    return [
        float(_same(one.candidate, two.candidate)) - float(_same(one.base, two.base))
        for one, two in blocks
    ]


def _same(one: TaskResult, two: TaskResult) -> bool:
    return one.success and outcome(one) == outcome(two)


def _less(differences: Sequence[float]) -> list[float]:
    return [-each for each in differences]


def _evidence(known: Weighed, *, tasks: int) -> LogEValues:
    """Lay the proofs out, with the money shared among claims that are fixed beforehand.

    A metric that a task does not have wins and loses nothing; neither does a task that is steady.
    """
    metrics = [name for name in (*QUALITIES, *THRIFTS) if name != "success"]
    metric_share = (1.0 - SUCCESS_SHARE) / len(metrics)
    improved, weights = [], []
    for proof in known.proofs.values():
        for name in ("success", *metrics):
            lost = known.dear and name in THRIFTS
            improved.append(-np.inf if lost else proof.improved.get(name, 0.0))
            weights.append(SUCCESS_SHARE if name == "success" else metric_share)
    rest = tasks - len(known.proofs)
    harmed = [proof.harmed.get(name, 0.0) for proof in known.proofs.values() for name in GUARDED]
    return LogEValues(
        improved=np.array([*improved, *[0.0] * rest]),
        weights=np.array([*weights, *[1.0] * rest]) / tasks,
        unharmed=np.array([proof.unharmed for proof in known.proofs.values()]),
        harmed=np.array([*harmed, *[0.0] * (rest * len(GUARDED))]),
        hopeless=np.array([proof.hopeless for proof in known.proofs.values()]),
        spent=np.array([len(known.pairs[task]) >= known.settings.most for task in known.proofs]),
        level=known.level,
        exact=bool(known.gains) or known.refactoring,
    )
