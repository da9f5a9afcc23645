"""Measures a line's head, independent of proposals: on the reference set and on hidden siblings.

The head of the branch and the active checkpoint answer the same tasks in turn. An alarm is recorded
if the head is not the promoted commit, or is worse. The hidden siblings are tasks of the same kinds
outside the repository, which no proposer has seen: on these a promoted head is compared with the
newest checkpoint that people made, as proposals may have learned the reference set by heart.

Source: docs/reference/gauntlet.md, "Measurements".
Trust: the head may be anybody's; its code is run as a candidate's is.
I/O: the workplace; processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aggregates.improvement.line import Line
from judge.gauntlet.arms import answering, in_turn
from judge.gauntlet.comparison.evaluate import Evaluation, compare, wanted_pairs
from judge.gauntlet.comparison.weighing import Terms
from judge.gauntlet.tasks.benchmark import ARMS, Arm, TaskResult
from judge.gauntlet.tasks.reference_set import ReferenceSet, Task
from judge.gauntlet.workplace import Workplace

_RECORDED = ("success", "validation_failures", "metrics", "problem")  # of a result
_ONCE = 0.05  # of error; stochastic tasks are left out, and nothing is promoted by it


@dataclass(frozen=True)
class Deviation:
    """Why the head is not what it should be."""

    kind: str  # "not promoted" or "worse"
    detail: str
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Shares of tasks that are answered, set by set, and alarms."""

    commit: str
    checkpoint: str
    shares: Mapping[str, tuple[float, float]]  # set -> of what the head is compared with, head's
    alarms: tuple[Deviation, ...]


def measure(place: Workplace, *, hidden: Path | None) -> Measurement:
    """Measure the branch's head against its checkpoint, and put both on record."""
    line, head = place.line(), place.repository.head(place.branch)
    active = line.head
    sets = {"reference": place.reference_set(active.commit)}
    if hidden is not None:
        sets["hidden"] = place.set_in(hidden)
    shares: dict[str, tuple[float, float]] = {}
    alarms = []
    if head != active.commit:
        alarms.append(
            Deviation("not promoted", f"the branch is at {head}, which has not passed the gauntlet")
        )
    for name, tasks in sets.items():
        promoted = name == "hidden" and head == active.commit
        against = line.trusted.commit if promoted else active.commit
        answers, worse = _compared(place, against, head, tasks.tasks)
        base, found = ([each for each in answers if each.arm == arm] for arm in ARMS)
        if head == against:  # one arm was asked, for both
            base = found
        elif recorded(place, commit=against, tasks=tasks) is None:
            _record(place, against, name, tasks, base)
        _record(place, head, name, tasks, found)
        shares[name] = (_share(base), _share(found))
        if worse is not None and worse.regressions:
            detail = f"the {name} set: {'; '.join(worse.reasons)}"
            alarms.append(Deviation("worse", detail, worse.regressions))
    for alarm in alarms:
        place.alarm(**asdict(alarm), commit=head)
    return Measurement(commit=head, checkpoint=active.id, shares=shares, alarms=tuple(alarms))


def recorded(place: Workplace, *, commit: str, tasks: ReferenceSet) -> list[TaskResult] | None:
    """Return what a commit was worth on a set when it was last measured; None if it never was."""
    found: Mapping[str, Mapping[str, Any]] | None = None
    for event in place.log.events.get(place.line_id):
        if not isinstance(event, Line.DriftMeasured):
            continue
        if event.commit == commit and event.sha256 == tasks.sha256:
            found = event.tasks
    if found is None or not {task.task_id for task in tasks.tasks} <= found.keys():
        return None  # or a server that some tasks need was configured since
    return [
        TaskResult(
            task_id=task.task_id,
            arm="base",
            repeat=0,
            seed=task.seed,
            isolation=(),
            **{name: found[task.task_id][name] for name in _RECORDED},
        )
        for task in tasks.tasks
    ]


def _compared(
    place: Workplace, checkpoint: str, head: str, tasks: Sequence[Task]
) -> tuple[list[TaskResult], Evaluation | None]:
    """Return both commits' answers, confined as a candidate's; one arm's where they are the same.

    Both are asked again where they differ on a deterministic task; what these answers come to is
    returned, too. No more pairs are asked of an unsteady one.
    """
    exact = [task for task in tasks if not task.stochastic]
    commits: dict[Arm, str] = {"base": checkpoint, "candidate": head}
    if checkpoint == head:
        del commits["base"]
    results: list[TaskResult] = []
    settings = replace(place.settings, most=place.settings.confirmed)
    terms = Terms(level=_ONCE, settings=settings, timed=False)

    def wanted() -> list[tuple[str, int]]:
        if not results:
            return [(task.task_id, 0) for task in tasks]
        if len(commits) < len(ARMS) or not exact:
            return []
        return wanted_pairs(results, tasks=exact, **terms)

    manifest = place.manifest(place.line().head.commit)
    with answering(place, commits, manifest, tasks) as asking:
        for turns in in_turn(wanted, tasks, random=place.random, arms=[*commits]):
            results += asking.each(turns)
    places = {task.task_id: number for number, task in enumerate(tasks)}
    results.sort(key=lambda each: (places[each.task_id], each.repeat))
    if len(commits) < len(ARMS):
        return results, None
    return results, compare(results, tasks=exact, **terms)


def _record(
    place: Workplace, commit: str, name: str, tasks: ReferenceSet, results: Sequence[TaskResult]
) -> None:
    told = {
        result.task_id: {name: getattr(result, name) for name in _RECORDED}
        for result in results
        if result.repeat == 0
    }
    place.change_line(
        lambda line: line.measure(commit=commit, set=name, sha256=tasks.sha256, tasks=told)
    )


def _share(results: Sequence[TaskResult]) -> float:
    first = [result.success for result in results if result.repeat == 0]
    return sum(first) / len(first)
