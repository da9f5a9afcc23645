"""What rounding may change of a validation accuracy: nothing that a cheat can widen for free."""

import math

import pytest
import torch

from judge.auditing.own_model import compare_validation, deviation, undecided_share
from judge.errors import StepError
from monitor.config import RunConfig
from monitor.datasets import Splits, load_splits
from monitor.model import ResidualCNN
from monitor.session import validate_model

SMALL = RunConfig(train_examples=32, val_examples=64, channels=4, width=4, stem_stride=4)


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits(SMALL)


@pytest.fixture
def model() -> ResidualCNN:
    return ResidualCNN(SMALL.spec(10)).eval()


@pytest.mark.parametrize(
    ("recorded", "found", "apart"),
    [
        (math.inf, 1.0, math.inf),
        (1.0, math.inf, math.inf),
        (math.inf, -math.inf, math.inf),
        (math.nan, 1.0, math.inf),
        (1, 1.0, math.inf),  # what was recorded is a float, or it was not measured
        (math.inf, math.inf, 0.0),
        (math.nan, math.nan, 0.0),
        (1.0, 1.1, pytest.approx(0.1 / 1.1)),
    ],
)
def test_value_that_is_not_finite_deviates_from_all_but_its_like(
    recorded: float, found: float, apart: float
) -> None:
    assert deviation(recorded, found, 1e-6) == apart


def test_what_is_added_to_all_logits_excuses_no_accuracy(
    model: ResidualCNN, splits: Splits
) -> None:
    before = undecided_share(model, splits.validation, within=0.01)
    with torch.no_grad():
        model.head.bias.add_(1e3)
    assert undecided_share(model, splits.validation, within=0.01) == pytest.approx(before, abs=0.05)
    forged = {**validate_model(model, splits.validation), "accuracy": 1.0}
    with pytest.raises(StepError, match="validation accuracy"):
        compare_validation(model, splits, {"validation": forged}, tolerance=0.01)


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_logits_that_are_level_or_not_finite_are_undecided(
    model: ResidualCNN, splits: Splits, value: float
) -> None:
    with torch.no_grad():
        model.head.weight.fill_(0.0)
        model.head.bias.fill_(value)
    assert undecided_share(model, splits.validation, within=0.01) == 1.0
