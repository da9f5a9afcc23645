"""Reference tasks that lie in no folder."""

from datetime import date
from typing import Any

from judge.gauntlet.tasks.reference_set import Task, TaskEntry


def made_task(task_id: str = "one", *, described: str = "Any.", **fields: Any) -> Task:
    """Return an easy task, deterministic unless the fields say otherwise."""
    entry = TaskEntry(
        task_id=task_id,
        source="by hand",
        source_commit=None,
        description=described,
        expected_outcome="the right answer",
        expected_diff_path=None,
        categories=("any",),
        difficulty="easy",
        added_by="ada",
        added_at=date(2026, 11, 21),
        regression_anchor_for=None,
    )
    whole: dict[str, Any] = {
        "kind": "any",
        "seed": 7,
        "stochastic": False,
        "scorer": "exact",
        "parameters": {},
        "files": {},
        "expected": {},
        **fields,
    }
    return Task(entry=entry, **whole)
