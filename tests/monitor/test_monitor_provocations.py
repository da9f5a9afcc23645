"""Provocations put into real trainings: what they do, what fires, and who is told."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tiny_training import TINY, ScriptedPolicy, Trained, train_tiny

from aggregates.provocations import apply_to_config, draw_fault
from aggregates.run import Run
from monitor.config import RunConfig
from monitor.errors import ConfigurationError
from monitor.model import ResidualCNN
from monitor.state import put_into
from policies.deciding.nothing import NothingPolicy
from policies.playbook import PlaybookPolicy

SMALL: dict[str, Any] = {**TINY, "epochs": 4}
# Faults that fire whatever course a training takes; the study of faults has all of them, on many
# settings (docs/studies/rules.md).
CASES: list[Any] = [
    ("lr_too_high", 0, {}),
    ("lr_too_low", 0, {}),
    ("dead_activations", 0, {}),  # everywhere
    ("dead_activations", 1, {}),  # in the blocks
    ("exploding_loss", 0, {}),
    ("exploding_loss", 3, {}),
    ("infinite_loss", 0, {}),
]


def provoked(name: str, fault_seed: int, /, **changes: Any) -> dict[str, Any]:
    return apply_to_config({**SMALL, **changes}, name, fault_seed)


def fired(run: Run) -> set[str]:
    return {rule for epoch in range(len(run.history)) for rule in run.fired(epoch)}


def start_of(config: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the fresh parameters without the fault of a configuration, and with it."""
    chosen = RunConfig.from_dict(config)
    spec = chosen.spec(10)
    healthy, ill = ResidualCNN(spec), ResidualCNN(spec)
    assert chosen.fault is not None
    put_into(ill, chosen.fault)
    return dict(healthy.named_parameters()), dict(ill.named_parameters())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "seed", "changes"), CASES)
def test_fault_makes_its_rules_fire(name: str, seed: int, changes: dict[str, Any]) -> None:
    trained = train_tiny(settings=provoked(name, seed, **changes), policy=NothingPolicy())
    assert set(draw_fault(name, seed, {}).expects) <= fired(trained.run)


def test_weights_of_the_named_part_are_scaled_and_no_others() -> None:
    for seed in (0, 2):  # head, body
        config = provoked("init_too_large", seed)
        fault = draw_fault("init_too_large", seed, config).changes["weights"]
        healthy, ill = start_of(config)
        for name, parameter in healthy.items():
            inside = name.startswith("head.") == (fault["part"] == "head") and parameter.dim() >= 2
            factor = fault["factor"] if inside else 1.0
            assert torch.equal(ill[name], parameter * factor), name


def test_share_of_the_biases_is_set_where_the_fault_says() -> None:
    for seed in (0, 1):  # everywhere, blocks
        config = provoked("dead_activations", seed)
        fault = draw_fault("dead_activations", seed, config).changes["biases"]
        healthy, ill = start_of(config)
        for name, parameter in healthy.items():
            touched = int((ill[name] != parameter).sum())
            norm = "norm" in name and name.endswith(".bias")
            inside = norm and (fault["part"] == "everywhere" or name.startswith("blocks."))
            assert touched == (round(fault["share"] * len(parameter)) if inside else 0), name
            if touched:
                assert float(ill[name].detach().min()) == pytest.approx(fault["value"])


def test_measured_loss_is_the_loss_that_is_trained() -> None:
    config = provoked("exploding_loss", 3, epochs=4, lr=1e-8, warm_up_epochs=0)  # nothing moves
    factor = draw_fault("exploding_loss", 3, config).changes["loss"]["factor"]
    healthy = train_tiny(settings={**SMALL, "lr": 1e-8, "warm_up_epochs": 0})
    ill = train_tiny(settings=config)
    for epoch, (sane, found) in enumerate(zip(healthy.measured, ill.measured, strict=True)):
        expected = factor if epoch < 3 else 1.0
        assert found["train"]["loss"] / sane["train"]["loss"] == pytest.approx(expected, rel=1e-3)
        assert found["validation"]["loss"] == pytest.approx(sane["validation"]["loss"], rel=1e-3)


def test_fault_is_recorded_behind_the_start_and_comes_out_the_same_again() -> None:
    config = provoked("dead_activations", 1, epochs=2)
    first, again = (told(train_tiny(settings=config)) for _ in range(2))
    assert first == again
    assert [name for name, _ in first[:3]] == ["Run.Started", "Run.Provoked", "Run.EpochMeasured"]
    assert first[1][1] == draw_fault("dead_activations", 1, config).to_dict()
    assert first[0][1]["config"]["provocation"] == "dead_activations"


def told(trained: Trained) -> list[tuple[str, dict[str, Any]]]:
    """Return a run's events without what differs between any two trainings."""
    own = {"originator_id", "originator_topic", "originator_version", "timestamp", "reported"}
    return [
        (name, {key: value for key, value in body.items() if key not in own})
        for name, body in trained.bodies()
    ]


def test_run_without_a_provocation_is_recorded_as_it_always_was() -> None:
    trained = train_tiny(settings={**SMALL, "epochs": 1})
    names = [name for name, _ in trained.bodies()]
    assert "Run.Provoked" not in names
    assert not [key for key in trained.run.config if key.startswith("provocation")]
    assert "provocation" in RunConfig.from_dict(provoked("lr_too_high", 0)).to_dict()


def test_policy_is_shown_facts_of_the_run_and_nothing_of_the_fault() -> None:
    for name, seed in (("lr_too_high", 0), ("infinite_loss", 0)):
        policy = ScriptedPolicy()
        config = provoked(name, seed)
        train_tiny(settings=config, policy=policy)
        assert policy.asked
        for observation in policy.asked:
            shown = repr(dataclasses.asdict(observation))
            assert name not in shown
            assert "provo" not in shown
        if name == "lr_too_high":  # which is the rate of the run, and is seen
            assert policy.asked[0].settings.lr == config["lr"]


def test_playbook_brings_back_what_an_infinite_loss_has_destroyed() -> None:
    config = provoked("infinite_loss", 0)
    acts, idle = (
        train_tiny(settings=config, policy=policy) for policy in (PlaybookPolicy(), NothingPolicy())
    )
    assert acts.measured[-1]["validation"]["loss"] < 10
    last = idle.measured[-1]["validation"]["loss"]
    assert last != last  # noqa: PLR0124 - NaN
    assert [past.decision.direction for past in acts.run.decisions if past.decision.acts] == [
        "decrease_lr"
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": 0.05}, "needs lr = 3.76, but the configuration has 0.05"),
        ({"provocation_seed": 1}, "needs lr = 3.24"),
        ({"provocation": "lr_too_odd"}, "provocation must be one of"),
        ({"provocation": None}, "provocation_seed is set without a provocation"),
        ({"provocation_seed": -1}, "provocation_seed must be a whole number from 0"),
        ({"provocation_seed": 2**60}, "provocation_seed must be a whole number from 0"),
    ],
)
def test_configuration_that_claims_another_fault_is_rejected(
    change: dict[str, Any], words: str
) -> None:
    seed = 1 if change == {"provocation": None} else 0
    honest = provoked("lr_too_high", seed)
    assert RunConfig.from_dict(honest).fault == draw_fault("lr_too_high", seed, honest)
    with pytest.raises(ConfigurationError, match=words):
        RunConfig.from_dict({**honest, **change})
