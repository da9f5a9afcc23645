"""The rules against their definitions, on histories written out by hand."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregates.rules import (
    CALIBRATED,
    DOCUMENT,
    RULES,
    AppliedRemedy,
    RuleEvaluation,
    RulesConfig,
    evaluate_rules,
    fired_in_precedence,
)
from aggregates.signals import EpochSignals

HEALTHY = EpochSignals(
    epoch=0,
    train_loss=1.0,
    train_accuracy=0.5,
    val_loss=1.0,
    gradients_finite=True,
    max_layer_grad_norm=1.0,
    min_layer_grad_norm=0.1,
    update_ratio=math.sqrt(CALIBRATED.r1_low * CALIBRATED.r1_high),
    epoch_update_ratio=1e-3,
    signal_to_noise=math.sqrt(CALIBRATED.r2_low * CALIBRATED.r2_high),
    norm_noise_scale=500.0,
    dead_share=0.0,
    sparsity=0.1,
)


def history(epochs: int, **changes: Any) -> list[EpochSignals]:
    """Return a learning run: losses fall and accuracy climbs unless `changes` says otherwise."""
    return [
        dataclasses.replace(
            HEALTHY,
            epoch=epoch,
            **{
                "val_loss": 1.0 - 0.05 * epoch,
                "train_accuracy": 0.3 + 0.05 * epoch,
                **{
                    name: value[epoch] if isinstance(value, list) else value
                    for name, value in changes.items()
                },
            },
        )
        for epoch in range(epochs)
    ]


def fired(
    signals: list[EpochSignals],
    config: RulesConfig = CALIBRATED,
    remedies: Sequence[AppliedRemedy] = (),
) -> dict[str, str | None]:
    evaluations = evaluate_rules(signals, remedies, config)
    return {rule: found.side for rule, found in evaluations.items() if found.fired}


@pytest.mark.parametrize("config", [CALIBRATED, DOCUMENT])
def test_rules_stay_silent_when_the_run_is_healthy(config: RulesConfig) -> None:
    assert fired(history(8), config) == {}


@pytest.mark.parametrize(
    ("rule", "signal", "value", "side"),
    [
        ("R1", "update_ratio", CALIBRATED.r1_high * 2, "high"),
        ("R1", "update_ratio", CALIBRATED.r1_low / 2, "low"),
        ("R2", "signal_to_noise", CALIBRATED.r2_low / 2, "low"),
        ("R2", "signal_to_noise", -1.0, "low"),
        ("R2", "signal_to_noise", CALIBRATED.r2_high * 2, "high"),
        ("R5", "dead_share", CALIBRATED.r5_high + 0.1, "high"),
        ("R6", "min_layer_grad_norm", CALIBRATED.r6_low / 2, "low"),
        ("R7", "max_layer_grad_norm", CALIBRATED.r7_high * 2, "high"),
    ],
)
def test_rule_fires_in_the_third_epoch_when_its_signal_stays_outside(
    rule: str, signal: str, value: float, side: str
) -> None:
    signals = history(3, **{signal: value})
    assert fired(signals[:2]) == {}
    assert fired(signals) == {rule: side}


def test_document_profile_reads_the_documents_own_quantities() -> None:
    signals = history(3, sparsity=0.5, epoch_update_ratio=0.2, norm_noise_scale=12.0)
    assert fired(signals, DOCUMENT) == {"R1": "high", "R2": "low", "R5": "high"}
    assert fired(signals, CALIBRATED) == {}


def test_single_spike_does_not_fire_when_the_average_stays_inside() -> None:
    assert fired(history(6, dead_share=[0.0, 0.0, 1.0, 0.0, 0.0, 0.0])) == {}


def test_average_follows_its_recurrence() -> None:
    values = [2.0, 50.0, 2.0]
    found = evaluate_rules(history(3, max_layer_grad_norm=values), [], CALIBRATED)["R7"]
    assert found.ema == pytest.approx(0.9 * (0.9 * 2.0 + 0.1 * 50.0) + 0.1 * 2.0)


@pytest.mark.parametrize("nothing", [math.nan, math.inf, None])
def test_rule_still_fires_when_one_epoch_has_no_finite_value(nothing: float | None) -> None:
    values = [0.9, nothing, 0.9, 0.9]
    signals = history(4, dead_share=values)
    assert fired(signals[:3]) == {}
    assert fired(signals) == {"R5": "high"}


def test_changing_sides_starts_the_window_afresh() -> None:
    high, low = CALIBRATED.r2_high * 2, -CALIBRATED.r2_high * 40
    assert fired(history(4, signal_to_noise=[high, high, low, low])) == {}


def test_plateau_fires_r1_first_and_r3_after_its_own_patience() -> None:
    losses = [1.0] * (CALIBRATED.r3_patience + 1)
    signals = history(len(losses), val_loss=losses)
    assert fired(signals[: CALIBRATED.r1_patience]) == {}
    assert fired(signals[: CALIBRATED.r1_patience + 1]) == {"R1": "plateau"}
    assert fired(signals) == {"R1": "plateau", "R3": "plateau"}


def test_diverged_validation_loss_counts_as_no_progress() -> None:
    losses = [1.0] + [math.nan] * CALIBRATED.r3_patience
    assert "R3" in fired(history(len(losses), val_loss=losses))


def test_r4_fires_when_accuracy_stands_still_below_its_ceiling() -> None:
    assert fired(history(4, train_accuracy=0.6)) == {"R4": "stalled"}
    assert fired(history(3, train_accuracy=0.6)) == {}
    assert fired(history(4, train_accuracy=CALIBRATED.r4_ceiling)) == {}


def test_r4_stays_silent_while_activations_are_dead() -> None:
    assert fired(history(4, train_accuracy=0.6, dead_share=0.9)) == {"R5": "high"}


@pytest.mark.parametrize(
    "change", [{"train_loss": math.nan}, {"train_loss": math.inf}, {"gradients_finite": False}]
)
def test_r7_fires_at_once_when_something_is_not_finite(change: dict[str, Any]) -> None:
    assert fired(history(1, **change)) == {"R7": "not_finite"}


def test_remedy_starts_its_rules_window_afresh_in_the_calibrated_profile_only() -> None:
    signals = history(6, dead_share=0.9, sparsity=0.9)
    remedies = [AppliedRemedy(epoch=3, rule="R5")]
    assert fired(signals, remedies=remedies) == {}
    assert fired(signals, remedies=[AppliedRemedy(epoch=3, rule="R1")]) == {"R5": "high"}
    assert "R5" in fired(signals, DOCUMENT, remedies)


def test_precedence_is_stability_capacity_tuning_process() -> None:
    everything = {rule: RuleEvaluation(rule, True, None, None, None, 3) for rule in RULES}
    assert fired_in_precedence(everything) == ("R7", "R6", "R4", "R5", "R1", "R2", "R3")


def test_profiles_are_frozen_and_named_by_their_hash() -> None:
    assert CALIBRATED.hash != DOCUMENT.hash
    assert dataclasses.replace(CALIBRATED, r7_high=11.0).hash != CALIBRATED.hash
    with pytest.raises(dataclasses.FrozenInstanceError):
        CALIBRATED.r7_high = 11.0  # type: ignore[misc]


numbers = st.floats() | st.none()


@given(
    st.lists(
        st.builds(
            EpochSignals,
            epoch=st.just(0),
            train_loss=st.floats(),
            train_accuracy=st.floats(),
            val_loss=st.floats(),
            gradients_finite=st.booleans(),
            max_layer_grad_norm=numbers,
            min_layer_grad_norm=numbers,
            update_ratio=numbers,
            epoch_update_ratio=numbers,
            signal_to_noise=numbers,
            norm_noise_scale=numbers,
            dead_share=numbers,
            sparsity=numbers,
        ),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(RULES)), max_size=4),
    st.sampled_from([CALIBRATED, DOCUMENT]),
)
def test_rules_answer_whatever_was_measured(
    signals: list[EpochSignals], remedies: list[tuple[int, str]], config: RulesConfig
) -> None:
    numbered = [dataclasses.replace(each, epoch=epoch) for epoch, each in enumerate(signals)]
    applied = [AppliedRemedy(epoch, rule) for epoch, rule in remedies]
    found = evaluate_rules(numbered, applied, config)
    assert tuple(found) == RULES
    assert all(each.fired == (each.side is not None) for each in found.values())
    again = evaluate_rules(numbered, applied, config)
    assert [repr(each) for each in again.values()] == [repr(each) for each in found.values()]
