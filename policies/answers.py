"""From a model's answer to decisions: the form that is asked for, and the reading of what came.

What is read is checked twice, for its form and against what was observed; nothing is mended. A
parameter that is null was not given: the strict form has a place for every name.

Trust: the value is whatever a model wrote.  I/O: none.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aggregates.decisions import Decision, Observation, parse_decision, validate_decision
from aggregates.declared import json_type
from aggregates.errors import DecisionError
from aggregates.playbook import DEFER, DIRECTIONS, NO_ACTION, PARAMETER_TYPES, REMEDIES
from aggregates.situation import allowed_values
from policies.errors import AnswerError
from policies.forms import list_of, strict_object

MAX_DECISIONS = 16
MAX_PROBLEM = 300  # characters for each rule


def decision_schema(observation: Observation) -> dict[str, Any]:
    """Return the JSON schema of an answer about the due rules.

    Strict in the sense of the endpoints: every property is required, none may be added, and what
    does not apply is null. Directions and parameters are those that the due rules can need. Bounds
    are left out: few servers know them, and every answer is checked here anyway. The reason comes
    first, since servers make the fields in this order: a model thinks before it chooses.
    """
    due = list(observation.due)
    directions = {DEFER}
    for rule in due:
        directions.update(observation.directions(rule))
    names = {name for way in directions for name in REMEDIES[way].parameters}
    decision = strict_object(
        {
            "justification": {"type": "string"},
            "cites": list_of({"type": "string", "enum": due}),
            "direction": {"type": "string", "enum": sorted(directions)},
            "params": strict_object({name: _parameter(name) for name in sorted(names)}),
        }
    )
    return strict_object({"decisions": list_of(decision)})


def exported_schema(observation: Observation) -> dict[str, Any]:
    """Return the JSON schema of an answer about the due rules as exports have it.

    Not strict in the sense of the endpoints: it has one decision for each due rule, in order, with
    one of the directions that fit and that direction's parameters, in the order of the playbook. A
    value that the playbook fixes is fixed here, too. A server that makes a grammar of it leaves a
    model little to say wrongly but other numbers.
    """
    decisions = [
        {
            "anyOf": [
                _decision_as_exported(rule, direction, observation)
                for direction in (
                    *DIRECTIONS[rule].get(observation.evaluations[rule].side or "", ()),
                    DEFER,
                )
            ]
        }
        for rule in observation.due
    ]
    number = len(decisions)
    tuple_of = {"type": "array", "prefixItems": decisions, "minItems": number, "maxItems": number}
    return strict_object({"decisions": tuple_of})


def _decision_as_exported(rule: str, direction: str, seen: Observation) -> dict[str, Any]:
    remedy = REMEDIES[direction]
    params = strict_object({name: _type(name) for name in remedy.parameters})
    side = seen.evaluations[rule].side
    allowed = allowed_values(rule, side, direction, seen.settings.to_dict())
    if allowed and allowed[1] == allowed[2]:
        params["properties"][allowed[0]]["enum"] = [allowed[1]]
    cites = {**list_of({"type": "string", "enum": [rule]}), "minItems": 1, "maxItems": 1}
    return strict_object(
        {
            "event_type": {"type": "string", "enum": [remedy.event_type]},
            "cites": cites,
            "direction": {"type": "string", "enum": [direction]},
            "params": {**params, "required": list(remedy.needs)},
            "justification": {"type": "string"},
        }
    )


def read_answer(
    value: object, observation: Observation, *, early: bool = False
) -> tuple[list[Decision], dict[str, str]]:
    """Return the valid decisions in order of precedence, and what is missing or wrong by due rule.

    A rule that two decisions cite has none: which of them was meant cannot be known. The event type
    follows from the direction; an `early` answer had to name it, and any may. Raises AnswerError if
    the value is no list of decisions at all.
    """
    if not isinstance(value, Mapping) or set(value) != {"decisions"}:
        raise AnswerError('the answer must be an object with "decisions" and nothing else')
    said = value["decisions"]
    if not isinstance(said, list) or len(said) > MAX_DECISIONS:
        raise AnswerError(f"decisions must be a list of at most {MAX_DECISIONS}")
    due, problems, decisions = observation.due, dict[str, str](), list[Decision]()
    loose: list[str] = []  # what is wrong with a decision that cites no due rule
    for item in said:
        try:
            decision = parse_decision(_without_nulls(item if early else _typed(item)))
            _verify_due(decision, due)
            validate_decision(decision, observation)
        except DecisionError as error:
            problem = str(error)[:MAX_PROBLEM]
            cited = [rule for rule in _cited(item) if rule in due]
            problems.update(dict.fromkeys(cited, problem))
            loose += [problem] if not cited else []
            continue
        decisions.append(decision)
    times = Counter(rule for decision in decisions for rule in decision.cites)
    clear = [decision for decision in decisions if all(times[rule] == 1 for rule in decision.cites)]
    answered = {rule for decision in clear for rule in decision.cites}
    for rule in due:
        if times[rule] and rule not in answered:
            problems[rule] = "there are two decisions on it, or on a rule that its decision cites"
    missing = "there is no decision on it" + (f"; and {loose[0]}" if loose else "")
    problems = {rule: problems.get(rule, missing) for rule in due if rule not in answered}
    return sorted(clear, key=lambda one: min(map(due.index, one.cites))), problems


def _verify_due(decision: Decision, due: tuple[str, ...]) -> None:
    if strange := [rule for rule in decision.cites if rule not in due]:
        raise DecisionError(f"{', '.join(strange)} are not due now: cite due rules only")


def _cited(item: object) -> list[str]:
    cites = item.get("cites") if isinstance(item, Mapping) else None
    return [rule for rule in cites if isinstance(rule, str)] if isinstance(cites, list) else []


def _typed(item: Any) -> Any:
    if not isinstance(item, Mapping) or "event_type" in item:
        return item
    direction = item.get("direction")
    remedy = REMEDIES.get(direction) if isinstance(direction, str) else None
    return {**item, "event_type": remedy.event_type if remedy else NO_ACTION}


def _without_nulls(item: Any) -> Any:
    if not isinstance(item, Mapping) or not isinstance(item.get("params"), Mapping):
        return item
    given = {name: value for name, value in item["params"].items() if value is not None}
    return {**item, "params": given}


def _parameter(name: str) -> dict[str, Any]:
    kind, choices = json_type(PARAMETER_TYPES[name])
    enum = {"enum": [*choices, None]} if choices else {}
    items = {"items": {"type": "number"}} if kind == "array" else {}  # learning rates
    return {"type": [kind, "null"], **enum, **items}


def _type(name: str) -> dict[str, Any]:
    kind, choices = json_type(PARAMETER_TYPES[name])
    return {"type": kind, "enum": [*choices]} if choices else {"type": kind}
