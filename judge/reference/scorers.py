"""The scorer of decisions, and what scorers of answers about training have in common.

It asks the candidate and weighs what it says with our own copy of the rules. Tasks made from
verified runs are of this kind. Other scorers of Proctor's own tasks are in docs/studies/reference,
which only a clone has.

Trust: answers are the candidate's; what has no form that can be weighed raises CandidateError.
I/O: none.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aggregates.decisions import Decision, Observation, parse_decision, validate_decision
from aggregates.errors import DecisionError
from judge.gauntlet.errors import CandidateError
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import QUESTION, Ask, Score, Scorer
from judge.gauntlet.tasks.scoring import SCORERS as GENERAL
from judge.reference.observations import from_plain
from judge.reference.oracle import is_right

MOST_ANSWERS = 32  # to one observation


class Tally:
    """Right and wrong parts of an answer, and the first problem."""

    def __init__(self) -> None:
        self.all = self.wrong = 0
        self.problem: str | None = None

    def add(self, right: bool, problem: str | None = None) -> None:
        """Count one part; the problem is what is wrong where it is not right."""
        self.all += 1
        if not right:
            self.wrong += 1
            self.problem = self.problem or problem

    def score(self, failures: int = 0) -> Score:
        """Return the share of right parts as the agreement."""
        right = not self.wrong and not failures
        return Score(
            success=right,
            validation_failures=failures,
            metrics={"agreement": (self.all - self.wrong) / self.all},
            problem=None if right else self.problem,
        )


def decisions(task: Task, ask: Ask) -> Score:
    """Expect {"answers": [[{rule, acts}, ...], ...]} for the observations: each as it should be.

    Agreement is the share of due rules that are answered rightly. Who acts names the number that
    was measured.
    """
    shown = content(task, "observations.json")
    told = list_of(ask(QUESTION), len(shown))
    tally, failures = Tally(), 0
    for plain, expected, said in zip(shown, task.expected["answers"], told, strict=True):
        seen = from_plain(plain)
        answers, invalid = _answers_of(list_of_at_most(said, MOST_ANSWERS), seen)
        failures += invalid
        for each in expected:
            decision = answers.get(each["rule"])
            fits = decision is not None and is_right(decision, each)
            fits = fits and _tells_its_number(decision, seen)
            tally.add(fits, f"the answer to {each['rule']} in an epoch {seen.epoch} is not right")
    if failures:
        tally.problem = tally.problem or "an answer is no valid decision"
    return tally.score(failures)


SCORERS: Mapping[str, Scorer] = {**GENERAL, "decisions": decisions}


def valid_decision(plain: Any, seen: Observation) -> Decision:
    """Return a decision that fits what was observed; raise DecisionError."""
    decision = parse_decision(plain)
    if any(rule not in seen.due for rule in decision.cites):
        raise DecisionError("a rule is cited that is not due")
    validate_decision(decision, seen)
    return decision


def _tells_its_number(decision: Decision | None, seen: Observation) -> bool:
    """Return whether the reason for an act names the rule's average or value, to a hundredth."""
    if decision is None or not decision.acts:
        return True
    told = [number_in(word) for word in re.findall(r"\d[\d.e+-]*\d|\d", decision.justification)]
    found = seen.evaluations[decision.cites[0]]
    numbers = [
        each for each in (found.ema, found.value) if each is not None and math.isfinite(each)
    ]
    return not numbers or any(
        math.isclose(one, each, rel_tol=1e-2, abs_tol=1e-9) for one in told for each in numbers
    )


def _answers_of(said: Sequence[Any], seen: Observation) -> tuple[dict[str, Decision], int]:
    """Return the valid answer to each rule, and how many were invalid or one too many."""
    answers: dict[str, Decision] = {}
    failures = 0
    for plain in said:
        try:
            decision = valid_decision(plain, seen)
        except DecisionError:
            failures += 1
            continue
        failures += sum(rule in answers for rule in decision.cites)
        answers.update(dict.fromkeys(decision.cites, decision))
    return answers, failures


def number_in(text: str) -> float:
    """Return the number that a word is; NaN if it is none."""
    try:
        return int(text) if text.isdigit() and len(text) < 10 else float(text)
    except ValueError:
        return float("nan")


def list_of_at_most(value: Any, most: int) -> list[Any]:
    """Return a list that is no longer than that; raise CandidateError."""
    if not isinstance(value, list) or len(value) > most:
        raise CandidateError(f"the answer is no list of at most {most}")
    return value


def list_of(value: Any, count: int) -> list[Any]:
    """Return a list that is as long as that; raise CandidateError."""
    if not isinstance(value, list) or len(value) != count:
        raise CandidateError(f"the answer is no list of {count}")
    return value


def content(task: Task, name: str) -> Any:
    """Return the JSON in a file of the task's snapshot."""
    return json.loads(task.files[name])
