"""What an agent is shown of a situation in numbers, and what its numbered choices stand for."""

import dataclasses
import math

import numpy as np
import pytest
from situations import observe, signals

from aggregates.decisions import Observation, Settings, parse_decision, validate_decision
from aggregates.playbook import DEFER, DIRECTIONS
from aggregates.spec import ModelSpec
from policies.answers import read_answer
from proctor.environment.choices import CHOICES, answers
from proctor.environment.numbers import BOUNDS, EPOCHS, SIDES, SIGNALS, arrays, numbers_of

SITUATIONS = [(rule, side) for rule, sides in DIRECTIONS.items() for side in sides]


def _numbers(seen: Observation, **changes: object) -> dict[str, np.ndarray]:
    assert isinstance(seen.spec, ModelSpec)
    found = {
        "history": seen.history,
        "due": [seen.evaluations[rule] for rule in seen.due],
        "settings": seen.settings.to_dict(),
        "spec": seen.spec,
        "epochs": 12,
        **changes,
    }
    return arrays(numbers_of(**found))  # type: ignore[arg-type]


@pytest.mark.parametrize(("rule", "side"), SITUATIONS)
def test_choices_that_fit_are_valid_and_cover_every_direction(rule: str, side: str) -> None:
    seen = observe({rule: side})
    said = [each for each in answers(seen) if each is not None]
    for decisions in said:
        assert read_answer({"decisions": decisions}, seen)[1] == {}
    directions = {decisions[0]["direction"] for decisions in said}
    impossible = {"add_norm", "add_residual", "accumulate_gradients"}  # the model has all of it
    assert {DEFER, *DIRECTIONS[rule][side]} - directions <= impossible
    texts = [str({**decisions[0], "justification": ""}) for decisions in said]
    assert len(set(texts)) == len(texts)


def test_other_due_rules_are_deferred_to_the_one_that_is_acted_on() -> None:
    seen = observe({"R1": "high", "R2": "low", "R7": "high"})
    number = [choice.name for choice in CHOICES].index("decrease_lr most clip_norm=1.0")
    acting = answers(seen)[number]
    assert acting is not None
    assert [each["cites"] for each in acting] == [["R7"], ["R1"], ["R2"]]
    assert [each["params"].get("deferred_to") for each in acting] == [None, "R7", "R7"]
    waiting = answers(seen)[0]
    assert waiting is not None
    assert all(each["params"] == {} for each in waiting)
    for each in (*acting, *waiting):
        validate_decision(parse_decision(each), seen)


def test_choices_beyond_the_bounds_do_not_fit() -> None:
    slow = observe({"R1": "high"}, settings=Settings(lr=2e-8, batch_size=64))
    assert [each is not None for each in answers(slow)].count(True) == 1  # to wait
    odd = observe({"R2": "high"}, settings=Settings(lr=0.1, batch_size=65))
    assert [each is not None for each in answers(odd)].count(True) == 1


def test_numbers_are_within_their_bounds_whatever_was_measured() -> None:
    lost = [
        signals(0, train_loss=math.nan, update_ratio=None, dead_share=math.inf),
        signals(1, val_loss=1e300, min_layer_grad_norm=0.0, signal_to_noise=-1.0),
    ]
    seen = dataclasses.replace(observe({"R7": "not_finite"}, epoch=1), history=tuple(lost))
    found = _numbers(seen)
    for name, (low, high) in BOUNDS.items():
        assert found[name].dtype == np.float32
        assert found[name].shape == low.shape
        assert np.all((low <= found[name]) & (found[name] <= high)), name
    missing = [dict(zip(SIGNALS, row, strict=True)) for row in found["missing"]]
    assert [sum(row.values()) for row in missing] == [len(SIGNALS)] * (EPOCHS - 2) + [3, 0]
    assert [name for name, flag in missing[-2].items() if flag] == [
        "train_loss",
        "update_ratio",
        "dead_share",
    ]
    assert found["due"].sum() == found["due"][6, SIDES.index("not_finite")] == 1
    assert found["progress"] == pytest.approx(2 / 12)


def test_later_epochs_push_out_earlier_ones() -> None:
    found = _numbers(observe({"R1": "high"}, epoch=EPOCHS + 3))
    assert found["missing"].sum() == 0
    losses = found["signals"][:, list(SIGNALS).index("val_loss")]
    assert losses[-1] == pytest.approx(math.log10(2.0 * 0.99 ** (EPOCHS + 3)))
