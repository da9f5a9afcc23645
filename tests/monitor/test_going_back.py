"""A training goes back to an earlier state, and on with other settings."""

import math
from typing import Any

import pytest
import torch
from forked_runs import events_of, forked, recorded
from tiny_training import TINY, ScriptedPolicy, Trained, train_tiny

from aggregates.decisions import Decision, Observation, parse_decision
from aggregates.errors import DecisionError, RemedyRefused
from aggregates.outcomes import in_words
from aggregates.playbook import FRESH, GO_BACK
from aggregates.provocations import apply_to_config
from judge.auditing.reexecution import rebuild, reexecute
from monitor.config import RunConfig
from monitor.snapshots import capture
from monitor.state import LiveState

# Epoch 0 is sound, and from epoch 1 on the loss is multiplied by 43,400.
RELATIVE: dict[str, Any] = apply_to_config(
    {**TINY, "profile": "relative", "epochs": 6, "snapshots": "every:1"}, "exploding_loss", 0
)


def _gone_back(epoch: int, lr: float = 0.01, **settings: Any) -> Trained:
    said = (GO_BACK, {"epoch": epoch, "lr": lr, "clip_norm": 1.0})
    return train_tiny(said, settings={**RELATIVE, **settings})


def _refusals(trained: Trained) -> list[str]:
    return [body["reason"] for name, body in trained.bodies() if name == "Run.RemedyRefused"]


def _decision(epoch: int, **params: Any) -> Decision:
    return Decision.of(("R1",), GO_BACK, {"epoch": epoch, "lr": 0.01, **params}, "for the test")


def _live() -> LiveState:
    config = RunConfig.from_dict(RELATIVE)
    state = LiveState.start(config, config.spec(10), train_examples=192)
    _step(state)
    return state


def _step(state: LiveState) -> None:
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward(state.model(images).logsumexp(1).mean())
    state.optimizer.param_groups[0]["lr"] = 0.1
    state.optimizer.step()


def test_state_that_is_gone_back_to_is_the_earlier_one_bit_for_bit() -> None:
    state = _live()
    earlier = capture(state)
    state.keep(3, 10)
    _step(state)
    state.keep(4, 10)
    assert capture(state) != earlier
    changes = state.execute(_decision(3, clip_norm=1.0), epoch=4)
    assert capture(state) == earlier
    assert (state.settings.lr, state.settings.clip_norm) == (0.01, 1.0)
    assert "back to the state after epoch 3" in in_words(changes)
    _step(state)  # and what was abandoned is kept, and what is kept does not change
    state.execute(_decision(3), epoch=5)
    assert capture(state) == earlier
    state.execute(_decision(4), epoch=6)
    assert capture(state) != earlier


def test_fresh_weights_have_no_memory() -> None:
    state = _live()
    changes = state.execute(_decision(FRESH), epoch=4)
    assert state.momentum() == {}
    assert "fresh weights" in in_words(changes)


def test_batch_changes_with_the_state() -> None:
    state = _live()
    changes = state.execute(_decision(FRESH, batch_size=4), epoch=4)
    assert state.settings.batch_size == 4
    assert "batch size 32 -> 4" in in_words(changes)


def test_only_the_latest_states_are_kept() -> None:
    state = _live()
    for epoch in range(5):
        state.keep(epoch, 2)
    assert list(state.kept) == [3, 4]
    state.keep(5, 0)
    assert list(state.kept) == [3, 4]


def test_state_that_is_not_finite_is_refused_and_nothing_changes() -> None:
    state = _live()
    with torch.no_grad():
        next(state.model.parameters()).fill_(math.nan)
    state.keep(3, 10)
    before = capture(state)
    with pytest.raises(RemedyRefused, match="the weights after epoch 3 are not finite"):
        state.execute(_decision(3), epoch=4)
    assert capture(state) == before
    state.execute(_decision(FRESH), epoch=4)


@pytest.mark.parametrize("params", [{"epoch": -2}, {"epoch": 1.0}, {"epoch": True}, {"lr": 0.0}])
def test_states_and_rates_that_cannot_be_are_refused(params: dict[str, Any]) -> None:
    told = {**_decision(1).to_dict(), "params": {"epoch": 1, "lr": 0.1, **params}}
    with pytest.raises(DecisionError):
        parse_decision(told)


def test_training_goes_on_from_the_earlier_state_and_every_rule_starts_afresh() -> None:
    trained = _gone_back(0)
    run = trained.run
    assert [past.outcome for past in run.decisions if past.decision.acts] == ["applied"]
    assert {remedy.rule for remedy in run.remedies} == {f"R{number}" for number in range(1, 8)}
    ratios = [signals.update_ratio for signals in run.history[:3]]
    assert ratios[1] > 10_000 * ratios[2]  # type: ignore[operator]
    assert trained.policy.asked[0].back == (FRESH, 0)


def test_damaged_state_is_refused() -> None:
    trained = _gone_back(1)
    assert _refusals(trained) == [
        "the state after epoch 1 is not kept, or R1, R5, R6 or R7 fired in that epoch"
    ]


def test_training_goes_back_once_an_epoch_and_never_for_a_waived_rule() -> None:
    told = [(GO_BACK, {"epoch": epoch, "lr": 0.01, "clip_norm": 1.0}) for epoch in (0, FRESH)]
    twice = train_tiny(*told, settings=RELATIVE)
    assert _refusals(twice) == ["the training has gone back in epoch 1 already"]

    class Waived(ScriptedPolicy):
        def decide(self, observation: Observation) -> list[Decision]:
            return [Decision.of(("R7",), *told[0], "for a waived rule")]

    waived = train_tiny(settings={**RELATIVE, "waived": ("R7",)}, policy=Waived())
    assert _refusals(waived)[0] == "R7 is waived: no training goes back for a waived rule"


def test_run_that_went_back_is_trained_again_bit_for_bit() -> None:
    for epoch in (FRESH, 0):
        trained = _gone_back(epoch)
        assert reexecute(events_of(trained), recorded(trained)).same


def test_state_of_a_run_that_went_back_is_rebuilt_from_the_start() -> None:
    trained = _gone_back(0)
    near = rebuild(events_of(trained), recorded(trained), 4, blobs=trained.blobs)
    assert (near.since, near.epochs) == (None, 5)


def test_fork_goes_back_to_nothing_before_it() -> None:
    trained = _gone_back(0)
    again = forked(trained, 1, recorded(trained), settings=RELATIVE)
    assert (
        "the state after epoch 0 is not kept, or R1, R5, R6 or R7 fired in that epoch"
        in _refusals(again)
    )
    later = forked(trained, 3, recorded(trained), settings=RELATIVE)  # what its parent did stands
    assert [past.outcome for past in later.run.decisions if past.decision.acts] == ["applied"]
    for fork in (again, later):
        assert reexecute(events_of(fork), recorded(fork)).same


def test_other_profiles_keep_no_states() -> None:
    assert _refusals(_gone_back(0, profile="calibrated")) == [
        "this training keeps no states to go back to"
    ]
