"""This repository's own scorers: what an answer about training is worth.

Each asks the candidate and weighs what it says with our own copy of the rules. Nothing is measured
in seconds: work is counted in epochs, rows and bytes.

Trust: answers are the candidate's; what has no form that can be weighed raises CandidateError.
I/O: none; `trained` trains a small model in this process.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from aggregates.decisions import Observation
from judge.gauntlet.errors import CandidateError
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import QUESTION, Ask, Drawing, Score, Scorer, same
from judge.reference.observations import to_plain
from judge.reference.scorers import (
    MOST_ANSWERS,
    Tally,
    content,
    list_of,
    list_of_at_most,
    number_in,
)
from judge.reference.scorers import SCORERS as GENERAL
from studies.reference.simulated_training import Scenario, play

__all__ = ["SCORERS"]

_MOST_TEXT = 100_000  # characters of a prompt
_MOST_OFFER = 1_000  # characters
_ROWS = "## The last epochs, the latest below\n\n"
_DECISIONS = "## The last decisions, the latest below\n\n"


def rescue(task: Task, ask: Ask) -> Score:
    """Expect {"scenario": {...}}: the candidate decides, and the training comes right.

    Steps are the epochs until every rule is silent and the accuracy is as it should be.
    """

    def decide(seen: Observation) -> list[Any]:
        return list_of_at_most(ask({"ask": "decide", "observation": to_plain(seen)}), MOST_ANSWERS)

    outcome = play(Scenario.from_dict(task.expected["scenario"]), decide)
    problem = outcome.problems[0] if outcome.problems else None
    if problem is None and not outcome.well:
        problem = "the training did not come right, or what was right was changed"
    return Score(
        success=outcome.well and not outcome.problems,
        validation_failures=len(outcome.problems),
        metrics={"steps": float(outcome.steps)},
        problem=problem,
    )


def trained(task: Task, ask: Ask) -> Score:
    """Expect {"config": {...}, "quiet": n}: the same on a real training.

    It has come right if in the last n epochs nothing fired that was not waived.
    """
    from studies.reference.trainings import Asking, train_with  # noqa: PLC0415 - torch is slow

    asking = Asking(ask)
    run = train_with(task.expected["config"], asking.decide)
    problems = asking.problems
    loud = [epoch for epoch in range(len(run.history)) if set(run.fired(epoch)) - set(run.waived)]
    steps = loud[-1] + 1 if loud else 0
    quiet = run.end_reason == "completed" and len(run.history) - steps >= task.expected["quiet"]
    problem = problems[0] if problems else None if quiet else f"rules fire until epoch {steps}"
    return Score(
        success=quiet and not problems,
        validation_failures=len(problems),
        metrics={"steps": float(steps)},
        problem=problem,
    )


def recovered(task: Task, ask: Ask) -> Score:
    """Expect {"starts": [...]}: half of what a fault costs a real training is won back."""
    from studies.reference import worth  # noqa: PLC0415 - torch is slow

    return worth.recovered(task, ask)


def evidence(task: Task, ask: Ask) -> Score:
    """Expect {"needed": [[...], ...]}, for each case: all of it is chosen, within the cap."""
    cases = content(task, "cases.json")
    found = needed = rows = size = over = 0
    told = list_of(ask(QUESTION), len(cases))
    for case, wanted, chosen in zip(cases, task.expected["needed"], told, strict=True):
        known = {int(number): each for number, each in case["sizes"].items()}
        shown = list_of_at_most(chosen, len(known))
        if any(type(number) is not int or number not in known for number in shown):
            raise CandidateError("something is chosen that was not there to choose from")
        if sorted(set(shown)) != shown:
            raise CandidateError("what is chosen is not in order, or stands there twice")
        taken = sum(known[number] for number in shown)
        over += taken > case["most"]
        found += len(set(wanted) & set(shown))
        needed, rows, size = needed + len(wanted), rows + len(shown), size + taken
    problem = "the cap is exceeded" if over else None
    if found < needed:
        problem = f"{needed - found} of {needed} needed pieces are missing"
    return Score(
        success=problem is None,
        validation_failures=over,
        metrics={
            "recall": found / needed,
            "precision": found / rows if rows else 0.0,
            "rows": float(rows),
            "bytes": float(size),
        },
        problem=problem,
    )


def prompt(task: Task, ask: Ask) -> Score:
    """Expect {"cases": [{epochs, words}]}: the prompts show these epochs and hold these words."""
    cases = task.expected["cases"]
    found = needed = size = 0
    for case, text in zip(cases, list_of(ask(QUESTION), len(cases)), strict=True):
        if not isinstance(text, str) or len(text) > _MOST_TEXT:
            raise CandidateError(f"a prompt is no text of at most {_MOST_TEXT} characters")
        shown = re.findall(r"^(\d{1,6}) \|", _part(text, _ROWS), re.MULTILINE)
        told = _part(text, _DECISIONS)
        found += len(set(case["epochs"]) & set(map(int, shown)))
        found += sum(words in told for words in case["words"])
        needed += len(case["epochs"]) + len(case["words"])
        size += len(text.encode())
    return Score(
        success=found == needed,
        validation_failures=0,
        metrics={"recall": found / needed, "bytes": float(size)},
        problem=None if found == needed else f"{needed - found} of {needed} are not shown",
    )


def readings(task: Task, ask: Ask) -> Score:
    """Expect {"cases": [...]}: messages are read as they were meant, and refused otherwise."""
    cases = task.expected["cases"]
    tally = Tally()
    for number, (case, said) in enumerate(
        zip(cases, list_of(ask(QUESTION), len(cases)), strict=True)
    ):
        fits = isinstance(said, dict) and _read_rightly(said, case)
        tally.add(fits, f"message {number} is not read as it should be")
    return tally.score()


def schema(task: Task, ask: Ask) -> Score:
    """Expect {"cases": [{valid, invalid, directions, params}]} of each form.

    It admits the ones and none of the others, and its names stand in order: a form of a set's
    making would be another one in each process.
    """
    cases = task.expected["cases"]
    tally = Tally()
    for case, form in zip(cases, list_of(ask(QUESTION), len(cases)), strict=True):
        tally.add(_names_of(form) == (case["directions"], case["params"]))
        for fitting, values in ((True, case["valid"]), (False, case["invalid"])):
            for value in values:
                tally.add(_fits(value, form) == fitting)
    tally.problem = f"{tally.wrong} of {tally.all} answers are taken wrongly"
    return tally.score()


def offers(task: Task, ask: Ask) -> Score:
    """Expect {"offers": [{rule: {direction: null or {words, exact, between}}}]} of the answer.

    `exact` values are those that stand there; `between` are bounds that what is offered lies in,
    and comes close to; `states` are all that can be gone back to; one rate that is tried has to
    reach one of the ends in `one`.
    """
    cases = task.expected["offers"]
    tally = Tally()
    for case, said in zip(cases, list_of(ask(QUESTION), len(cases)), strict=True):
        for rule, expected in case.items():
            told = said.get(rule) if isinstance(said, dict) else None
            fits = isinstance(told, dict) and _offered_rightly(told, expected)
            tally.add(fits, f"what is offered for {rule} is not what is open")
    return tally.score()


def refused(task: Task, ask: Ask) -> Score:
    """Expect {"held": [bool, ...]}: both verifiers hold the honest ledgers and no other."""
    expected = task.expected["held"]
    verdicts = list_of(ask(QUESTION), len(expected))
    tally, let_through = Tally(), 0
    for holds, both in zip(expected, verdicts, strict=True):
        for verdict in list_of(both, 2):
            fits = (verdict is None) == holds
            tally.add(fits)
            let_through += not fits and not holds
    tally.problem = f"{tally.wrong} of {tally.all} verdicts are wrong"
    return tally.score(let_through)


def _draw(task: Task) -> Task:
    """Expect {"kind", "difficulty"}: a task of this kind is made from the seed."""
    from studies.reference.seeds import draw  # noqa: PLC0415 - the makers take time to import

    return draw(task)


SCORERS: Mapping[str, Scorer] = {
    **GENERAL,
    "drawn": Drawing(_draw),
    "evidence": evidence,
    "offers": offers,
    "prompt": prompt,
    "readings": readings,
    "recovered": recovered,
    "refused": refused,
    "rescue": rescue,
    "schema": schema,
    "trained": trained,
}


def _read_rightly(said: Mapping[str, Any], case: Mapping[str, Any]) -> bool:
    """Return whether a message was read as it should be.

    Reasons may be worded in any way, but for the words that `refused` or `says` ask for.
    """
    if "refused" in case:
        words = case["refused"]
        fits = set(said) == {"refused"} and _is_reason(said["refused"])
        return fits and (words is True or words in said["refused"])
    if "value" in case:
        return set(said) == {"value"} and same(said["value"], case["value"])
    if set(said) != {"decisions", "open"} or not isinstance(said["open"], dict):
        return False
    reasons = said["open"].values()
    return (
        same(said["decisions"], case["decisions"])
        and sorted(said["open"]) == sorted(case["open"])
        and all(map(_is_reason, reasons))
        and all(word in said["open"][rule] for rule, word in case.get("says", {}).items())
        and not any(word in said["open"][rule] for rule, word in case.get("spares", {}).items())
    )


def _is_reason(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= 1_000


def _offered_rightly(told: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    if list(told) != list(expected):
        return False
    for direction, wanted in expected.items():
        text = told[direction]
        if wanted is None or text is None:
            if text is not None or wanted is not None:
                return False
            continue
        if not isinstance(text, str) or len(text) > _MOST_OFFER or not _text_offers(text, wanted):
            return False
    return True


def _text_offers(text: str, wanted: Mapping[str, Any]) -> bool:
    exact = {
        name: number_in(value) for name, value in re.findall(r"(\w+) exactly (\S+?)(?:;|$)", text)
    }
    between = {
        name: (number_in(low), number_in(high))
        for name, low, high in re.findall(
            r"(\w+)(?: a whole number)? from (\S+) to (\S+?)(?:;|$)", text
        )
    }
    if not same(exact, wanted["exact"]) or set(between) != set(wanted["between"]):
        return False
    for name, (low, high) in wanted["between"].items():
        least, most = between[name]
        if type(most) is not type(high):
            return False
        if not low <= least <= low * 1.001 or not high * 0.999 <= most <= high:
            return False
    states = re.findall(r"epoch one of ([^;]*)", text)
    if "states" in wanted and [re.findall(r"-?\d+", each) for each in states] != [
        [str(state) for state in wanted["states"]]
    ]:
        return False
    if "one" in wanted and not _ends_at(text.partition("one of them ")[2], wanted["one"]):
        return False
    words = set(re.findall(r"\w+", text))
    if not wanted["exact"] and not wanted["between"] and not wanted["words"]:
        return not words
    return words >= set(wanted["words"]) and not words & set(wanted["without"])


def _ends_at(text: str, ends: Mapping[str, float]) -> bool:
    told = {end: number_in(value) for end, value in re.findall(r"at (\w+) ([\d.e+-]+)", text)}
    return told.keys() == ends.keys() and all(
        math.isclose(told[end], value, rel_tol=1e-3) for end, value in ends.items()
    )


def _names_of(form: Any) -> tuple[Any, Any]:
    """Return the directions and the parameters that a form names, in its order."""
    try:
        inner = form["properties"]["decisions"]["items"]["properties"]
        return inner["direction"]["enum"], list(inner["params"]["properties"])
    except (KeyError, TypeError) as error:
        raise CandidateError("the form names no directions and parameters") from error


def _fits(value: Any, form: Any, depth: int = 12) -> bool:
    """Return whether a value is of a form: as much of JSON Schema as strict forms are made of."""
    if not isinstance(form, dict) or not depth:
        raise CandidateError("the form is none that endpoints take")
    kinds = form.get("type")
    names = kinds if isinstance(kinds, list) else [kinds]
    if not any(_is_of(value, name) for name in names):
        return False
    if "items" in form and "array" not in names:
        raise CandidateError("the form is not strict")
    choices = form.get("enum")
    if choices is not None and (not isinstance(choices, list) or not _in(value, choices)):
        return False
    if isinstance(value, dict):
        inner, required = form.get("properties"), form.get("required")
        strict = form.get("additionalProperties") is False and isinstance(inner, dict)
        if not strict or required != list(inner or ()):
            raise CandidateError("the form is not strict")
        return set(value) == set(inner or ()) and all(
            _fits(value[name], each, depth - 1) for name, each in (inner or {}).items()
        )
    if isinstance(value, list):
        return all(_fits(item, form.get("items"), depth - 1) for item in value)
    return True


def _in(value: Any, choices: list[Any]) -> bool:
    return any(type(value) is type(one) and value == one for one in choices)


def _is_of(value: Any, name: Any) -> bool:
    if isinstance(value, bool):
        return bool(name == "boolean")
    kinds: Mapping[Any, Any] = {
        "array": list,
        "integer": int,
        "null": type(None),
        "number": (int, float),
        "object": dict,
        "string": str,
    }
    return isinstance(name, str) and isinstance(value, kinds.get(name, ()))


def _part(text: str, title: str) -> str:
    """Return what stands under a title, up to the next one."""
    return text.partition(title)[2].partition("\n\n## ")[0]
