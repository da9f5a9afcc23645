"""Scores an answer to a reference task: success, refused answers, and counted work.

Work is counted in rows, bytes and steps, never in seconds. Every measure of thrift has a partner
that guards it: fewer rows are no gain where they cost recall.

Trust: a scorer is ours and runs in our process; what it asks, and only that, is the candidate's.
I/O: none.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.drawing import Drawing, check_pool, draw_selection
from judge.gauntlet.tasks.hidden_tests import BY_MODEL, TESTED, ByTests, check_hidden

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
        check_hidden(expected)
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
