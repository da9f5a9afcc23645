"""The process that trains for an environment, here within the test: what it says and records."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from chat_server import completion
from frontdoor import answer, call_here
from tiny_training import STUCK, tiny_config

from ledger.verification.verified_notes import parse_tree_head
from proctor.environment.choices import CHOICES
from proctor.environment.numbers import BOUNDS, arrays
from proctor.environment.worker import Worker

NUMBERS = {choice.name: number for number, choice in enumerate(CHOICES)}


def episode(record: Path | None, **more: Any) -> dict[str, Any]:
    config = tiny_config(**{**STUCK, "epochs": 5}).to_dict()
    told = {"environment": "proctor/Training-v0", "actions": "choices"}
    record_to = None if record is None else str(record)
    return {"config": config, "record": record_to, "policy": told, "words": False} | more


def answered(text: str) -> dict[str, Any]:
    return {"body": json.dumps(completion(text))}


def talk(*said: dict[str, Any]) -> list[dict[str, Any]]:
    """Say all this to a worker, and return what it says."""
    heard = BytesIO()
    commands = BytesIO(b"".join(json.dumps(each).encode() + b"\n" for each in said))
    Worker(commands, heard).serve()
    return [json.loads(line) for line in heard.getvalue().splitlines()]


def test_worker_trains_an_episode_step_by_step_and_records_it(tmp_path: Path) -> None:
    raised, waited = {"choice": NUMBERS["increase_lr most"]}, {"choice": NUMBERS["defer"]}
    wrong = {"choice": NUMBERS["stop"]}
    actions = (wrong, waited, raised)
    refused = episode(None, process=False)
    refused["config"]["batch_size"] = 200
    first, second, third, end, error, _ = talk(
        episode(tmp_path, process=True),
        *actions,
        refused,
        episode(tmp_path, process=False),  # the agent leaves this one
    )
    assert [(each["epoch"], each["due"]) for each in (first, second, third)] == [
        (epoch, {"R1": "low"}) for epoch in (2, 3, 4)
    ]
    assert [name for name, number in NUMBERS.items() if first["mask"][number]] == [
        "defer",
        *("increase_lr least", "increase_lr most", "cycle_lr least epochs=2"),
        "cycle_lr most epochs=2",
    ]
    assert [(each["answered"], each["outcomes"]) for each in (first, second, third, end)] == [
        (False, []),
        (False, ["deferred"]),
        (True, ["deferred"]),
        (True, ["applied"]),
    ]
    assert end["end"] == "completed"
    assert end["process_score"] == 0.0  # the driver deferred: the one obligation is violated
    assert "batch_size 200" in error["error"]
    for said in (first, second, third, end):
        assert {name: array.shape for name, array in arrays(said["numbers"]).items()} == {
            name: np.shape(low) for name, (low, _) in BOUNDS.items()
        }

    runs = "SELECT policy_name, end_reason FROM runs ORDER BY ALL"
    found = answer(call_here(["sql", runs, "--format", "json"], home=tmp_path))
    assert found == [
        {"policy_name": "agent", "end_reason": "completed"},
        {"policy_name": "agent", "end_reason": "interrupted"},
    ]
    *_, unrecorded = talk(episode(None, process=False), *actions)
    assert unrecorded["digest"] == end["digest"]


def test_worker_asks_the_other_side_as_a_model_is_asked(tmp_path: Path) -> None:
    late = {"outcome": "timeout", "problem": "no answer within 1 seconds"}
    asking = {"model": "scripted", "rung": "prompt", "temperature": None, "max_tokens": 300}
    told = episode(tmp_path, process=True, model=asking, endpoint="frame")
    raised = {
        "event_type": "hyperparameter_change",
        "cites": ["R1"],
        "direction": "increase_lr",
        "params": {"lr": 1e-6},
        "justification": "R1 is low.",
    }
    act = answered(json.dumps({"decisions": [raised]}))
    asked = talk(told, answered("Well {"), answered("No."), late, act)
    end = asked.pop()
    assert {each["run"] for each in asked} == {end["run"]}
    assert set(asked[0]["request"]) == {"model", "messages", "max_tokens"}
    assert [
        "# Your last answer" in each["request"]["messages"][-1]["content"] for each in asked
    ] == [*(False, True, False, False)]
    assert (end["requests"], end["usable"], end["obligations"]) == (4, 1, 1)
    assert end["process_score"] == 0.0  # acted on when the run was over
    sql = "SELECT outcome, model, endpoint FROM calls ORDER BY idx"
    found = answer(call_here(["sql", sql, "--format", "json"], home=tmp_path))
    assert [list(each.values()) for each in found] == [
        [outcome, "scripted", "frame"] for outcome in ("unusable", "unusable", "timeout", "usable")
    ]
    assert parse_tree_head(end["tree_head"]).size > 0
