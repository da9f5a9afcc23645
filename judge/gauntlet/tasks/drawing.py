"""Tasks that are drawn anew from each seed: the same kind of problem, never the same one twice.

Such a task is declared stochastic, and its scorer names a Drawing. Each pair of answers has a seed
of its own, which is drawn when the pair is asked, and recorded: whoever has the record can draw the
same problem. The candidate is told another seed, from which this one does not follow.

Trust: what is drawn from is the reference set's, which is ours.
I/O: none.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from judge.gauntlet.errors import GauntletError

if TYPE_CHECKING:
    from judge.gauntlet.tasks.reference_set import Task
    from judge.gauntlet.tasks.scoring import Ask, Score, Scorer

_POOL = "documents.json"


@dataclass(frozen=True)
class Drawing:
    """Stands among the scorers for tasks that are drawn: with another scorer, by their seed."""

    draw: Callable[["Task"], "Task"]

    def __call__(self, task: "Task", ask: "Ask") -> "Score":  # noqa: ARG002 - as all scorers
        """Raise GauntletError: a task is drawn before it is asked."""
        raise GauntletError(f"task {task.task_id} was asked without being drawn")


def drawn(task: "Task", scorers: Mapping[str, "Scorer"]) -> "Task":
    """Return the task as it is asked with its seed; most are asked as they stand."""
    scorer = scorers[task.scorer]
    return scorer.draw(task) if isinstance(scorer, Drawing) else task


def told_seed(seed: int) -> int:
    """Return the seed that a candidate is told of a task that was drawn from another one."""
    return int.from_bytes(hashlib.sha256(f"told {seed}".encode()).digest()[:7])


def draw_selection(task: "Task") -> "Task":
    """Draw one of a pool's topics, some of its rivals, and other documents to fill up with.

    Expect {"cap", "documents", "topics": [{"query", "needed", "rivals"}, ...]} over the snapshot's
    documents. They get other names, so that none is known by its name.
    """
    rng = Random(f"{task.task_id}/{task.seed}")  # noqa: S311 - repeatable from the record
    pool = {each["id"]: each for each in json.loads(task.files[_POOL])}
    topic = rng.choice(task.expected["topics"])
    needed, rivals = topic["needed"], topic["rivals"]
    chosen = [*needed, *rng.sample(rivals, rng.randint(0, len(rivals)))]
    others = [name for name in pool if name not in {*needed, *rivals}]
    if len(chosen) + len(others) < task.expected["documents"]:
        raise GauntletError(f"task {task.task_id}: {_POOL} has too few documents to draw from")
    chosen += rng.sample(others, task.expected["documents"] - len(chosen))
    rng.shuffle(chosen)
    numbers = rng.sample(range(100, 1_000), len(chosen))
    names = {name: f"d{n}" for name, n in zip(chosen, numbers, strict=True)}
    documents = [{**pool[name], "id": names[name]} for name in chosen]
    cap = task.expected["cap"]
    return msgspec.structs.replace(
        task,
        seed=told_seed(task.seed),
        scorer="selection",
        parameters={"query": topic["query"], "cap": cap},
        expected={"needed": [names[name] for name in needed], "cap": cap},
        files={_POOL: (json.dumps(documents, indent=1) + "\n").encode()},
    )


def check_pool(expected: Mapping[str, Any]) -> None:
    """Raise ValueError where no selection can be drawn from what a task expects."""
    cap, documents, topics = (expected[name] for name in ("cap", "documents", "topics"))
    if type(cap) is not int or type(documents) is not int or not isinstance(topics, list):
        raise ValueError("cap and documents: whole numbers are expected; topics: a list")
    if not topics:
        raise ValueError("topics: at least one is expected")
    for topic in topics:
        if not isinstance(topic, dict) or topic.keys() != {"query", "needed", "rivals"}:
            raise ValueError("topics: query, needed and rivals are expected of each")
        needed, rivals = topic["needed"], topic["rivals"]
        if not 1 <= len(needed) <= cap or len(needed) + len(rivals) > documents:
            raise ValueError("topics: as many documents are needed as the cap lets in, at most")
