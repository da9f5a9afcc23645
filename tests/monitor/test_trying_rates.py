"""A training tries several rates, an epoch each from one state, and goes on with the best."""

import hashlib
import math
from typing import Any

import pytest
from forked_runs import events_of, forked, recorded
from tiny_training import TINY, Trained, train_tiny

from aggregates.decisions import Decision, parse_decision
from aggregates.errors import DecisionError, InvariantError
from aggregates.outcomes import in_words
from aggregates.playbook import FRESH, TRY_RATES
from aggregates.provocations import apply_to_config
from aggregates.rules import FIRST_RULES
from aggregates.run import Run
from aggregates.trials import Step, Trials
from judge.auditing.reexecution import reexecute
from monitor.snapshots import capture
from monitor.state import LiveState

# Epoch 0 is sound, and from epoch 1 on the loss is multiplied by 43,400.
RELATIVE: dict[str, Any] = apply_to_config(
    {**TINY, "profile": "relative", "epochs": 7, "snapshots": "every:1"}, "exploding_loss", 0
)
RATES = [0.05, 0.005, 0.0005]


def _tried(epoch: int = 0, rates: list[float] = RATES, **settings: Any) -> Trained:
    said = (TRY_RATES, {"epoch": epoch, "rates": rates, "clip_norm": 1.0})
    return train_tiny(said, settings={**RELATIVE, **settings})


def _refusals(trained: Trained) -> list[str]:
    return [body["reason"] for name, body in trained.bodies() if name == "Run.RemedyRefused"]


@pytest.mark.parametrize("epoch", [0, FRESH])
def test_each_rate_has_an_epoch_and_the_best_goes_on(epoch: int) -> None:
    trained = _tried(epoch)
    run = trained.run
    (trials,) = run.trials
    assert (trials.asked, trials.epoch, trials.epochs) == (1, epoch, range(2, 5))
    rates = [part["settings"]["lr"] for part in trained.measured]
    losses = [signals.val_loss for signals in run.history[2:5]]
    assert rates == [0.05, 0.05, *RATES, *[RATES[losses.index(min(losses))]] * 2]
    assert run.settings["lr"] == rates[-1]
    assert reexecute(events_of(trained), recorded(trained)).same


def test_trials_begin_with_one_state_and_the_chosen_ones_goes_on() -> None:
    live: list[LiveState] = []
    begun: dict[int, str] = {}
    ended: dict[int, str] = {}

    def ends(epoch: int, state: LiveState) -> None:
        live.append(state)
        ended[epoch] = hashlib.sha256(capture(state)).hexdigest()

    def begins(run: Run, _: dict[str, Any]) -> None:
        begun[run.epoch + 1] = hashlib.sha256(capture(live[-1])).hexdigest()

    trained = _tried()
    reexecute(events_of(trained), recorded(trained), on_state=ends, on_epoch=begins)
    losses = [signals.val_loss for signals in trained.run.history[2:5]]
    best = 2 + losses.index(min(losses))
    assert begun[2] == begun[3] == begun[4] == ended[0]
    assert begun[5] == ended[best]
    assert len({ended[epoch] for epoch in (2, 3, 4)}) == 3


def test_no_rule_judges_a_trial_and_the_chosen_one_counts_afterwards() -> None:
    run = _tried().run
    for epoch in (2, 3, 4):
        found = run.evaluations[epoch]
        told = [(each.fired, each.value, each.streak) for each in found.values()]
        assert told == [(False, None, 0)] * len(FIRST_RULES)
    norms = [signals.max_layer_grad_norm for signals in run.history]
    best = min((2, 3, 4), key=lambda epoch: run.history[epoch].val_loss)
    growth = run.evaluations[5]["R7"].value
    assert growth == pytest.approx(norms[5] / norms[best])  # type: ignore[operator]


def test_states_of_trials_that_did_not_go_on_are_gone() -> None:
    run = _tried().run
    best = min((2, 3, 4), key=lambda epoch: run.history[epoch].val_loss)
    assert not {2, 3, 4} - {best} & {*run.back(5)}


def test_trials_stay_within_the_epochs_of_the_run() -> None:
    trained = _tried(epochs=5)
    assert _refusals(trained) == [
        "3 rates cannot be tried: 2 epochs are left for trials, because one has to follow them"
    ]
    two = _tried(epochs=5, rates=RATES[:2])
    assert len(two.run.history) == 5
    assert [past.outcome for past in two.run.decisions if past.decision.acts] == ["applied"]
    assert trained.policy.asked[0].tries == 2
    assert _tried(epochs=3).policy.asked[0].tries == 0


def test_nothing_else_changes_a_training_that_tries_rates() -> None:
    params = {"epoch": 0, "rates": RATES, "clip_norm": 1.0}
    other = ("decrease_lr", {"lr": 0.01})
    after = train_tiny((TRY_RATES, params), other, settings=RELATIVE)
    assert _refusals(after) == ["epoch 1 begins trials: no other decision is carried out"]
    before = train_tiny(other, (TRY_RATES, params), settings=RELATIVE)
    assert _refusals(before) == []
    assert [part["settings"]["lr"] for part in before.measured[2:5]] == RATES


def test_other_profiles_try_nothing() -> None:
    assert _refusals(_tried(profile="calibrated")) == [
        "this training keeps no states to go back to"
    ]


def test_fork_after_trials_goes_on_as_they_did_and_its_record_is_repeated() -> None:
    trained = _tried()
    again = forked(trained, 5, recorded(trained), settings=RELATIVE)
    assert [each.val_loss for each in again.run.history] == [
        each.val_loss for each in trained.run.history
    ]


def test_run_that_was_cut_off_in_a_trial_is_trained_again() -> None:
    trained = _tried()
    again = reexecute(events_of(trained), recorded(trained), until_epoch=3)
    assert again.same
    assert not again.whole


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([], Step(4, 0.3)),
        ([1.0], Step(4, 0.1)),
        ([2.0, 1.0, 3.0], Step(7, 0.1)),
        ([1.0, 1.0, math.nan], Step(6, 0.3)),
        ([math.nan, math.inf, 9.0], Step(8, 0.03)),
        ([math.nan, math.inf, -math.inf], Step(4, 0.03)),
    ],
)
def test_smallest_finite_loss_decides(losses: list[float], step: Step) -> None:
    assert Trials(1, 5, 4, (0.3, 0.1, 0.03)).step(losses) == step


@pytest.mark.parametrize("rates", [[0.1], [0.1] * 2, [0.1, "a"], [0.1, 0.0], 0.1, [1.0] * 5])
def test_rates_that_cannot_be_tried_are_refused(rates: Any) -> None:
    told = Decision.of(("R1",), TRY_RATES, {"epoch": 0, "rates": rates}, "for the test").to_dict()
    with pytest.raises(DecisionError, match="rates"):
        parse_decision(told)


def test_changes_are_told_in_words() -> None:
    (applied,) = [b for name, b in _tried(FRESH).bodies() if name == "Run.RemedyApplied"]
    assert "learning rates 0.05, 0.005, 0.0005 are tried, an epoch each" in in_words(
        applied["changes"]
    )


def test_nothing_is_decided_on_a_trial_and_another_rate_is_refused() -> None:
    events = events_of(_tried())
    run: Any = None
    for event in events:
        if isinstance(event, Run.EpochMeasured) and event.epoch == 3:
            break
        run = event.mutate(run)
    with pytest.raises(
        InvariantError, match="epoch 2 is a trial, so no decision can be made in it"
    ):
        run.decide(run.decisions[0].decision, source="policy")
    measured = {**event.measured, "settings": {**event.measured["settings"], "lr": 0.02}}
    told = "epoch 3 is a trial of decision 1 with lr 0.005, not 0.02"
    with pytest.raises(InvariantError, match=told):
        run.measure_epoch(measured, event.reported)
    assert run.measure_epoch(event.measured, event.reported) == 3
