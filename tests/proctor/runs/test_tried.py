"""What a decision tried is told in words."""

import json
import math
from typing import Any

import pytest

from proctor.runs.tried import told_trials


def row(**changes: Any) -> dict[str, Any]:
    return {
        "number": 2,
        "epoch": 3,
        "event_type": "hyperparameter_change",
        "direction": "try_rates",
        "cites": ["R1"],
        "params": json.dumps({"epoch": 1, "rates": [0.1, 0.01]}),
        "justification": "because",
        "outcome": "applied",
        **changes,
    }


TRIED = "tried learning rates, an epoch each from the state after epoch 1, by validation loss: "


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        (
            {4: 2.0, 5: 1.5},
            "0.1 (epoch 4, 2), 0.01 (epoch 5, 1.5); 0.01 was chosen and went on from epoch 5",
        ),
        (
            {4: math.nan, 5: math.inf},
            "0.1 (epoch 4, nan), 0.01 (epoch 5, inf); no loss is finite, so 0.01 went on from "
            "where all began",
        ),
        (
            {4: "NaN", 5: 1.5},  # as reports have it
            "0.1 (epoch 4, nan), 0.01 (epoch 5, 1.5); 0.01 was chosen and went on from epoch 5",
        ),
        (
            {4: 2.0},
            "0.1 (epoch 4, 2), 0.01 (epoch 5, not measured); the run ended before one was chosen, "
            "or goes on",
        ),
    ],
)
def test_trials_and_the_choice_are_told(losses: dict[int, float | str | None], told: str) -> None:
    assert told_trials(row(), losses) == TRIED + told


@pytest.mark.parametrize(
    "changes",
    [
        {"direction": "go_back", "params": json.dumps({"epoch": 1, "lr": 0.1})},
        {"outcome": "refused"},
        {"params": None},
        {"params": "{"},
        {"params": "[1]"},
        {"params": json.dumps({"epoch": 1, "rates": [10**400, 0.1]})},
        {"params": json.dumps({"epoch": 1, "rates": ["much", 0.1]})},
        {"cites": []},
    ],
)
def test_what_tried_nothing_or_is_odd_is_not_told(changes: dict[str, Any]) -> None:
    assert not told_trials(row(**changes), {4: 2.0, 5: 1.5})
