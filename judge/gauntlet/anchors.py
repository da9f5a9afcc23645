"""Regression anchors: tasks on which something once got worse, and which are therefore kept.

A task becomes a candidate by itself, from what is on record; an operator admits it. Those in the
reference set already are marked as anchors there, hidden siblings are copied into it.

Source: docs/reference/gauntlet.md, "Anchors".
I/O: the workplace.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from aggregates.improvement.line import Line
from judge.gauntlet.records import ProposalIndex
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.workplace import Workplace


@dataclass(frozen=True, kw_only=True)
class AnchorCandidate:
    """A task that found a regression."""

    task: str
    because: tuple[str, ...]  # ids of proposals, or "alarm at COMMIT"
    in_set: bool  # the reference set has it
    admitted: bool  # with the content that it has now
    sha256: str | None  # None: the task is nowhere to be found any more


def candidates(
    place: Workplace, records: ProposalIndex, *, hidden: Iterable[Task] = ()
) -> list[AnchorCandidate]:
    """Return the tasks on which something got worse, in the order in which that was noticed."""
    because: dict[str, dict[str, None]] = {}
    for proposal, task in records.regressions():
        because.setdefault(task, {})[str(proposal)] = None
    for event in place.log.events.get(place.line_id):
        if isinstance(event, Line.DriftAlarmed):
            for task in event.tasks:
                because.setdefault(task, {})[f"alarm at {event.commit}"] = None
    line = place.line()
    own = {task.task_id: task for task in place.reference_set(line.head.commit).tasks}
    known = {**{task.task_id: task for task in hidden}, **own}
    return [
        AnchorCandidate(
            task=task,
            because=tuple(why),
            in_set=task in own,
            admitted=task in known and line.admitted.get(task) == known[task].sha256,
            sha256=known[task].sha256 if task in known else None,
        )
        for task, why in because.items()
    ]


def as_anchor(task: Task, *, because: str) -> Task:
    """Return a task as it stands in a reference set once it has found a regression."""
    return replace(task, entry=replace(task.entry, regression_anchor_for=because))
