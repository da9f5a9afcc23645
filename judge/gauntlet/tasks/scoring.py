"""Scores an answer to a reference task: success, refused answers, and counted work.

Work is counted in rows, bytes and steps, never in seconds. Every measure of thrift has a partner
that guards it: fewer rows are no gain where they cost recall.

Some tasks are drawn anew from each seed: the same kind of problem, never the same one twice. Such a
task is declared stochastic, and its scorer names a Drawing. Each pair of answers has a seed of its
own, which is drawn when the pair is asked, and recorded: whoever has the record can draw the same
problem. The candidate is told another seed, from which this one does not follow.

Trust: a scorer is ours and runs in our process; what it asks, and only that, is the candidate's.
I/O: none.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from judge.declared import read_declared
from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.hidden_tests import BY_MODEL, TESTED, ByTests, Expected

if TYPE_CHECKING:
    from judge.gauntlet.tasks.reference_set import Task

Ask = Callable[[object], Any]
"""One question to the candidate; returns its answer, or raises CandidateError."""
Scorer = Callable[["Task", Ask], "Score"]
QUESTION: Mapping[str, str] = {"ask": "answer"}
"""What the scorers of this module ask; the reply is the answer itself."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Which way is better, and which measure must not get worse with it."""

    better: Literal["higher", "lower"]
    guard: str | None = None  # a metric, or "success"


METRICS: Mapping[str, Metric] = {
    "agreement": Metric(better="higher"),
    "bytes": Metric(better="lower", guard="recall"),
    "precision": Metric(better="higher", guard="recall"),
    "recall": Metric(better="higher"),
    "rows": Metric(better="lower", guard="recall"),
    "steps": Metric(better="lower", guard="success"),
}
USE = ("budget", "prompt_tokens", "tokens")
"""What a model was asked and answered: recorded beside the metrics, and never compared."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A scorer's verdict; `problem` is in words of ours, with nothing of the answer in it."""

    success: bool
    validation_failures: int
    metrics: Mapping[str, float]
    problem: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.metrics.items():
            if name not in (*METRICS, *USE) or not math.isfinite(value):
                raise GauntletError(
                    f"the scorer returned {name} = {value}, which is not a known metric"
                )
            if name in USE:
                continue
            guard = METRICS[name].guard
            if guard not in {None, "success", *self.metrics}:
                raise GauntletError(
                    f"the scorer returned {name} without {guard}, which must accompany it"
                )


def exact(task: "Task", ask: Ask) -> Score:
    """Expect {"answer": any}: the reply is exactly that."""
    return _judged(same(ask(QUESTION), task.expected["answer"]))


def acceptable(task: "Task", ask: Ask) -> Score:
    """Expect {"answers": [any, ...]}: the reply is one of them."""
    answer = ask(QUESTION)
    return _judged(any(same(answer, one) for one in task.expected["answers"]))


def selection(task: "Task", ask: Ask) -> Score:
    """Expect {"needed": [row, ...], "cap": most}: the reply names all needed rows within the cap.

    Recall is over the needed rows, precision over the chosen ones; of a choice beyond the cap the
    first `cap` rows count, and it is a failure.
    """
    cap, needed = task.expected["cap"], frozenset(task.expected["needed"])
    rows = ask(QUESTION)
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise CandidateError("the answer is not a list of row names")
    if len(set(rows)) != len(rows):
        raise CandidateError("the answer names a row twice")
    chosen = frozenset(rows[:cap])
    found = len(chosen & needed)
    recall = found / len(needed)
    over = len(rows) > cap
    missed = None if recall == 1 else f"{len(needed) - found} of {len(needed)} needed rows missing"
    return Score(
        success=recall == 1 and not over,
        validation_failures=int(over),
        metrics={
            "recall": recall,
            "precision": found / len(chosen) if chosen else 0.0,
            "rows": float(len(rows)),
        },
        problem=f"{len(rows)} rows are chosen; the maximum is {cap}" if over else missed,
    )


_POOL = "documents.json"


@dataclass(frozen=True)
class Drawing:
    """Stands among the scorers for tasks that are drawn: with another scorer, by their seed."""

    draw: Callable[["Task"], "Task"]

    def __call__(self, task: "Task", ask: Ask) -> "Score":  # noqa: ARG002 - as all scorers
        """Raise GauntletError: a task is drawn before it is asked."""
        raise GauntletError(f"task {task.task_id} was asked without being drawn")


def drawn(task: "Task", scorers: Mapping[str, Scorer]) -> "Task":
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


SCORERS: Mapping[str, Scorer] = {
    "acceptable": acceptable,
    "drawn_selection": Drawing(draw_selection),
    "exact": exact,
    "selection": selection,
    TESTED: ByTests(),
    BY_MODEL: ByTests(by_model=True),
}
"""What the tasks of every repository can name."""


def check_expected(scorer: str, expected: Mapping[str, Any]) -> None:
    """Raise ValueError where one of these scorers cannot work with what a task expects."""
    keys = {
        "acceptable": {"answers"},
        "drawn_selection": {"cap", "documents", "topics"},
        "exact": {"answer"},
        "selection": {"cap", "needed"},
    }
    if scorer in (TESTED, BY_MODEL):
        read_declared(dict(expected), Expected)
    if scorer not in keys:  # another module's, which knows its own
        return
    if expected.keys() != keys[scorer]:
        raise ValueError(f"{' and '.join(sorted(keys[scorer]))} and nothing else is expected")
    if scorer == "drawn_selection":
        check_pool(expected)
    if scorer == "acceptable" and not isinstance(expected["answers"], list):
        raise ValueError("answers: a list is expected")
    if scorer == "selection":
        cap, needed = expected["cap"], expected["needed"]
        if not isinstance(needed, list) or not all(isinstance(row, str) for row in needed):
            raise ValueError("needed: a list of rows' names is expected")
        if type(cap) is not int or not 1 <= len(set(needed)) == len(needed) <= cap:
            raise ValueError("cap: a whole number is expected, of at least the needed rows")


def _judged(right: bool) -> Score:
    problem = None if right else "the answer is not the expected one"
    return Score(success=right, validation_failures=0, metrics={}, problem=problem)


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are one JSON text: 1, 1.0 and true are three."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
