"""Every remedy acts on the live run, or is refused with the state as it was."""

import math
from typing import Any

import pytest
import torch
from tiny_training import STUCK, TINY, train_tiny

from aggregates.decisions import Decision, learning_rate, parse_decision
from aggregates.errors import RemedyRefused
from aggregates.spec import ModelSpec
from monitor.config import RunConfig
from monitor.state import LiveState
from monitor.weights import dump_weights

BLOCKS = "blocks.0."


def _state(**changes: Any) -> LiveState:
    """Return a live state with momentum in its optimizer."""
    config = RunConfig.from_dict({**TINY, **changes})
    state = LiveState.start(config, config.spec(10), train_examples=192)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward(state.model(images).logsumexp(1).mean())
    state.optimizer.step()
    return state


def _decision(direction: str, **params: Any) -> Decision:
    structural = direction in ("add_block", "add_norm", "add_residual", "swap_activation", "widen")
    kind = "architecture_change" if structural else "hyperparameter_change"
    return parse_decision(
        {
            "event_type": kind,
            "cites": ["R1"],
            "direction": direction,
            "params": params,
            "justification": "for the test",
        }
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("direction", "params", "measured"),
    [
        ("decrease_lr", {"lr": 1e-8, "clip_norm": 0.5}, {"lr": 1e-8, "clip_norm": 0.5}),
        ("increase_lr", {"lr": 1e-2}, {"lr": 1e-2}),
        (
            "warm_up_lr",
            {"lr": 0.1, "epochs": 2},
            {"schedule": {"kind": "warm_up", "epochs": 2, "since": 3}},
        ),
        ("cycle_lr", {"lr_min": 0.01, "lr_max": 0.1, "epochs": 1}, {"lr": 0.1}),
        ("increase_batch_size", {"batch_size": 64}, {"batch_size": 64}),
        ("decrease_batch_size", {"batch_size": 16}, {"batch_size": 16}),
        ("accumulate_gradients", {"accumulation": 2}, {"accumulation": 2}),
    ],
)
def test_settings_remedy_acts_on_the_next_epoch(
    direction: str, params: dict[str, Any], measured: dict[str, Any]
) -> None:
    trained = train_tiny((direction, params), settings=STUCK)
    assert [past.outcome for past in trained.run.decisions][:1] == ["applied"]
    before, after = (part["settings"] for part in trained.measured[2:4])
    assert before["lr"] == STUCK["lr"]
    assert {**after, **measured} == after
    steps = 192 // (after["batch_size"] * after["accumulation"])
    assert trained.measured[3]["train"]["steps"] == steps
    moved = [part["layers"][0]["update_ratio"] for part in trained.measured[2:4]]
    if direction in ("increase_lr", "warm_up_lr", "cycle_lr"):
        assert moved[1] > 1_000 * moved[0]
    if direction == "decrease_lr":
        assert moved[1] < 0.5 * moved[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("direction", "params", "places"),
    [
        ("add_block", {}, {"blocks"}),
        ("widen", {"factor": 2}, {BLOCKS + "width"}),
        ("swap_activation", {"to": "gelu"}, {"activation", BLOCKS + "activation"}),
        ("add_norm", {"block": 0}, {BLOCKS + "norm"}),
        ("add_residual", {}, {BLOCKS + "residual"}),
    ],
)
def test_structural_remedy_acts_on_the_next_epoch(
    direction: str, params: dict[str, Any], places: set[str]
) -> None:
    settings = {**STUCK, "norm": "none", "residual": False}
    trained = train_tiny((direction, params), settings=settings)
    run = trained.run
    applied = next(body for name, body in trained.bodies() if name == "Run.RemedyApplied")
    assert places <= {change["what"] for change in applied["changes"]}
    assert run.spec != run.initial_spec
    names = [
        {entry["name"] for entry in part["layers"] + part["activations"]}
        for part in trained.measured[2:4]
    ]
    if direction in ("add_block", "add_norm"):
        assert names[0] < names[1]
    else:
        assert names[0] == names[1]
    saved = [body for name, body in trained.bodies() if name == "Run.WeightsSaved"]
    assert ModelSpec.from_dict(saved[-1]["spec"]) == run.spec


def test_stop_ends_the_run_with_the_best_weights_kept() -> None:
    trained = train_tiny(("stop", {}), settings=STUCK)
    assert trained.run.end_reason == "stopped"
    assert trained.run.epoch == 2
    assert set(trained.run.weights) == {"best", "last"}


def test_reinitialisation_begins_again_with_fresh_weights() -> None:
    state = _state()
    old = dump_weights(state.model)
    changes = state.execute(_decision("decrease_lr", lr=0.001, reinitialise=True), epoch=4)
    assert {"what": "weights", "from": "trained", "to": "initialised"} in changes
    assert state.momentum() == {}
    assert state.settings.lr == 0.001
    assert state.settings.schedule == {"kind": "constant"}
    fresh = dict(state.model.state_dict())
    assert not fresh["norm.running_mean"].any()
    assert not fresh["norm.num_batches_tracked"]
    assert dump_weights(state.model) != old
    other = _state()
    other.execute(_decision("decrease_lr", lr=0.001, reinitialise=True), epoch=4)
    assert dump_weights(other.model) == dump_weights(state.model)


@pytest.mark.parametrize("direction", ["add_block", "widen", "swap_activation"])
def test_momentum_is_carried_over_when_the_model_is_edited(direction: str) -> None:
    known: dict[str, dict[str, Any]] = {
        "widen": {"factor": 2},
        "swap_activation": {"to": "prelu"},
    }
    params = known.get(direction, {})
    state = _state()
    old = state.momentum()
    assert set(old) == {name for name, _ in state.model.named_parameters()}
    state.execute(_decision(direction, **params), epoch=0)
    new = state.momentum()
    assert set(new) == set(old)  # what is new has no momentum yet
    shapes = {name: value.shape for name, value in state.model.named_parameters()}
    for name, buffer in new.items():
        assert buffer.shape == shapes[name]
        part = tuple(slice(0, size) for size in old[name].shape)
        assert torch.equal(buffer[part], old[name])
        assert torch.count_nonzero(buffer) == torch.count_nonzero(old[name])
    group = state.optimizer.param_groups[0]
    assert len(group["params"]) == len(shapes)
    assert (group["momentum"], group["weight_decay"]) == (0.9, 5e-4)


def test_momentum_is_dropped_with_its_parameter() -> None:
    state = _state(activation="prelu")
    state.execute(_decision("swap_activation", to="relu"), epoch=0)
    assert "act.weight" not in state.momentum()
    assert "head.weight" in state.momentum()


@pytest.mark.parametrize(
    ("direction", "params", "reason"),
    [
        ("decrease_lr", {"lr": 0.05}, "from 0.05 cannot lead to 0.05"),
        ("decrease_lr", {"lr": 0.5}, "from 0.05 cannot lead to 0.5"),
        ("increase_lr", {"lr": 0.01}, "from 0.05 cannot lead to 0.01"),
        ("increase_batch_size", {"batch_size": 1024}, "do not fit into memory, the limit is 512"),
        ("increase_batch_size", {"batch_size": 16}, "from 32 cannot lead to 16"),
        ("increase_batch_size", {"batch_size": 256}, "more than the 192 for training"),
        ("decrease_batch_size", {"batch_size": 32}, "from 32 cannot lead to 32"),
        ("accumulate_gradients", {"accumulation": 1}, "summed already"),
        ("accumulate_gradients", {"accumulation": 8}, "256 examples a step"),
        ("widen", {"factor": 2, "block": 5}, "there is no block 5"),
        ("swap_activation", {"to": "relu"}, "changes nothing"),
        ("add_norm", {}, "changes nothing"),
        ("add_residual", {}, "changes nothing"),
    ],
)
def test_remedy_that_cannot_be_carried_out_is_rejected(
    direction: str, params: dict[str, Any], reason: str
) -> None:
    state = _state()
    before = (dump_weights(state.model), state.settings, state.optimizer, state.model.spec())
    with pytest.raises(RemedyRefused, match=reason):
        state.execute(_decision(direction, **params), epoch=0)
    assert before == (
        dump_weights(state.model),
        state.settings,
        state.optimizer,
        state.model.spec(),
    )


def test_remedy_beyond_the_limits_is_rejected() -> None:
    deep = _state(blocks=32, width=2, channels=2)
    with pytest.raises(RemedyRefused, match="1 to 32 blocks, not 33"):
        deep.execute(_decision("add_block"), epoch=0)
    wide = _state(width=1000, channels=1)
    with pytest.raises(RemedyRefused, match=r"width must be .* to 1,024, not 2000"):
        wide.execute(_decision("widen", factor=2), epoch=0)


@pytest.mark.parametrize("direction", ["decrease_lr", "add_block"])
def test_remedy_is_rejected_when_the_weights_are_not_finite(direction: str) -> None:
    params = {"lr": 0.005} if direction == "decrease_lr" else {}
    state = _state()
    with torch.no_grad():
        state.model.head.weight[0, 0] = math.nan
    with pytest.raises(RemedyRefused, match="only a reinitialisation"):
        state.execute(_decision(direction, **params), epoch=0)
    state.execute(_decision("decrease_lr", lr=0.005, reinitialise=True), epoch=0)
    assert bool(torch.isfinite(state.model.head.weight).all())
    assert state.execute(_decision(direction, **({"lr": 0.001} if params else {})), epoch=1)


def test_schedules_give_the_rates_they_describe() -> None:
    state = _state()
    state.execute(_decision("warm_up_lr", lr=0.2, epochs=2), epoch=3)
    rates = [
        learning_rate(state.settings, epoch=epoch, fraction=fraction)
        for epoch, fraction in [(4, 0.5), (4, 1.0), (5, 1.0), (9, 0.5)]
    ]
    assert rates == pytest.approx([0.05, 0.1, 0.2, 0.2])
    state.execute(_decision("cycle_lr", lr_min=0.1, lr_max=0.3, epochs=2), epoch=9)
    rates = [
        learning_rate(state.settings, epoch=epoch, fraction=fraction)
        for epoch, fraction in [(10, 0.0), (10, 0.5), (11, 0.0), (11, 0.5), (12, 1.0)]
    ]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.2, 0.3])


def test_remedy_is_carried_out_when_running_variances_have_overflowed() -> None:
    state = _state()
    state.model.norm.running_var.fill_(math.inf)  # type: ignore[operator]  # torch types modules loosely
    changes = state.execute(_decision("decrease_lr", lr=1e-3), epoch=1)
    assert {change["what"]: change["to"] for change in changes}["lr"] == 1e-3
