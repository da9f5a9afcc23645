"""Looks for situations that a line's head decides wrongly, and keeps them as candidates for tasks.

What is right is said by the judge's own copy of the rules. Candidates have the form of a reference
set and lie outside of it: only people put tasks into one.

I/O: runs the head's code, confined; writes below the home.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from aggregates.decisions import Observation
from judge.gauntlet.controller import Controller
from judge.gauntlet.repository.manifest import Manifest
from judge.gauntlet.tasks.benchmark import export, run_task
from judge.gauntlet.tasks.observations import from_plain, to_plain
from judge.gauntlet.tasks.oracle import expected_answers
from judge.gauntlet.tasks.reference_set import Task
from policies.proposing.adversary import edge_cases
from proctor.errors import ProctorError

KIND = "decisions"  # of the tasks that situations are taken from, and made for
_SNAPSHOT = "observations.json"


@dataclass(frozen=True)
class Challenge:
    """What came of a search."""

    tried: int
    kept: tuple[str, ...]  # ids of candidates, new ones and such as were there before
    folder: Path


def challenge(controller: Controller, into: Path, *, seed: int, count: int) -> Challenge:
    """Try situations near the bounds on the line's head; keep those that it decides wrongly."""
    place = controller.place
    with controller.locked(), place.scratch() as scratch:
        commit = controller.line.head.commit
        manifest = place.manifest(commit)
        situations = _situations(place.reference_set(commit).tasks)
        if not situations:
            raise ProctorError(f"the reference set has no task of kind {KIND!r} to start from")
        tree = scratch / "head"
        tree.mkdir()
        export(place.repository, commit, manifest, tree)
        cases = list(edge_cases(situations, seed=seed, count=count))
        wrong = _wrong(cases, tree, manifest, scratch)
    source = f"adversary, seed {seed}, at {commit[:12]}"
    day = datetime.fromtimestamp(place.clock(), UTC).date().isoformat()
    kept = [_task([seen], source=source, day=day) for seen in wrong]
    _write(into, kept)
    return Challenge(len(cases), tuple(task.task_id for task in kept), into)


def _situations(tasks: Sequence[Task]) -> list[Observation]:
    return [
        from_plain(plain)
        for task in tasks
        if task.kind == KIND and _SNAPSHOT in task.files
        for plain in json.loads(task.files[_SNAPSHOT])
    ]


def _wrong(
    cases: Sequence[Observation], tree: Path, manifest: Manifest, scratch: Path
) -> list[Observation]:
    """Return the cases that are decided wrongly: all are tried together, and halved if one is."""
    if not cases:
        return []
    task = _task(cases, source="adversary", day="")
    if run_task(task, tree, manifest, arm="base", scratch=scratch).success:
        return []
    if len(cases) == 1:
        return list(cases)
    half = len(cases) // 2
    return [
        *_wrong(cases[:half], tree, manifest, scratch),
        *_wrong(cases[half:], tree, manifest, scratch),
    ]


def _task(cases: Sequence[Observation], *, source: str, day: str) -> Task:
    plain = _text([to_plain(seen) for seen in cases])
    expected = {"answers": [expected_answers(seen) for seen in cases]}
    name = f"edge-{sha256(plain).hexdigest()[:12]}"
    entry = {
        "task_id": name,
        "source": source,
        "source_commit": None,
        "description": "A situation near a rule's bound, or at a remedy's limit",
        "expected_outcome": "every due rule is answered as the playbook says, and no other",
        "expected_diff_path": None,
        "categories": ["decisions", "limits"],
        "difficulty": "hard",
        "added_by": "adversary",
        "added_at": day,
        "regression_anchor_for": None,
    }
    return Task(
        task_id=name,
        kind=KIND,
        seed=0,
        stochastic=False,
        categories=("decisions", "limits"),
        difficulty="hard",
        description=str(entry["description"]),
        parameters={},
        files={_SNAPSHOT: plain},
        expected=expected,
        scorer=KIND,
        sha256="",
        entry=entry,
    )


def _write(into: Path, tasks: Sequence[Task]) -> None:
    """Add tasks to a folder in the form of a reference set."""
    manifest = into / "manifest.json"
    entries: list[Mapping[str, Any]] = []
    if manifest.exists():
        entries = json.loads(manifest.read_text(encoding="utf-8"))["tasks"]
    known = {entry["task_id"] for entry in entries}
    for task in tasks:
        folder = into / "tasks" / task.task_id
        told = {"kind": KIND, "seed": 0, "stochastic": False, "scorer": KIND, "parameters": {}}
        files = {"task.json": _text(told), "expected.json": _text(task.expected)}
        files |= {f"repo_snapshot/{name}": content for name, content in task.files.items()}
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    entries += [task.entry for task in tasks if task.task_id not in known]
    if entries:
        manifest.write_bytes(_text({"version": 1, "tasks": entries}))


def _text(content: object) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
