"""A training goes back to an earlier state, and on with other settings."""

import math
from typing import Any

import pytest
import torch
from forked_runs import events_of, forked, recorded
from tiny_training import STUCK, ScriptedPolicy, Trained, train_tiny

from aggregates.decisions import Decision, Observation, parse_decision
from aggregates.errors import DecisionError, RemedyRefused
from aggregates.outcomes import in_words
from aggregates.playbook import DEFER, FRESH, GO_BACK
from judge.auditing.reexecution import rebuild, reexecute
from monitor.config import RunConfig
from monitor.snapshots import capture
from monitor.state import LiveState

RELATIVE: dict[str, Any] = {**STUCK, "profile": "relative", "epochs": 5, "snapshots": "every:1"}


class Later(ScriptedPolicy):
    """Says what it says in epoch 2, and defers in all others."""

    def decide(self, observation: Observation) -> list[Decision]:
        self.asked.append(observation)
        if observation.epoch == 2:
            return [Decision.of((observation.due[0],), *said, "as told") for said in self.says]
        return [Decision.of((rule,), DEFER, {}, "not now") for rule in observation.due]


def _gone_back(epoch: int, lr: float = 0.05, **settings: Any) -> Trained:
    said = (GO_BACK, {"epoch": epoch, "lr": lr})
    return train_tiny(settings={**RELATIVE, **settings}, policy=Later([said], name="later"))


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
    assert run.history[3].update_ratio > 1_000 * run.history[2].update_ratio  # type: ignore[operator]
    seen = trained.run.back(2)
    assert seen == (FRESH, 0, 1, 2)


def test_run_that_went_back_is_trained_again_bit_for_bit() -> None:
    for epoch in (FRESH, 0, 2):
        trained = _gone_back(epoch)
        assert reexecute(events_of(trained), recorded(trained)).same


def test_state_of_a_run_that_went_back_is_rebuilt_from_the_start() -> None:
    trained = _gone_back(0)
    near = rebuild(events_of(trained), recorded(trained), 4, blobs=trained.blobs)
    assert (near.since, near.epochs) == (None, 5)


def test_fork_goes_back_to_nothing_before_it() -> None:
    trained = _gone_back(1)
    again = forked(trained, 2, recorded(trained), settings=RELATIVE)
    past = [(past.outcome, past.decision.direction) for past in again.run.decisions]
    assert ("refused", GO_BACK) in past
    assert again.run.back(2) == (FRESH, 2)
    later = forked(trained, 3, recorded(trained), settings=RELATIVE)  # what its parent did stands
    assert later.run.back(3) == (FRESH, 3)
    assert [past.outcome for past in later.run.decisions if past.decision.acts] == ["applied"]
    for fork in (again, later):
        assert reexecute(events_of(fork), recorded(fork)).same


def test_other_profiles_keep_no_states() -> None:
    trained = _gone_back(0, profile="calibrated")
    (refused,) = [past for past in trained.run.decisions if past.decision.acts]
    assert refused.outcome == "refused"
    reason = next(b["reason"] for n, b in trained.bodies() if n == "Run.RemedyRefused")
    assert reason == "this training keeps no states to go back to"
