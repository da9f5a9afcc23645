"""Looks for situations that a line's head decides wrongly, and keeps them as candidates for tasks.

What is right is said by the judge's own copy of the rules. Candidates have the form of a reference
set and lie outside of it: only people put tasks into one.

I/O: runs the head's code, confined; writes below the home.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

from aggregates.decisions import Observation
from judge.gauntlet.arms import answering
from judge.gauntlet.controller import Controller
from judge.gauntlet.tasks.reference_set import MANIFEST, Task, TaskEntry, write_tasks
from judge.reference.observations import from_plain, to_plain
from judge.reference.oracle import expected_answers
from policies.proposing.adversary import edge_cases
from proctor.errors import ProctorError

KIND = "decisions"  # of the tasks that situations are taken from, and made for
RIGHT = "every due rule is answered as the playbook says, and no other"
_SNAPSHOT = "observations.json"


@dataclass(frozen=True)
class Challenge:
    """Situations that were tried, and drafts of those that are decided wrongly."""

    tried: int
    kept: tuple[str, ...]  # ids of candidates, new ones and such as were there before
    folder: Path


def challenge(controller: Controller, into: Path, *, seed: int, count: int) -> Challenge:
    """Try situations near the bounds on the line's head; keep those that it decides wrongly."""
    place = controller.place
    with controller.locked():
        commit = controller.line.head.commit
        tasks = place.reference_set(commit).tasks
        situations = _situations(tasks)
        if not situations:
            raise ProctorError(f"the reference set has no task of kind {KIND!r} to start from")
        cases = list(edge_cases(situations, seed=seed, count=count))
        make = partial(
            _task,
            source=f"adversary, seed {seed}, at {commit[:12]}",
            day=datetime.fromtimestamp(place.clock(), UTC).date(),
        )

        with answering(place, {"base": commit}, place.manifest(commit), tasks) as asking:

            def right(cases: Sequence[Observation]) -> bool:
                return asking.ask(make(cases)).success

            kept = [make([seen]) for seen in _wrong(cases, right)]
    if kept:
        write_tasks(into, kept, add=(into / MANIFEST).exists())
    return Challenge(len(cases), tuple(task.task_id for task in kept), into)


def _situations(tasks: Sequence[Task]) -> list[Observation]:
    return [
        from_plain(plain)
        for task in tasks
        if task.kind == KIND and _SNAPSHOT in task.files
        for plain in json.loads(task.files[_SNAPSHOT])
    ]


def _wrong(
    cases: Sequence[Observation], right: Callable[[Sequence[Observation]], bool]
) -> list[Observation]:
    """Return the cases that are decided wrongly: all are tried together, and halved if one is."""
    if not cases or right(cases):
        return []
    if len(cases) == 1:
        return list(cases)
    half = len(cases) // 2
    return [*_wrong(cases[:half], right), *_wrong(cases[half:], right)]


def _task(cases: Sequence[Observation], *, source: str, day: date) -> Task:
    plain = _plain(cases)
    entry = TaskEntry(
        task_id=f"edge-{sha256(plain).hexdigest()[:12]}",
        source=source,
        source_commit=None,
        description="A situation near a rule's bound, or at a remedy's limit",
        expected_outcome=RIGHT,
        expected_diff_path=None,
        categories=("decisions", "limits"),
        difficulty="hard",
        added_by="adversary",
        added_at=day,
        regression_anchor_for=None,
    )
    return decisions_task(entry, cases)


def decisions_task(
    entry: TaskEntry, cases: Sequence[Observation], *, stochastic: bool = False
) -> Task:
    """Return a task that has situations decided, with what the judge's copy of the rules says."""
    return Task(
        entry=entry,
        kind=KIND,
        stochastic=stochastic,
        scorer=KIND,
        files={_SNAPSHOT: _plain(cases)},
        expected={"answers": [expected_answers(seen) for seen in cases]},
    )


def _plain(cases: Sequence[Observation]) -> bytes:
    told = json.dumps([to_plain(seen) for seen in cases], indent=1, sort_keys=True)
    return f"{told}\n".encode()
