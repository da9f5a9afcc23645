"""Makers of reference tasks about models' answers: reading, form, and votes.

The same random numbers give the same task, byte for byte.
I/O: none.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.playbook import (
    DEFER,
    DIRECTIONS,
    FRESH,
    NO_ACTION,
    REMEDIES,
    RESTORING,
)
from aggregates.rulebook import PRECEDENCE
from aggregates.rules import FIRST_RULES
from aggregates.spec import ACTIVATIONS
from judge.reference.observations import to_plain
from judge.reference.oracle import expected_answers
from judge.reference.rules import REFERENCE_RULES
from judge.reference.situations import SIDES, observe
from studies.reference.making import Made, observe_several


def make_readings(rng: Random, difficulty: str) -> Made:
    """Messages as servers send them: sound ones, nearly sound ones, and what is none at all."""
    cases, expected = [], []

    def case(rung: str, content: Any, outcome: dict[str, Any], **more: Any) -> None:
        message = {"tool_calls": content} if rung == "tool" else {"content": content}
        cases.append({"rung": rung, "message": message, **more})
        expected.append(outcome)

    refused: dict[str, Any] = {"refused": True}
    if difficulty == "easy":
        _sound_messages(rng, case)
    elif difficulty == "medium":
        _decisions_said(rng, case)
    else:
        _odd_messages(rng, case, refused)
    return Made(
        kind="answers",
        scorer="readings",
        expected={"cases": expected},
        categories=("answers", "parsing"),
        description={
            "easy": "Answers of models in the form that was asked for, on every rung",
            "medium": "Answers with decisions that are right, doubled, strange or not due",
            "hard": "Nearly valid JSON, fences, thoughts, doubled keys, and texts out of bounds",
        }[difficulty],
        outcome="what is meant is read, and everything else is refused with a reason",
        files={"cases.json": cases},
    )


Case = Callable[..., None]


def _called(arguments: Any, name: str = "answer") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _said(seen: Observation) -> list[dict[str, Any]]:
    """Return a right answer to each due rule, in plain values."""
    said = []
    for expected in expected_answers(seen):
        rule = expected["rule"]
        direction, params = DEFER, {}
        if expected["acts"]:
            act = expected["acts"][0]
            direction = act["direction"]
            params = {name: _middle(bounds) for name, bounds in act["params"].items()}
        said.append(
            {
                "event_type": REMEDIES[direction].event_type,
                "cites": [rule],
                "direction": direction,
                "params": params,
                "justification": f"{rule} is out of its band.",
            }
        )
    return said


def _middle(bounds: Sequence[Any]) -> Any:
    if len(bounds) == 2 and all(isinstance(bound, float) for bound in bounds):
        return (bounds[0] + bounds[1]) / 2
    return bounds[0]


def _sound_messages(rng: Random, case: Case) -> None:
    for count in (1, 2, 3, 4):
        seen = observe_several(rng, count)
        said = _said(seen)
        text = json.dumps({"decisions": said})
        right = {"decisions": said, "open": []}
        plain = {"observation": to_plain(seen)}
        case("json_schema", text, right, **plain)
        case("json_object", f"\n {text}\t\r\n", right, **plain)
        case("tool", [_called(text)], right, **plain)
        case("prompt", f"Here is my answer:\n{text}\nI am done.", right, **plain)
        shuffled = [*said]
        rng.shuffle(shuffled)
        spelled = json.dumps({"decisions": shuffled}, indent=2)
        case("prompt", f"```json\n{spelled}\n```", right, **plain)
        nulls = [
            {
                **one,
                "params": {
                    **one["params"],
                    "block": None,
                    "clip_norm": one["params"].get("clip_norm"),
                },
            }
            for one in said
        ]
        case("json_schema", json.dumps({"decisions": nulls}), right, **plain)


def _decisions_said(rng: Random, case: Case) -> None:
    seen = observe_several(rng, 3)
    said = _said(seen)
    first, second, third = said
    due = list(seen.due)
    plain = {"observation": to_plain(seen)}
    strange = next(rule for rule in FIRST_RULES if rule not in due)
    refused: dict[str, Any] = {"refused": True}

    def value(found: Any, outcome: dict[str, Any]) -> None:
        case("json_schema", json.dumps(found), outcome, **plain)

    def some(*kept: dict[str, Any], **says: str) -> dict[str, Any]:
        answered = {rule for one in kept for rule in one["cites"]}
        left = [rule for rule in due if rule not in answered]
        # A rule's own problem is told there, and no other rule is blamed for it.
        spares = dict.fromkeys(left, "; and") | dict.fromkeys(says, "no decision")
        return {"decisions": list(kept), "open": left, "says": says, "spares": spares}

    def loosely(outcome: dict[str, Any]) -> dict[str, Any]:
        """Leave open how the rules are told of a decision that cites none of them."""
        return {**outcome, "spares": {}}

    def without(one: dict[str, Any], name: str) -> dict[str, Any]:
        return {key: item for key, item in one.items() if key != name}

    waits = {**first, "event_type": NO_ACTION, "direction": DEFER, "params": {}}
    value({"decisions": said}, some(*said))
    value({"decisions": [third, first]}, some(first, third))
    value({"decisions": [first, first, second]}, some(second, **{due[0]: "two decisions"}))
    value({"decisions": [first, waits, third]}, some(third, **{due[0]: "two decisions"}))
    value({"decisions": []}, loosely(some(**dict.fromkeys(due, "no decision"))))
    value(
        {"decisions": [{**first, "cites": [strange]}, second]},
        loosely(some(second, **{due[0]: strange})),
    )
    value({"decisions": [{**first, "cites": [due[0], strange]}]}, some(**{due[0]: strange}))
    value(
        {"decisions": [{**first, "direction": "jump"}, third]}, some(third, **{due[0]: "direction"})
    )
    value({"decisions": [{**second, "justification": " "}, third]}, some(third))
    value({"decisions": [{**second, "extra": 1}, third]}, some(third))
    value({"decisions": [without(second, "params"), third]}, some(third))
    value({"decisions": [{**third, "params": [1]}, second]}, some(second))
    value({"decisions": [{**third, "event_type": "joke"}, second]}, some(second))
    untyped = [without(one, "event_type") for one in said]
    value({"decisions": untyped}, some(*said))
    value({"decisions": [{**third, "cites": due[2]}, second]}, loosely(some(second)))
    value({"decisions": [{**third, "cites": [3, None]}, second]}, loosely(some(second)))
    value({"decisions": ["no decision", 7, None, second]}, loosely(some(second)))
    value(  # the first of what cites no due rule is told
        {"decisions": [{**first, "cites": [strange]}, 7, second]},
        loosely(some(second, **dict.fromkeys((due[0], due[2]), strange))),
    )
    value({"decisions": [{**waits, "cites": due}]}, some({**waits, "cites": due}))
    value(
        {"decisions": [{**waits, "cites": due[:2]}, second]}, some(**dict.fromkeys(due[:2], "two"))
    )
    value({"decisions": [{**waits, "params": {"deferred_to": None}}, third]}, some(waits, third))
    both = {**waits, "cites": [due[0], due[2]]}
    value({"decisions": [second, both]}, some(both, second))
    value({"decisions": [{"cites": [strange]}] * 16}, loosely(some()))
    for none in (
        {"decisions": [first] * 17},
        {"decisions": said, "note": "more"},
        {"answers": said},
        {"decisions": {"0": first}},
        said,
        None,
    ):
        value(none, refused)
    aside = replace(seen, due=tuple(due[1:]))  # the first one fired, and is decided on elsewhere
    text = json.dumps({"decisions": [first, second]})
    outcome = {"decisions": [second], "open": [due[2]], "says": {due[2]: "not due"}}
    case("json_schema", text, outcome, observation=to_plain(aside))
    _factors_said(rng, case)


def _factors_said(rng: Random, case: Case) -> None:
    """Answer with learning rates at the ends of what is open, and beyond."""
    far = observe(rng, {"R1": "high"})
    much = [
        {**one, "params": {"lr": far.settings.lr / factor}}
        for one in _said(far)
        for factor in (2.9, 3.0, 10.0, 10.2)
    ]
    for one, fits in zip(much, (False, True, True, False), strict=True):
        outcome = {"decisions": [one] if fits else [], "open": [] if fits else ["R1"]}
        text = json.dumps({"decisions": [one]})
        case("json_schema", text, outcome, observation=to_plain(far))


def _odd_messages(rng: Random, case: Case, refused: dict[str, Any]) -> None:
    # Requests that ask again quote these words, and replays of recorded runs compare them.
    syntax = {"refused": "it is no JSON: "}
    number = rng.randint(10, 99)
    plain, text = {"a": [number, None, True]}, json.dumps({"a": [number, None, True]})
    fine = {"value": plain}
    for broken in (
        text[:-1],
        text.replace("null", "None"),
        text.replace('"', "'"),
        text.replace("]", ",]"),
        f"{text} {text}",
        f"So: {text}",
        f"```json\nSo: {text}\n```",
    ):
        case("json_object", broken, syntax)
    parts = [{"type": "thinking", "thinking": [{"a": 1}]}, {"type": "text", "text": text}]
    for rung, sound in (
        ("json_object", f"```json\n{text}\n```"),
        ("json_object", f"So: ```\n{text}\n``` it is"),
        ("json_schema", f'<think>{{"a": 1}}?</think>\n{text}'),
        ("json_schema", parts),
        ("prompt", parts),
    ):
        case(rung, sound, fine)
    for broken, words in (
        (text.replace("null", "NaN"), "it is no JSON: NaN is no number"),
        (text.replace("null", "-Infinity"), "it is no JSON: -Infinity is no number"),
        (text.replace("null", "1e999"), "it is no JSON: 1e999 is beyond every float"),
        ('{"a": 1, "a": 2}', "it is no JSON: a key stands twice in one object"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "it is no JSON: a key stands twice in one object"),
        ("", "the message holds no text"),
        (" \n ", "the message holds no text"),
    ):
        case("json_object", broken, {"refused": words})
    for empty in (None, 7, [text], {"text": text}):
        case("json_schema", empty, refused)
        case("prompt", empty, refused)
    for calls in (
        None,
        [],
        text,
        ["call"],
        [{"function": "answer"}],
        [_called(text), _called(text)],
        [_called(text, "reply")],
        [_called(plain)],
        [_called("")],
        [_called(f"So: {text}")],
    ):
        case("tool", calls, refused)
    case("tool", [_called(f" {text}\n")], fine)
    for meant in (
        text,
        f"I think {{so}} and {{ so on: {text} }}",
        f'<think>First {{"a": 1}}, no.</think>\n{text}',
        f'<think>one</think> {{"b": 2}} <think>two</think> {text}',
        f"```\n{text}\n```",
        f'```json\r\n{text}\r\n``` and {{"b": 2}} besides',
        f"``` json\n{text}",
        f"```json \n{text}\n```",
        f"```json\n{text}\n```\nor\n```json\n```",
        f"{{'a': 1}} {text}",
        f"[{text}]",
        f'{{"a": 1, "a": 2}} {text}',
        f"{text}.",
    ):
        case("prompt", meant, fine)
    for none in (
        f"{text} {text}",
        f"{text}{text}",
        f"```\n{text}\n``` ```\n{text}\n```",
        "There is nothing.",
        "{ { {",
        f"{text} </think> nothing",
        '{"a": 1, "a": 2}',
        "[1, 2]",
    ):
        case("prompt", none, refused)
    nested = {"a": {"b": {"c": number}}}
    case("prompt", f"So {json.dumps(nested)} it is", {"value": nested})
    for name, count, kind in (
        ("deep", 31, "list"),
        ("deep", 32, None),
        ("deep_objects", 31, "dict"),
        ("deep_objects", 32, None),
        ("deep", 5_000, None),
        ("many", 50_000, "list"),
        ("padded", 262_144, "dict"),
        ("padded", 262_145, None),
        ("digits", 5_000, None),
    ):
        outcome = {"value": kind} if kind else refused
        case("json_object", None, outcome, made=[name, count])
    many = {"refused": "more than 50000 values are no answer to anything"}
    case("json_object", None, many, made=["many", 50_001])
    for name in ("surrogate", "key"):
        case("json_object", None, {"refused": "half of a surrogate pair"}, made=[name, 1])
        case("prompt", None, refused, made=[name, 1])
    for count, kind in ((62, "dict"), (63, None), (200, None)):
        case("prompt", None, {"value": kind} if kind else refused, made=["braces", count])


_RATES = REFERENCE_RULES["relative_4"]  # rules by which rates may be tried


def make_schema(rng: Random, _: str) -> Made:
    """The form that endpoints are given: it admits right answers, and none of another shape."""
    seen = [observe(rng, {rule: side}) for rule, side in SIDES] + [observe_several(rng, 3)]
    seen.append(observe(rng, {"R1": "low"}, rules=_RATES, back=(FRESH, 3), tries=4))
    return Made(
        kind="schema",
        scorer="schema",
        expected={"cases": [_forms(each) for each in seen]},
        categories=("answers", "parsing"),
        description="The JSON schema of an answer about the due rules",
        outcome="it is strict, admits every right answer and none of another shape",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


def _forms(seen: Observation) -> dict[str, Any]:
    """Return answers that a form must admit, and answers that it must not."""
    ways = {way for rule in seen.due for way in seen.directions(rule)}
    names = sorted({name for way in {*ways, DEFER} for name in REMEDIES[way].parameters})
    nothing = dict.fromkeys(names)
    base = {
        "cites": [seen.due[0]],
        "direction": DEFER,
        "params": nothing,
        "justification": "It waits.",
    }

    def one(**changes: Any) -> dict[str, Any]:
        return {"decisions": [{**base, **changes}]}

    samples: Mapping[str, tuple[Any, Any]] = {
        "lr": (0.5, "0.5"),
        "lr_min": (0.5, True),
        "lr_max": (1, []),
        "clip_norm": (1.0, "one"),
        "epoch": (-1, 0.5),
        "epochs": (3, 3.5),
        "rates": ([0.1, 1], [True]),
        "batch_size": (32, 32.5),
        "accumulation": (2, "2"),
        "factor": (2, 2.5),
        "block": (0, 0.5),
        "reinitialise": (True, 1),
        "to": ("gelu", "sigmoid"),
        "deferred_to": ("R7", "R8"),
    }
    valid = [one(), {"decisions": []}, {"decisions": [base, base]}]
    valid += [one(direction=way) for way in sorted(ways)]
    valid += [one(cites=[rule]) for rule in seen.due]
    valid += [one(params={**nothing, name: samples[name][0]}) for name in names]
    valid += [one(params={**nothing, "deferred_to": rule}) for rule in PRECEDENCE]
    if "to" in names:
        valid += [one(params={**nothing, "to": name}) for name in ACTIVATIONS]
    strange = sorted(set(REMEDIES) - ways - {DEFER, *RESTORING})
    invalid = [
        {},
        [],
        {"decisions": {}},
        {"decisions": [], "more": 1},
        {"decisions": [{}]},
        one(extra=1),
        one(justification=None),
        one(cites="R1"),
        one(event_type=NO_ACTION),
        one(params={}),
        one(params={**nothing, "other": None}),
        one(params=None),
        *(one(direction=way) for way in strange),
        *(one(cites=[rule]) for rule in FIRST_RULES if rule not in seen.due),
        *(one(params={**nothing, name: samples[name][1]}) for name in names),
        {"decisions": [{name: base[name] for name in base if name != "cites"}]},
    ]
    return {
        "valid": valid,
        "invalid": invalid,
        "directions": sorted({*ways, DEFER}),
        "params": names,
    }


_KINDS: Mapping[str, Mapping[str, Any]] = {
    "lr": {"type": "number"},
    "lr_min": {"type": "number"},
    "lr_max": {"type": "number"},
    "clip_norm": {"type": "number"},
    "reinitialise": {"type": "boolean"},
    "epochs": {"type": "integer"},
    "batch_size": {"type": "integer"},
    "accumulation": {"type": "integer"},
    "factor": {"type": "integer"},
    "block": {"type": "integer"},
    "to": {"type": "string", "enum": list(ACTIVATIONS)},
    "deferred_to": {"type": "string", "enum": list(PRECEDENCE)},
}


def make_exported(rng: Random, _: str) -> Made:
    """The form that a model is given that was trained on exports: one decision for each rule."""
    seen = [observe(rng, {rule: side}) for rule, side in SIDES]
    seen += [observe_several(rng, count) for count in (2, 3, 4)]
    return Made(
        kind="exported",
        scorer="exact",
        expected={"answer": [_exported_form(each) for each in seen]},
        categories=("answers", "parsing"),
        description="The JSON schema of an answer about the due rules, as exports have it",
        outcome="it has each due rule's own directions, with the values that the playbook fixes",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


def _exported_form(seen: Observation) -> dict[str, Any]:
    forms = [
        {
            "anyOf": [
                _exported_choice(seen, rule, way)
                for way in (*DIRECTIONS[rule][str(seen.evaluations[rule].side)], DEFER)
            ]
        }
        for rule in seen.due
    ]
    count = len(seen.due)
    return _closed(
        decisions={"type": "array", "prefixItems": forms, "minItems": count, "maxItems": count}
    )


def _exported_choice(seen: Observation, rule: str, way: str) -> dict[str, Any]:
    now, remedy = seen.settings, REMEDIES[way]
    fixed = {  # a tenth of the rate, half of a batch, or twice as much
        ("R7", "decrease_lr"): ("lr", now.lr / 10),
        ("R2", "decrease_batch_size"): ("batch_size", now.batch_size // 2),
        ("R2", "increase_batch_size"): ("batch_size", now.batch_size * 2),
        ("R2", "accumulate_gradients"): ("accumulation", now.accumulation * 2),
    }
    params = {name: dict(_KINDS[name]) for name in (*remedy.needs, *remedy.may_have)}
    if (rule, way) in fixed:
        name, value = fixed[rule, way]
        params[name]["enum"] = [value]
    cites = {"type": "array", "items": _one_text(rule), "minItems": 1, "maxItems": 1}
    return _closed(
        event_type=_one_text(remedy.event_type),
        cites=cites,
        direction=_one_text(way),
        params={**_closed(**params), "required": list(remedy.needs)},
        justification={"type": "string"},
    )


def _one_text(text: str) -> dict[str, Any]:
    return {"type": "string", "enum": [text]}


def _closed(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def make_votes(rng: Random, _: str) -> Made:
    """Ballots on stability rules: clear majorities, ties, and voters who said nothing usable."""
    cases, answers = [], []
    for number in range(10):
        rule = rng.choice(("R6", "R7"))
        seen = observe(rng, {rule: next(iter(DIRECTIONS[rule])), "R1": "high"})
        ways = [*DIRECTIONS[rule]["low" if rule == "R6" else "high"], DEFER]
        usable = 0.0 if number == 0 else 0.75
        ballots: list[dict[str, Any] | None] = []
        for voter in range(rng.choice((1, 3, 4, 5, 7))):
            way = rng.choice(ways)
            words = f"ballot {voter}"
            said = Decision.of((rule,), way, {}, words).to_dict()
            ballots.append(said if rng.random() < usable else None)
        cases.append({"observation": to_plain(seen), "rule": rule, "ballots": ballots})
        answers.append(_count(seen, rule, ballots))
    return Made(
        kind="votes",
        scorer="exact",
        expected={"answer": answers},
        categories=("ensemble",),
        description="A stability rule is put to several voters, who agree, differ or say nothing",
        outcome="the first ballot for what most are for wins, word for word",
        files={"cases.json": cases},
    )


def _count(
    seen: Observation, rule: str, ballots: Sequence[dict[str, Any] | None]
) -> dict[str, Any]:
    votes: dict[str, int] = {}
    for said in ballots:
        name = said["direction"] if said else "unusable"
        votes[name] = votes.get(name, 0) + 1
    usable = [name for name in votes if name != "unusable"]  # in the order of the first ballot
    best = max((votes[name] for name in usable), default=0)
    chosen = next((name for name in usable if votes[name] == best), None)
    winner = next(
        (place for place, said in enumerate(ballots) if said and said["direction"] == chosen), 0
    )
    return {
        "voted": ["R7", "R6"],
        "asked": [[[rule], f"voter {place + 1}", place] for place in range(len(ballots))],
        "counted": [
            {
                "epoch": seen.epoch,
                "rule": rule,
                "votes": votes,
                "chosen": chosen,
                "calls": list(range(1, len(ballots) + 1)),
            }
        ],
        "winner": winner + 1,
        "problem": None if chosen else "problem 1",
        "decision": ballots[winner],
    }
