"""The playbook policy on observations written by hand; its answers are checked like others'."""

import dataclasses
import math
from importlib.resources import files
from typing import Any

import pytest
from handmade_network import network_for
from hypothesis import given
from hypothesis import strategies as st

from aggregates.decisions import (
    Decision,
    Observation,
    PastDecision,
    Said,
    Settings,
    parse_decision,
    validate_decision,
)
from aggregates.playbook import DIRECTIONS, FRESH, NO_ACTION
from aggregates.rulebook import PRECEDENCE, fired_in_precedence
from aggregates.rules import (
    CALIBRATED,
    DOCUMENT,
    RELATIVE,
    RELATIVE_1,
    RELATIVE_2,
    RELATIVE_3,
    RuleEvaluation,
)
from aggregates.rules import FIRST_RULES as RULES
from aggregates.signals import EpochSignals
from aggregates.spec import BlockSpec, ModelSpec, WatchedActivation, WatchedModel
from policies.deciding.catalogue import POLICIES, create_policy
from policies.deciding.chance import RandomPolicy
from policies.deciding.network import NetworkPolicy
from policies.deciding.nothing import NothingPolicy
from policies.deciding.recorded import RecordedPolicy
from policies.deciding.rescue import LEARNING, TARGET, RescuePolicy
from policies.deciding.trials import TrialsPolicy
from policies.errors import PolicyError
from policies.playbook import PlaybookPolicy

ACTS = NetworkPolicy(network_for(RULES))
SPEC = ModelSpec(10, 8, 2, (BlockSpec(8, True, "batch", "relu"),), "batch", "relu")


def observe(fired: dict[str, str], *, ema: float | None = 1.0, **changes: Any) -> Observation:
    evaluations = {
        rule: RuleEvaluation(rule, rule in fired, fired.get(rule), ema, ema, 3) for rule in RULES
    }
    observation = Observation(
        run_id="run",
        epoch=5,
        due=fired_in_precedence(evaluations),
        evaluations=evaluations,
        settings=Settings(lr=0.1, batch_size=64),
        max_batch_size=256,
        train_examples=1000,
        spec=SPEC,
        history=(),
        decisions=(),
        waived=(),
        rules=CALIBRATED,
        edits="live",
    )
    return dataclasses.replace(observation, **changes)


def signals(epoch: int, *, val_loss: float) -> EpochSignals:
    rest = dict.fromkeys(
        (
            "max_layer_grad_norm",
            "min_layer_grad_norm",
            "update_ratio",
            "epoch_update_ratio",
            "signal_to_noise",
            "norm_noise_scale",
            "dead_share",
            "sparsity",
        )
    )
    return EpochSignals(
        epoch=epoch,
        train_loss=2.0,
        train_accuracy=0.2,
        val_loss=val_loss,
        gradients_finite=True,
        **rest,
    )


def answer(observation: Observation) -> list[Decision]:
    decisions = PlaybookPolicy().decide(observation)
    for decision in decisions:
        validate_decision(parse_decision(decision.to_dict()), observation)
    return decisions


def past(rule: str, epoch: int) -> PastDecision:
    done = Decision("hyperparameter_change", (rule,), "decrease_lr", {"lr": 0.1}, "before")
    return PastDecision(1, epoch, "policy", done, "applied")


@pytest.mark.parametrize(
    ("rule", "side", "direction"),
    [
        ("R1", "high", "decrease_lr"),
        ("R1", "low", "increase_lr"),
        ("R1", "plateau", "decrease_lr"),
        ("R2", "low", "increase_batch_size"),
        ("R2", "high", "decrease_batch_size"),
        ("R3", "plateau", "stop"),
        ("R4", "stalled", "add_block"),
        ("R5", "high", "swap_activation"),
        ("R6", "low", "swap_activation"),
        ("R7", "high", "decrease_lr"),
        ("R7", "not_finite", "decrease_lr"),
    ],
)
def test_playbook_acts_on_each_rule_as_its_page_says(rule: str, side: str, direction: str) -> None:
    (decision,) = answer(observe({rule: side}))
    assert (decision.cites, decision.direction) == ((rule,), direction)


def test_playbook_reinitialises_only_when_weights_are_lost() -> None:
    (steep,), (lost,) = answer(observe({"R7": "high"})), answer(observe({"R7": "not_finite"}))
    assert steep.params == {"lr": pytest.approx(0.01), "clip_norm": 1.0}
    assert lost.params["reinitialise"] is True


def test_playbook_reinitialises_a_model_that_is_far_worse_than_guessing() -> None:
    worse, better = (
        answer(observe({"R7": "high"}, history=(signals(0, val_loss=loss),)))[0]
        for loss in (30.0, 15.0)  # guessing one of ten classes costs 2.3
    )
    assert worse.params["reinitialise"] is True
    assert "reinitialise" not in better.params


def test_gradients_that_explode_in_the_first_epoch_begin_again_where_fresh_weights_would_not() -> (
    None
):
    (first,), (later,) = answer(observe({"R7": "high"}, epoch=0)), answer(observe({"R7": "high"}))
    bare = ModelSpec(10, 8, 2, (BlockSpec(8, True, "none", "relu"),), "none", "relu")
    (unnormalised,) = answer(observe({"R7": "high"}, epoch=0, spec=bare))
    assert first.params["reinitialise"] is True
    assert "reinitialise" not in later.params
    assert "reinitialise" not in unnormalised.params


def test_steps_longer_than_the_weights_begin_again_at_the_least_lower_rate() -> None:
    (lost,), (fast,) = (answer(observe({"R1": "high"}, ema=ratio)) for ratio in (0.3, 0.1))
    assert lost.params == {"lr": pytest.approx(0.1 / 3), "reinitialise": True}
    assert fast.params == {"lr": pytest.approx(0.01)}


def test_an_update_ratio_of_whole_epochs_says_nothing_of_single_steps() -> None:
    (decision,) = answer(observe({"R1": "high"}, ema=0.3, rules=DOCUMENT))
    assert "reinitialise" not in decision.params


def test_the_others_act_while_r7_waits_for_clipping_to_show() -> None:
    clipped = Settings(lr=0.1, batch_size=64, clip_norm=1.0)
    seen = observe({"R7": "high", "R5": "high"}, settings=clipped, decisions=(past("R7", 3),))
    assert [(d.cites[0], d.acts) for d in answer(seen)] == [("R7", False), ("R5", True)]


def test_r7_waits_while_clipping_bounds_the_steps() -> None:
    clipped = Settings(lr=0.1, batch_size=64, clip_norm=1.0)
    done = (past("R7", 3),)
    waiting = answer(observe({"R7": "high", "R1": "high"}, settings=clipped, decisions=done))
    assert [decision.acts for decision in waiting] == [False, False]
    for acting in (
        observe({"R7": "high"}, decisions=done),
        observe({"R7": "not_finite"}, settings=clipped, decisions=done),
        observe({"R7": "high"}, settings=clipped, decisions=(past("R7", 0),)),
        observe(
            {"R7": "high"},
            settings=clipped,
            decisions=done,
            history=(signals(0, val_loss=1e9),),
        ),
    ):
        assert answer(acting)[0].direction == "decrease_lr"


@pytest.mark.parametrize(("side", "away"), [("low", 1.1), ("high", 1 / 1.1)])
def test_learning_rate_aims_at_the_middle_of_the_band(side: str, away: float) -> None:
    edge = {"low": CALIBRATED.r1_low, "high": CALIBRATED.r1_high}[side]
    (decision,) = answer(observe({"R1": side}, ema=edge / away))
    middle = math.sqrt(CALIBRATED.r1_low * CALIBRATED.r1_high)
    factor = min(10.0, max(3.0, max(middle, edge / away) / min(middle, edge / away)))
    assert max(decision.params["lr"], 0.1) / min(decision.params["lr"], 0.1) == pytest.approx(
        factor
    )


def test_capacity_waits_while_the_learning_rate_is_outside_of_its_band() -> None:
    stalled, rate = answer(observe({"R4": "stalled", "R1": "low"}))
    assert not stalled.acts
    assert rate.direction == "increase_lr"
    plateau = answer(observe({"R4": "stalled", "R1": "plateau"}))
    assert [decision.acts for decision in plateau] == [True, False]


def test_the_learning_rate_is_r7_s_alone_while_gradients_explode() -> None:
    seen = observe(
        {"R7": "high", "R1": "low", "R2": "high"}, settings=Settings(lr=2e-8, batch_size=8)
    )
    assert [(d.cites[0], d.acts) for d in answer(seen)] == [
        ("R7", False),  # at its limit
        ("R1", False),
        ("R2", True),
    ]


def test_capacity_waits_until_a_remedy_of_r1_can_show() -> None:
    fired = {"R4": "stalled"}
    assert not answer(observe(fired, decisions=(past("R1", 3),)))[0].acts
    assert answer(observe(fired, decisions=(past("R1", 2),)))[0].acts


def test_second_swap_for_vanishing_gradients_leaves_the_others_to_act() -> None:
    swap = Decision("architecture_change", ("R6",), "swap_activation", {"to": "prelu"}, "before")
    swapped = (PastDecision(1, 0, "policy", swap, "applied"),)
    vanishing, rate = answer(observe({"R6": "low", "R1": "low"}, decisions=swapped))
    assert not vanishing.acts
    assert rate.direction == "increase_lr"


@pytest.mark.parametrize("rule", ["R1", "R3"])
def test_plateau_is_counted_anew_from_a_change_of_the_model(rule: str) -> None:
    edit = Decision("architecture_change", ("R6",), "add_norm", {}, "before")
    fresh = Decision(
        "hyperparameter_change", ("R7",), "decrease_lr", {"lr": 0.1, "reinitialise": True}, "before"
    )
    falling = tuple(signals(epoch, val_loss=5.0 - epoch * 0.1) for epoch in range(6))
    flat = tuple(signals(epoch, val_loss=5.0) for epoch in range(20))
    for change in (edit, fresh):
        done = (PastDecision(1, 1, "policy", change, "applied"),)
        waiting = answer(observe({rule: "plateau"}, decisions=done, history=falling))
        assert not waiting[0].acts
        assert answer(observe({rule: "plateau"}, history=falling))[0].acts
        assert answer(observe({rule: "plateau"}, decisions=done, history=flat, epoch=19))[0].acts


def test_plateau_waits_no_longer_than_a_deferral_may_last() -> None:
    edit = Decision("architecture_change", ("R6",), "add_norm", {}, "before")
    defer = Decision(NO_ACTION, ("R3",), "defer", {}, "before")
    falling = tuple(signals(epoch, val_loss=5.0 - epoch * 0.1) for epoch in range(11))
    for first, acts in ((5, False), (4, True)):
        done = (
            PastDecision(1, 1, "policy", edit, "applied"),
            PastDecision(2, first, "policy", defer, None),
        )
        (decision,) = answer(observe({"R3": "plateau"}, decisions=done, history=falling, epoch=10))
        assert decision.acts is acts


@pytest.mark.parametrize(("rule", "patience"), [("R1", 7), ("R3", 9)])
def test_plateau_waits_no_longer_than_its_patience_behind_a_change(
    rule: str, patience: int
) -> None:
    edit = Decision("architecture_change", ("R6",), "add_norm", {}, "before")
    done = (PastDecision(1, 1, "policy", edit, "applied"),)
    for epoch, acts in ((1 + patience, False), (2 + patience, True)):
        falling = tuple(signals(each, val_loss=5.0 - each * 0.1) for each in range(epoch + 1))
        seen = observe({rule: "plateau"}, decisions=done, history=falling, epoch=epoch)
        assert answer(seen)[0].acts is acts


def test_playbook_acts_on_the_first_rule_and_defers_the_others_to_it() -> None:
    decisions = answer(observe({"R1": "high", "R5": "high", "R2": "low", "R3": "plateau"}))
    assert [d.cites[0] for d in decisions] == ["R5", "R1", "R2", "R3"]
    assert [d.acts for d in decisions] == [True, False, False, False]
    assert all(d.params == {"deferred_to": "R5"} for d in decisions[1:])


def test_r2_waits_one_epoch_for_r1_and_nothing_overtakes_it() -> None:
    fired = {"R2": "low", "R3": "plateau"}
    waiting = answer(observe(fired, decisions=(past("R1", 4),)))
    assert [d.event_type for d in waiting] == [NO_ACTION, NO_ACTION]
    acting = answer(observe(fired, decisions=(past("R1", 3),)))
    assert acting[0].direction == "increase_batch_size"


def test_gradients_are_accumulated_when_memory_is_full() -> None:
    (decision,) = answer(observe({"R2": "low"}, max_batch_size=100))
    assert (decision.direction, decision.params) == ("accumulate_gradients", {"accumulation": 2})


def test_no_batch_is_asked_for_that_the_training_set_cannot_fill() -> None:
    (decision,) = answer(observe({"R2": "low"}, train_examples=100))
    assert decision.event_type == NO_ACTION


def test_vanishing_gradients_get_norms_then_shortcuts_then_another_activation() -> None:
    bare = dataclasses.replace(SPEC, blocks=(BlockSpec(8, False, "none", "relu"),))
    half = dataclasses.replace(SPEC, blocks=(BlockSpec(8, False, "batch", "relu"),))
    found = [answer(observe({"R6": "low"}, spec=spec))[0].direction for spec in (bare, half, SPEC)]
    assert found == ["add_norm", "add_residual", "swap_activation"]


def test_capacity_grows_in_depth_then_in_width() -> None:
    deep = dataclasses.replace(SPEC, blocks=SPEC.blocks * PlaybookPolicy().numbers.most_blocks)
    assert answer(observe({"R4": "stalled"}, spec=deep))[0].direction == "widen"


def test_document_profile_waits_for_the_lagging_average_and_lets_others_act() -> None:
    seen = observe({"R5": "high", "R1": "high"}, rules=DOCUMENT, decisions=(past("R5", 4),))
    assert [(d.cites[0], d.acts) for d in answer(seen)] == [("R5", False), ("R1", True)]


sides = st.fixed_dictionaries(
    {}, optional={rule: st.sampled_from(sorted(DIRECTIONS[rule])) for rule in RULES}
)


@given(
    sides.filter(bool),
    st.floats() | st.none(),
    st.floats(1e-8, 10.0),
    st.integers(1, 512),
    st.sampled_from([CALIBRATED, DOCUMENT]),
    st.lists(st.tuples(st.sampled_from(RULES), st.integers(0, 5)), max_size=4),
)
def test_playbook_answers_every_due_rule_once_and_never_outside_the_bounds(
    fired: dict[str, str], ema: float | None, lr: float, batch: int, rules: Any, done: Any
) -> None:
    ema = ema if ema is None or math.isfinite(ema) else None
    seen = observe(
        fired,
        ema=ema,
        settings=Settings(lr=lr, batch_size=batch),
        rules=rules,
        decisions=tuple(past(rule, epoch) for rule, epoch in done),
    )
    decisions = answer(seen)
    assert [d.cites[0] for d in decisions] == list(seen.due)
    assert sum(d.acts for d in decisions) <= 1


def test_nothing_policy_answers_and_never_acts() -> None:
    seen = observe({"R7": "high", "R3": "plateau"})
    decisions = NothingPolicy().decide(seen)
    assert [d.cites[0] for d in decisions] == ["R7", "R3"]
    assert not any(d.acts for d in decisions)


@given(
    sides.filter(bool),
    st.floats(1e-8, 10.0),
    st.integers(1, 512),
    st.integers(0, 20),
)
def test_random_and_network_policy_answer_every_due_rule_once_and_never_outside_the_bounds(
    fired: dict[str, str], lr: float, batch: int, epoch: int
) -> None:
    seen = observe(fired, settings=Settings(lr=lr, batch_size=batch), epoch=epoch)
    for policy in (RandomPolicy(), NetworkPolicy(), ACTS):
        decisions = policy.decide(seen)
        for decision in decisions:
            validate_decision(parse_decision(decision.to_dict()), seen)
        assert [decision.cites[0] for decision in decisions] == list(seen.due)


def test_random_policy_draws_alike_for_the_same_training_whatever_its_run_id() -> None:
    fired = {"R1": "high", "R2": "low", "R5": "high", "R6": "low"}
    history = tuple(signals(epoch, val_loss=2.0 + epoch) for epoch in range(30))
    drawn = [
        [
            RandomPolicy(seed).decide(
                observe(fired, run_id=run_id, epoch=epoch, history=history[: epoch + 1])
            )
            for epoch in range(30)
        ]
        for seed, run_id in ((0, "a"), (0, "b"), (1, "a"))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    directions = {each.direction for epoch in drawn[0] for each in epoch}
    assert {"defer", "decrease_lr", "warm_up_lr", "swap_activation", "add_norm"} <= directions


def test_recorded_policy_says_again_what_was_said_in_that_epoch_and_who_said_it() -> None:
    by_human = dataclasses.replace(past("R1", 5), source="human")
    policy = RecordedPolicy([past("R7", 5), by_human, past("R7", 6)], {"name": "playbook"})
    assert policy.decide(observe({"R7": "high"})) == [
        Said(past("R7", 5).decision, "policy"),
        Said(by_human.decision, "human"),
    ]
    assert policy.describe() == {"name": "playbook"}


def test_unknown_policy_is_refused_with_the_list_of_those_that_exist() -> None:
    with pytest.raises(PolicyError, match="playbook, rescue"):
        create_policy("oracle")
    assert all(create_policy(name).name == name for name in POLICIES)


def test_playbook_document_has_a_page_for_every_rule() -> None:
    text = files("policies.prompts").joinpath("playbook.md").read_text(encoding="utf-8")
    for rule in PRECEDENCE:
        page = text.split(f"## {rule}:")[1].split("\n## ")[0]
        for part in ("**Symptoms.**", "**Cause.**", "**Remedy.**", "**Caveat.**"):
            assert part in page
        named = {direction for known in DIRECTIONS[rule].values() for direction in known}
        assert any(f"`{direction}`" in page for direction in named)


# The rescue policy


def rescue(
    fired: dict[str, str],
    ema: float,
    policy: type[PlaybookPolicy] = RescuePolicy,
    **changes: Any,
) -> list[tuple[str, str, Any]]:
    told: dict[str, Any] = {"rules": RELATIVE, "back": (FRESH, 2, 5), "tries": 8, **changes}
    seen = observe(fired, ema=ema, **told)
    said = policy().decide(seen)
    for each in said:
        validate_decision(parse_decision(each.to_dict()), seen)
    return [(each.cites[0], each.direction, dict(each.params)) for each in said]


def test_rescue_brings_rate_and_batch_to_where_they_should_be_in_one_step() -> None:
    ((rule, direction, params),) = rescue({"R1": "high"}, 0.08)
    assert (rule, direction, params["epoch"]) == ("R1", "go_back", FRESH)
    assert params["lr"] == pytest.approx(0.1 * TARGET / 0.08)
    ((_, _, params),) = rescue({"R1": "low"}, 4e-5)
    assert params == {"epoch": 5, "lr": 10.0}  # the most that a rate can be
    ((rule, direction, params),) = rescue({"R2": "high"}, 6.5)
    assert (rule, direction) == ("R2", "go_back")
    assert params == {"epoch": 5, "lr": 0.1, "batch_size": 6}  # 64 * sqrt(0.14 * 2.5) / 6.5


def test_rescue_bounds_steps_that_left_nothing_of_the_weights() -> None:
    assert rescue({"R1": "high"}, 1.4) == [
        ("R1", "go_back", {"epoch": FRESH, "lr": 0.1, "clip_norm": 1.0})
    ]
    bounded = Settings(lr=0.1, batch_size=64, clip_norm=1.0)
    ((_, _, params),) = rescue({"R1": "high"}, 1.4, settings=bounded)
    assert params["lr"] == pytest.approx(0.1 * TARGET / 1.4)
    ((_, _, params),) = rescue({"R1": "high"}, 1.4, rules=RELATIVE_1)
    assert set(params) == {"epoch", "lr"}


def told(**changes: Any) -> tuple[EpochSignals, ...]:
    """Return the history of one epoch."""
    return (dataclasses.replace(signals(5, val_loss=2.0), **changes),)


def test_rescue_draws_weights_anew_that_outgrew_what_they_began_as() -> None:
    fresh = [("R1", "go_back", {"epoch": FRESH, "lr": 0.1, "clip_norm": 1.0})]
    assert rescue({"R1": "high"}, 0.08, history=told(epoch_update_ratio=31.0)) == fresh
    for change in (30.0, None):  # a rate that is too high
        ((_, _, params),) = rescue({"R1": "high"}, 0.08, history=told(epoch_update_ratio=change))
        assert params["lr"] == pytest.approx(0.1 * TARGET / 0.08)
    watched = WatchedModel("Net", 1, "0" * 64, (), ("go_back", "decrease_lr", "stop"))
    grown = told(epoch_update_ratio=31.0)  # of a model that keeps its own first weights
    ((_, _, params),) = rescue({"R1": "high"}, 0.08, history=grown, spec=watched)
    assert params["lr"] == pytest.approx(0.1 * TARGET / 0.08)


def test_rescue_shortens_steps_less_where_the_epoch_learned() -> None:
    ((_, _, params),) = rescue({"R1": "high"}, 0.16, history=told(train_loss=2.3))
    assert params["lr"] == pytest.approx(0.1 * LEARNING / 0.16)
    for less in ({"train_loss": 2.2}, {"train_loss": math.nan}, {"val_loss": math.nan}):
        ((_, _, params),) = rescue(
            {"R1": "high"}, 0.16, history=told(**{"train_loss": 2.3, **less})
        )
        assert params["lr"] == pytest.approx(0.1 * TARGET / 0.16)
    ((_, _, params),) = rescue({"R1": "high"}, 0.16, history=told(train_loss=2.3), rules=RELATIVE_3)
    assert params["lr"] == pytest.approx(0.1 * TARGET / 0.16)


@pytest.mark.parametrize("rule", ["R5", "R6"])
def test_rescue_begins_again_where_long_steps_came_before_the_damage(rule: str) -> None:
    side = {"R5": "high", "R6": "low"}[rule]
    early = dataclasses.replace(signals(1, val_loss=2.0), update_ratio=0.08)
    seen: dict[str, Any] = {"history": (early, *told(update_ratio=0.01))}
    ((_, direction, params),) = rescue({rule: side}, 0.5, **seen)
    assert (direction, params) == ("go_back", {"epoch": FRESH, "lr": pytest.approx(0.025)})
    # Controls: steps in the band, rules that told of them, and a return since then.
    usual = ("go_back", {"epoch": FRESH, "lr": 0.1})
    back = Decision("hyperparameter_change", ("R1",), "go_back", {"epoch": -1, "lr": 0.1}, "so")
    for other in (
        {"history": told(update_ratio=0.03)},
        {**seen, "rules": RELATIVE_3},
        {**seen, "decisions": (PastDecision(1, 3, "policy", back, "applied"),)},
    ):
        ((_, direction, params),) = rescue({rule: side}, 0.5, **other)
        assert (direction, params) == usual


def test_normalisation_answers_a_gradient_that_vanishes_in_all_layers_alike() -> None:
    deep = dataclasses.replace(
        SPEC, norm="none", blocks=tuple(dataclasses.replace(b, norm="none") for b in SPEC.blocks)
    )
    quiet = {"history": told(max_layer_grad_norm=1e-4), "spec": deep}
    for policy in (RescuePolicy, PlaybookPolicy):
        for side in ("low", "guessing"):
            assert rescue({"R1": side}, 4e-5, policy, **quiet) == [("R1", "add_norm", {})]
            edit, other = rescue({"R6": "low", "R1": side}, 4e-5, policy, **quiet)
            assert edit == ("R6", "add_norm", {})
            # The model that R6 edits begins with fresh weights, as R1 asks.
            assert other[1] == ("go_back" if policy is RescuePolicy else "defer")
        loud = {**quiet, "history": told(max_layer_grad_norm=0.3)}
        assert rescue({"R1": "guessing"}, 4e-5, policy, **loud) == [("R1", "add_norm", {})]
        # Controls: a rate that is too low, layers that are normalised, rules without this remedy.
        for control in (loud, {**quiet, "spec": SPEC}, {**quiet, "rules": RELATIVE_3}):
            ((_, direction, _),) = rescue({"R1": "low"}, 4e-5, policy, **control)
            assert direction in ("go_back", "increase_lr")


@pytest.mark.parametrize(
    ("ratio", "size"),
    [(None, 6), (0.0, 6), (1e-300, 6), (0.004, 6), (0.01, 20)]
    + [(least, 64) for least in (0.0179, 0.5, math.inf, math.nan)],  # and a waived R7
)
def test_rescue_keeps_long_steps_from_growing_with_the_noise(
    ratio: float | None, size: int
) -> None:
    ((_, direction, params),) = rescue({"R2": "high"}, 6.5, history=told(update_ratio=ratio))
    if size == 64:  # nothing smaller is allowed, so the playbook's halving
        assert (direction, params["batch_size"]) == ("decrease_batch_size", 32)
    else:
        assert (direction, params["batch_size"]) == ("go_back", size)


def test_rescue_tries_bounded_steps_and_then_shorter_ones_where_a_model_guesses() -> None:
    assert rescue({"R1": "guessing"}, 0.004) == [
        ("R1", "go_back", {"epoch": FRESH, "lr": 0.1, "clip_norm": 1.0})
    ]
    bounded = Settings(lr=0.1, batch_size=64, clip_norm=1.0)
    ((_, _, params),) = rescue({"R1": "guessing"}, 0.004, settings=bounded)
    assert params == {"epoch": FRESH, "lr": 0.01}
    ((_, direction, _),) = rescue({"R1": "guessing"}, 0.004, back=())
    assert direction == "defer"


def test_rescue_does_not_go_back_to_first_weights_that_were_damaged_already() -> None:
    relu = WatchedActivation("0", "relu")
    watched = WatchedModel("Net", 1, "0" * 64, (relu,), ("go_back", "swap_activation", "stop"))

    def answer(**changes: Any) -> str:
        ((_, direction, _),) = rescue({"R5": "high"}, 0.9, back=(FRESH,), **changes)
        return direction

    assert answer(spec=watched, epoch=0) == "swap_activation"
    assert answer(spec=watched, epoch=1) == "swap_activation"  # the first epoch was unsound, too
    history = tuple(signals(epoch, val_loss=2.0) for epoch in (0, 1))
    sound: dict[str, Any] = {"back": (FRESH, 0), "history": history}
    ((_, direction, _),) = rescue({"R5": "high"}, 0.9, **sound, spec=watched, epoch=1)
    assert direction == "go_back"
    sound["history"] = (history[0], signals(1, val_loss=1.9))
    ((_, direction, _),) = rescue({"R5": "high"}, 0.9, **sound, spec=watched, epoch=1)
    assert direction == "swap_activation"  # the state to go back to is worse
    assert answer(epoch=0) == "go_back"  # to weights that are drawn anew


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_rescue_bounds_gradients_by_what_they_were_before(scale: float) -> None:
    early = [
        dataclasses.replace(signals(epoch, val_loss=2.0), max_layer_grad_norm=norm * scale)
        for epoch, norm in enumerate((0.4, 0.5, 40.0, 0.6, 0.7))
    ]
    ((_, direction, params),) = rescue({"R7": "high"}, 90.0, history=(*early, *told()))
    assert (direction, params["lr"]) == ("go_back", 0.1)
    assert params["clip_norm"] == pytest.approx(0.6 * scale * math.sqrt(RELATIVE.r7_high))


@pytest.mark.parametrize("norm", [None, math.nan, math.inf, 0.0, 1e-9, 1e9])
def test_rescue_bounds_gradients_by_one_where_nothing_was_measured_before(
    norm: float | None,
) -> None:
    early = dataclasses.replace(signals(4, val_loss=2.0), max_layer_grad_norm=norm)
    for history in ((early, *told()), told()):
        ((_, _, params),) = rescue({"R7": "high"}, 90.0, history=history)
        assert params["clip_norm"] == 1.0


def test_rescue_leaves_short_steps_alone_in_a_loop_of_ones_own_that_learns() -> None:
    watched = WatchedModel("Net", 1, "0" * 64, (), ("go_back", "increase_lr", "stop"))

    def answer(last: float, spec: Any = watched) -> str:
        history = (signals(4, val_loss=2.0), signals(5, val_loss=last))
        ((_, direction, _),) = rescue({"R1": "low"}, 4e-5, history=history, spec=spec)
        return direction

    assert answer(1.95) == "defer"
    for last in (1.97, 2.5, math.nan):
        assert answer(last) == "go_back"
    assert answer(1.95, SPEC) == "go_back"  # whose first weights are as they should be


def test_rescue_leaves_short_steps_alone_if_the_first_epoch_learned_or_a_loss_came_back_up() -> (
    None
):
    watched = WatchedModel("Net", 1, "0" * 64, (), ("go_back", "increase_lr", "stop"))
    for train_loss, losses, expected in (
        (2.01, (2.0, 2.0), "go_back"),
        (2.1, (2.0, 2.0), "defer"),
        (2.01, (2.0, 1.9, 2.2), "defer"),
    ):
        history = [signals(each, val_loss=loss) for each, loss in enumerate(losses, start=3)]
        history[0] = dataclasses.replace(history[0], train_loss=train_loss)
        ((_, direction, _),) = rescue({"R1": "low"}, 4e-5, history=tuple(history), spec=watched)
        assert direction == expected


def test_rescue_gives_an_edited_model_fresh_weights_where_a_second_rule_asks_for_them() -> None:
    bare = dataclasses.replace(SPEC, norm="none", blocks=(BlockSpec(8, True, "none", "relu"),))
    assert rescue({"R6": "low", "R1": "low"}, 1e-5, spec=bare) == [
        ("R6", "add_norm", {}),
        ("R1", "go_back", {"epoch": FRESH, "lr": 0.1}),
    ]
    warming = Settings(lr=0.1, batch_size=64, schedule={"kind": "warm_up", "epochs": 9, "since": 0})
    _, fresh = rescue({"R6": "low", "R1": "high"}, 0.08, spec=bare, settings=warming)
    assert (fresh[1], fresh[2]["epoch"]) == ("go_back", FRESH)
    (only,) = rescue({"R6": "low"}, 1e-5, spec=bare)
    assert only[1] == "add_norm"
    assert [each[1] for each in rescue({"R6": "low", "R1": "low"}, 1e-5)] == ["go_back", "defer"]


def test_what_damages_the_same_settings_again_is_answered_otherwise() -> None:
    back = Decision.of(("R5",), "go_back", {"epoch": FRESH, "lr": 0.1}, "because")
    once: dict[str, Any] = {"decisions": (PastDecision(1, 2, "policy", back, "applied"),)}
    assert rescue({"R5": "high"}, 0.6)[0][1] == "go_back"
    assert rescue({"R5": "high"}, 0.6, **once)[0][1] == "swap_activation"


def tried(fired: dict[str, str], ema: float, **changes: Any) -> tuple[str, Any]:
    ((_, direction, params),) = rescue(fired, ema, TrialsPolicy, **changes)
    return direction, params


def _went_back(rule: str, direction: str = "go_back", **params: Any) -> dict[str, Any]:
    said = Decision.of((rule,), direction, {"epoch": FRESH, **params}, "because")
    return {"decisions": (PastDecision(1, 2, "policy", said, "applied"),)}


def test_trials_try_rates_where_rescue_would_guess_and_answer_as_it_does_elsewhere() -> None:
    unbounded = {"epoch": FRESH, "rates": [0.1, 0.01], "clip_norm": 1.0}
    assert tried({"R1": "high"}, 1.4) == ("try_rates", unbounded)
    assert tried({"R1": "guessing"}, 0.004) == ("try_rates", unbounded)
    bounded = Settings(lr=0.1, batch_size=64, clip_norm=1.0)
    rates = [pytest.approx(0.01), pytest.approx(0.001)]
    assert tried({"R1": "guessing"}, 0.004, settings=bounded) == (
        "try_rates",
        {"epoch": FRESH, "rates": rates},
    )
    once = _went_back("R7", lr=0.1, clip_norm=1.0)
    assert tried({"R7": "not_finite"}, 40.0, settings=bounded, **once)[0] == "try_rates"
    assert tried({"R1": "low"}, 4e-5, **_went_back("R1", lr=0.1))[1]["rates"] == [1.0, 10.0]
    for fired, ema in (({"R1": "high"}, 0.08), ({"R1": "low"}, 4e-5), ({"R7": "high"}, 40.0)):
        assert [(way, params) for _, way, params in rescue(fired, ema)] == [tried(fired, ema)]


def test_trials_are_made_once_for_a_rule_and_only_where_epochs_are_left() -> None:
    assert (
        tried({"R1": "guessing"}, 0.004, **_went_back("R1", "try_rates", rates=[0.1, 0.01]))[0]
        == "go_back"
    )
    assert tried({"R1": "guessing"}, 0.004, tries=0)[0] == "go_back"
    assert len(tried({"R1": "guessing"}, 0.004, tries=12)[1]["rates"]) == 3
    assert tried({"R1": "guessing"}, 0.004, rules=RELATIVE_2)[0] == "go_back"
    assert tried({"R1": "guessing"}, 0.004, back=())[0] == "defer"
