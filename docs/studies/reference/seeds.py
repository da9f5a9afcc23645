"""Reference tasks from seeds: the set in the repository, and its siblings that nobody sees.

    python docs/studies tasks docs/studies/reference_tasks

writes the set that is committed, anew from PLAN and DRAWN. The tasks of PLAN are deterministic.
Those of DRAWN are stochastic: they name a kind and a difficulty, and a task of them is made from
each evaluation's seed. Siblings are made from a secret: what they hold
cannot be worked out without it, and the seed that a candidate is told is not the one that they
were made from.
I/O: writes the folder of a reference set.
"""

import argparse
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random

import msgspec

from judge.gauntlet.errors import TaskError
from judge.gauntlet.tasks.reference_set import (
    DIFFICULTIES,
    Difficulty,
    Task,
    TaskEntry,
    write_tasks,
)
from judge.gauntlet.tasks.scoring import told_seed
from studies.reference.decisions import (
    make_blocked,
    make_changed,
    make_fresh,
    make_norms,
    make_offers,
    make_precedence,
    make_remedies,
    make_silent,
    make_trials,
    make_waiting,
    make_watched,
)
from studies.reference.going_back import make_going_back
from studies.reference.histories import make_evidence, make_hindsight, make_prompt
from studies.reference.ledgers import make_ledgers
from studies.reference.making import Made, Maker
from studies.reference.messages import make_exported, make_readings, make_schema, make_votes
from studies.reference.pasts import make_numbers, make_past
from studies.reference.rescues import NETWORKS, RESCUES, TRAININGS
from studies.reference.worth import WORTH

__all__ = [
    "ANEW",
    "DRAWN",
    "MAKERS",
    "PLAN",
    "Planned",
    "draw",
    "kinds_of",
    "make",
    "make_siblings",
    "write_set",
]

MAKERS: Mapping[str, Maker] = {
    "blocked": make_blocked,
    "changed": make_changed,
    "evidence": make_evidence,
    "exported": make_exported,
    "fresh": make_fresh,
    "going-back": make_going_back,
    "hindsight": make_hindsight,
    "ledgers": make_ledgers,
    "norms": make_norms,
    "numbers": make_numbers,
    "offers": make_offers,
    "past": make_past,
    "precedence": make_precedence,
    "prompt": make_prompt,
    "readings": make_readings,
    "remedies": make_remedies,
    "schema": make_schema,
    "silent": make_silent,
    "trials": make_trials,
    "votes": make_votes,
    "waiting": make_waiting,
    "watched": make_watched,
    **NETWORKS,
    **RESCUES,
    **TRAININGS,
    **WORTH,
}
ANEW = frozenset(("ledgers",))  # kinds that are never the same twice: keys are drawn for them
_ADDED_AT = date(2026, 11, 21)


@dataclass(frozen=True)
class Planned:
    """One task that is to be made."""

    kind: str
    difficulty: Difficulty
    seed: int = 0

    @property
    def task_id(self) -> str:
        """The task's name: what it is about, and how hard it is."""
        return f"{self.kind}-{self.difficulty}" + (f"-{self.seed}" if self.seed else "")


_DIFFICULTIES: Mapping[str, tuple[Difficulty, ...]] = {
    "blocked": ("hard",),
    "evidence": ("easy", "medium", "hard"),
    "exported": ("medium",),
    "hindsight": ("easy", "medium", "hard"),
    "ledgers": ("medium",),
    "norms": ("hard",),
    "numbers": ("medium",),
    "offers": ("easy", "medium", "hard"),
    "precedence": ("easy", "hard"),
    "prompt": ("medium", "hard"),
    "readings": ("easy", "medium", "hard"),
    "remedies": ("easy", "medium", "hard"),
    "rescue-batch-large": ("easy",),
    "rescue-batch-small": ("medium", "hard"),
    "rescue-blocked": ("hard",),
    "rescue-capacity": ("medium", "hard"),
    "rescue-dead": ("easy",),
    "rescue-exploding": ("easy", "medium"),
    "rescue-lag": ("medium", "hard"),
    "rescue-lost": ("medium",),
    "rescue-lr-high": ("easy", "hard"),
    "rescue-lr-low": ("medium", "hard"),
    "rescue-nothing": ("easy",),
    "rescue-overfitting": ("medium",),
    "rescue-plateau": ("medium",),
    "rescue-two-faults": ("hard",),
    "rescue-vanishing": ("medium", "hard"),
    "schema": ("medium",),
    "silent": ("easy",),
    "training-lost": ("medium",),
    "training-lr-high": ("medium",),
    "training-lr-low": ("hard",),
    "trials": ("hard",),
    "votes": ("medium",),
    "waiting": ("medium", "hard"),
    "watched": ("medium",),
}
PLAN = tuple(
    Planned(kind, difficulty)
    for kind, difficulties in _DIFFICULTIES.items()
    for difficulty in difficulties
)
# Cheap to make and to score, since a proposal that is promoted answers each at least fifty times.
_DRAWN: Mapping[str, tuple[Difficulty, ...]] = {
    "blocked": ("hard",),
    "changed": ("hard",),
    "evidence": ("easy", "medium", "hard"),
    "fresh": ("hard",),
    "going-back": ("hard",),
    "hindsight": ("easy", "medium"),
    "norms": ("hard",),
    "offers": ("medium",),
    "past": ("hard",),
    "precedence": ("easy", "hard"),
    "prompt": ("medium",),
    "readings": ("easy", "hard"),
    "remedies": ("easy",),
    "rescue-batch-large": ("easy",),
    "rescue-capacity": ("medium",),
    "rescue-lag": ("medium", "hard"),
    "rescue-lr-high": ("hard",),
    "rescue-lr-low": ("medium", "hard"),
    "rescue-overfitting": ("medium",),
    "rescue-two-faults": ("hard",),
    "silent": ("easy",),
    "trials": ("hard",),
    "votes": ("medium",),
    "waiting": ("medium", "hard"),
    "watched": ("medium",),
    "worth": ("medium",),
    "worth-network": ("medium",),
}
DRAWN = tuple(
    Planned(kind, difficulty)
    for kind, difficulties in _DRAWN.items()
    for difficulty in difficulties
)


def make(kind: str, seed: int, difficulty: str) -> Made:
    """Return a task; raise TaskError where there is no such kind or difficulty."""
    if kind not in MAKERS or difficulty not in DIFFICULTIES:
        raise TaskError(f"no task is made of kind {kind!r} and difficulty {difficulty!r}")
    rng = Random(f"{kind}/{difficulty}/{seed}")  # noqa: S311 - repeatable; siblings have a secret
    return MAKERS[kind](rng, difficulty)


def draw(task: Task) -> Task:
    """Return the task of a kind that follows from the seed; the candidate is told another seed."""
    kind, difficulty = task.expected["kind"], task.expected["difficulty"]
    made = make(kind, task.seed, difficulty)
    return msgspec.structs.replace(
        task,
        kind=made.kind,
        seed=told_seed(task.seed),
        scorer=made.scorer,
        expected=made.expected,
        files=_files(made),
    )


def write_set(
    directory: Path, planned: Sequence[Planned], *, drawn: Sequence[Planned] = ()
) -> None:
    """Write a reference set into a folder; tasks that lie there already are written anew.

    Tasks of the folder that no maker made, such as those from history, stay as they are.
    """
    write_tasks(
        directory,
        [
            *(
                _task(
                    one.task_id,
                    one,
                    make(one.kind, one.seed, one.difficulty),
                    source=f"made: {one.kind}, seed {one.seed}",
                )
                for one in planned
            ),
            *(_drawn(one) for one in drawn),
        ],
        beside=lambda entry: not entry.source.startswith("made: "),
    )


def kinds_of(names: Collection[str]) -> tuple[Planned, ...]:
    """Return what tasks of these names are of: those of PLAN, or drawn ones where none is."""
    every = (Planned(kind, each) for kind in MAKERS for each in DIFFICULTIES)
    planned = tuple(one for one in PLAN if one.task_id in names)
    return planned or tuple(one for one in every if f"drawn-{one.task_id}" in names)


def make_siblings(
    directory: Path, secret: bytes, per_kind: int, *, planned: Sequence[Planned] = PLAN
) -> None:
    """Write a set of these kinds and difficulties, `per_kind` of each, from a secret."""
    if len(secret) < 16 or per_kind < 1:
        raise TaskError("siblings need a secret of at least 16 bytes, and at least one per kind")
    tasks = []
    for one in planned:
        for number in range(per_kind):
            name = f"{one.task_id}/{number}".encode()
            seed = int.from_bytes(hmac.digest(secret, name, "sha256")[:8])
            task_id = f"sibling-{hmac.digest(secret, b'id ' + name, 'sha256').hex()[:16]}"
            made = make(one.kind, seed, one.difficulty)
            tasks.append(_task(task_id, one, made, source=f"made: {one.kind}, a secret seed"))
    write_tasks(directory, tasks)


def _task(task_id: str, one: Planned, made: Made, *, source: str) -> Task:
    """Return a task; the seed that a candidate is told follows from the task's name."""
    return Task(
        entry=TaskEntry(
            task_id=task_id,
            source=source,
            source_commit=None,
            description=made.description,
            expected_outcome=made.outcome,
            expected_diff_path=None,
            categories=made.categories,
            difficulty=one.difficulty,
            added_by="maintainers",
            added_at=_ADDED_AT,
            regression_anchor_for=None,
        ),
        kind=made.kind,
        seed=int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:4]),
        stochastic=False,
        scorer=made.scorer,
        parameters={},
        expected=made.expected,
        files=_files(made),
    )


def _drawn(one: Planned) -> Task:
    """Return a stochastic task: its files and what is expected follow from each drawn seed."""
    task_id = f"drawn-{one.task_id}"
    task = _task(
        task_id,
        one,
        make(one.kind, one.seed, one.difficulty),
        source=f"made: {one.kind}, from a seed that is drawn for each pair of answers",
    )
    return msgspec.structs.replace(
        task,
        kind="drawn",
        stochastic=True,
        scorer="drawn",
        expected={"kind": one.kind, "difficulty": one.difficulty},
        files={},
    )


def _files(made: Made) -> dict[str, bytes]:
    return {
        name: (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode()
        for name, value in made.files.items()
    }


def main(arguments: Sequence[str]) -> None:
    """Write the set of PLAN and DRAWN into the folder that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python docs/studies tasks",
        description="Write the reference set of this repository anew.",
    )
    parser.add_argument(
        "directory", type=Path, help="Folder of the set: docs/studies/reference_tasks."
    )
    write_set(parser.parse_args(arguments).directory, PLAN, drawn=DRAWN)
