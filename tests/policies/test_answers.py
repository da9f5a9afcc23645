"""What a model wrote, read: each due rule has one valid decision or a problem with a name."""

import json
from typing import Any

import pytest
from chat_server import defer
from situations import observe

from aggregates.playbook import DIRECTIONS, REMEDIES
from aggregates.rulebook import RULES
from policies.answers import decision_schema, exported_schema, read_answer
from policies.errors import AnswerError

SEEN = observe({"R5": "high", "R1": "high"})
ACT: dict[str, Any] = {
    "event_type": "hyperparameter_change",
    "cites": ["R1"],
    "direction": "decrease_lr",
    "params": {"lr": 0.02},
    "justification": "R1 is high",
}


def read(*decisions: Any) -> tuple[list[str], dict[str, str]]:
    found, problems = read_answer({"decisions": list(decisions)}, SEEN)
    return [decision.direction for decision in found], problems


def test_valid_decisions_are_read_in_order_of_precedence() -> None:
    assert read(ACT, defer("R5")) == (["defer", "decrease_lr"], {})


def test_parameter_that_is_null_was_not_given() -> None:
    nulls = {"lr": 0.02, "clip_norm": None, "batch_size": None}
    (_, decision), _ = read_answer({"decisions": [{**ACT, "params": nulls}, defer("R5")]}, SEEN)
    assert dict(decision.params) == {"lr": 0.02}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"params": {"lr": 0.5}}, "factor"),
        ({"params": {"lr": -1}}, "lr must be a number from"),
        ({"params": {"lr": 10**400}}, "lr must be a number from"),
        ({"params": {"lr": "0.02"}}, "lr must be a number"),
        ({"params": {"lr": True}}, "lr must be a number"),
        ({"params": {"lr": 0.02, "momentum": 0.9}}, "decrease_lr needs"),
        ({"params": None}, "params must be a map"),
        ({"params": {"lr": None}}, "decrease_lr needs"),
        ({"direction": "increase_lr"}, "is none of"),
        ({"direction": ["decrease_lr"]}, "direction must be one of"),
        ({"direction": "explode"}, "direction must be one of"),
        ({"event_type": "architecture_change"}, "belongs to"),
        ({"justification": ""}, "justification"),
        ({"justification": "x" * 5_000}, "justification"),
        ({"cites": ["R1", "R1"]}, "more than once"),
        ({"cites": ["R1", "R9"]}, "cites must be a list, each one of R1"),
        ({"cites": ["R1", "R2"]}, "R2 are not due now"),
        ({"note": "more"}, "unknown key note"),
    ],
)
def test_decision_that_is_out_of_order_is_rejected(changes: Any, problem: str) -> None:
    directions, problems = read({**ACT, **changes}, defer("R5"))
    assert directions == ["defer"]
    assert list(problems) == ["R1"]
    assert problem in problems["R1"]


@pytest.mark.parametrize("item", [None, "R1", 7, [], {}, {"cites": "R1"}, {"cites": [["R1"]]}])
def test_item_that_is_no_decision_is_named_where_its_rule_is_missing(item: Any) -> None:
    directions, problems = read(item, defer("R5"))
    assert directions == ["defer"]
    assert "there is no decision on it; and " in problems["R1"]


def test_decision_on_a_rule_that_is_not_due_is_rejected_and_the_others_stand() -> None:
    assert read(ACT, defer("R5"), defer("R7")) == (["defer", "decrease_lr"], {})


def test_two_decisions_on_one_rule_cancel_each_other() -> None:
    directions, problems = read(ACT, defer("R1"), defer("R5"))
    assert directions == ["defer"]
    assert "two decisions" in problems["R1"]
    both = {**defer("R1"), "cites": ["R1", "R5"]}
    directions, problems = read(both, defer("R5"))
    assert (directions, list(problems)) == ([], ["R5", "R1"])


def test_one_decision_may_answer_two_rules() -> None:
    assert read({**defer("R1"), "cites": ["R1", "R5"]}) == (["defer"], {})


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [ACT],
        ACT,
        {},
        {"decisions": None},
        {"decisions": {}},
        {"decisions": [], "more": 1},
        {"decisions": [ACT] * 17},
    ],
)
def test_value_that_is_no_list_of_decisions_is_rejected(value: Any) -> None:
    with pytest.raises(AnswerError, match="decisions"):
        read_answer(value, SEEN)


def strict(schema: Any) -> list[dict[str, Any]]:
    """Return every object schema within a schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in strict(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for item in schema.values() for found in strict(item)]


@pytest.mark.parametrize("rule", RULES)
def test_schema_is_strict_and_has_a_place_for_all_that_the_rule_may_need(rule: str) -> None:
    for side, directions in DIRECTIONS[rule].items():
        schema = decision_schema(observe({rule: side}))
        json.dumps(schema, allow_nan=False)
        for part in strict(schema):
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        decision = schema["properties"]["decisions"]["items"]["properties"]
        assert decision["cites"]["items"]["enum"] == [rule]
        assert set(decision["direction"]["enum"]) == {"defer", *directions}
        for direction in directions:
            names = REMEDIES[direction].parameters
            assert set(names) <= set(decision["params"]["properties"])


def test_exported_schema_allows_each_due_rule_its_own_directions_in_order() -> None:
    schema = exported_schema(SEEN)["properties"]["decisions"]
    assert (schema["minItems"], schema["maxItems"]) == (2, 2)
    first, second = schema["prefixItems"]
    for rule, choices, directions in (
        ("R5", first, ["swap_activation", "defer"]),
        ("R1", second, ["decrease_lr", "warm_up_lr", "defer"]),
    ):
        found = [choice["properties"] for choice in choices["anyOf"]]
        assert [each["direction"]["enum"] for each in found] == [[way] for way in directions]
        assert all(each["cites"]["items"]["enum"] == [rule] for each in found)
    params = second["anyOf"][0]["properties"]["params"]
    assert list(params["properties"]) == ["lr", "clip_norm", "reinitialise"]
    assert params["required"] == ["lr"]


def test_exported_schema_fixes_a_value_that_the_playbook_fixes() -> None:
    schema = exported_schema(observe({"R7": "high"}))["properties"]["decisions"]
    acts, waits = schema["prefixItems"][0]["anyOf"]
    lr = acts["properties"]["params"]["properties"]["lr"]
    assert lr == {"type": "number", "enum": [SEEN.settings.lr / 10]}
    assert waits["properties"]["direction"]["enum"] == ["defer"]
