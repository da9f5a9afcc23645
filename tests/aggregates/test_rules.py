"""The rules against their definitions, on histories written out by hand."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import plain_rules
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from synthetic import measured

from aggregates.errors import MeasurementError
from aggregates.firing import RuleMemory, evaluate_epochs, evaluate_rules
from aggregates.noise import NoiseProbes, pool_noise
from aggregates.rulebook import fired_in_precedence
from aggregates.rulebook.r2 import _pooled
from aggregates.rules import CALIBRATED as NEWEST
from aggregates.rules import (
    CALIBRATED_1,
    DOCUMENT,
    PROFILES,
    RELATIVE,
    RELATIVE_1,
    RELATIVE_2,
    RELATIVE_3,
    VERSIONS,
    AppliedRemedy,
    RuleEvaluation,
    RulesConfig,
    version_of,
)
from aggregates.rules import FIRST_RULES as RULES
from aggregates.signals import EpochSignals, signals_of

# With averages, intervals of single epochs and wide limits, to look at these one by one.
CALIBRATED = dataclasses.replace(
    CALIBRATED_1,
    band_needs_value=True,
    r2_needs_interval=True,
    r2_stall_epochs=2,
    r2_stall_gain=0.03,
    r7_validation=True,
    r7_at_once=300.0,
)

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
    """Return a learning run: losses fall and accuracy climbs unless `changes` says otherwise.

    The interval of the signal-to-noise ratio is the value alone unless `changes` names its ends.
    """
    ends = ("signal_to_noise_low", "signal_to_noise_high")
    noise = changes.get("signal_to_noise", HEALTHY.signal_to_noise)
    changes = {**dict.fromkeys(ends, noise), **changes}
    return [
        dataclasses.replace(
            HEALTHY,
            epoch=epoch,
            **{
                "train_loss": 1.0 if "signal_to_noise" in changes else 0.9**epoch,
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


@pytest.mark.parametrize(
    ("signal", "values"),
    [
        ("max_layer_grad_norm", [100.0, 0.4, 0.1, 0.01]),
        ("dead_share", [1.0, 0.9, 0.9, 0.0]),
        ("update_ratio", [2.0, 0.02, 0.02, 1e-3]),
        ("min_layer_grad_norm", [1e-5, 1e-5, 1e-5, 4e-3]),
        ("signal_to_noise", [90.0, 90.0, 90.0, 1.0]),
        ("signal_to_noise", [0.01, 0.01, 0.01, 0.2]),
    ],
)
def test_band_rule_is_silent_when_the_value_is_inside_and_the_average_lags(
    signal: str, values: list[float]
) -> None:
    signals = history(4, **{signal: values})
    assert fired(signals, CALIBRATED_1)
    assert fired(signals) == {}


def test_band_streak_counts_epochs_in_which_value_and_average_are_outside() -> None:
    inside, outside = 0.0, 1.0
    signals = history(6, dead_share=[outside, outside, inside, outside, outside, outside])
    found = [evaluate_rules(signals[: n + 1], [], CALIBRATED)["R5"] for n in range(6)]
    assert [each.streak for each in found] == [1, 2, 0, 1, 2, 3]
    assert [each.fired for each in found] == [False] * 5 + [True]


def test_band_rule_is_silent_in_an_epoch_without_a_value() -> None:
    signals = history(5, dead_share=[0.9, 0.9, 0.9, None, 0.9])
    assert fired(signals[:3]) == {"R5": "high"}
    assert fired(signals[:4]) == {}
    assert fired(signals[:4], CALIBRATED_1) == {"R5": "high"}
    assert fired(signals) == {"R5": "high"}


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


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_r7_fires_at_once_when_the_validation_loss_is_not_finite(loss: float) -> None:
    signals = history(2, val_loss=[1.0, loss])
    assert fired(signals) == {"R7": "not_finite"}
    assert fired(signals, CALIBRATED_1) == fired(signals, DOCUMENT) == {}


def test_r7_fires_in_the_first_epoch_when_the_norm_is_far_beyond_its_limit() -> None:
    assert CALIBRATED.r7_at_once is not None
    assert CALIBRATED.r7_at_once > 10 * CALIBRATED.r7_high
    norms = [1.0, CALIBRATED.r7_at_once * 1.01]
    assert fired(history(2, max_layer_grad_norm=norms)) == {"R7": "high"}
    assert fired(history(2, max_layer_grad_norm=norms), CALIBRATED_1) == {}
    assert fired(history(2, max_layer_grad_norm=[1.0, CALIBRATED.r7_at_once])) == {}
    # The loss that exploded has also left BatchNorm's scale-free weights huge: their gradient is
    # next to nothing in the next epoch, and the band has nothing to say of it.
    assert fired(history(3, max_layer_grad_norm=[*norms, 0.5])) == {}


def test_r2_low_is_silent_while_the_training_loss_falls() -> None:
    low, epochs = CALIBRATED.r2_low / 2, 6
    falling = [(1 - 2 * CALIBRATED.r2_stall_gain) ** epoch for epoch in range(epochs)]
    creeping = [(1 - CALIBRATED.r2_stall_gain / 4) ** epoch for epoch in range(epochs)]
    assert fired(history(epochs, signal_to_noise=low, train_loss=falling)) == {}
    assert fired(history(epochs, signal_to_noise=low, train_loss=creeping)) == {"R2": "low"}
    assert fired(history(epochs, signal_to_noise=low, train_loss=falling), CALIBRATED_1) == {
        "R2": "low"
    }


def test_r2_low_counts_a_training_loss_that_is_not_finite_as_no_progress() -> None:
    waived = dataclasses.replace(CALIBRATED, r7_at_once=None)
    losses = [1.0, *[math.nan] * CALIBRATED.r2_stall_epochs]
    signals = history(len(losses), signal_to_noise=CALIBRATED.r2_low / 2, train_loss=losses)
    assert fired(signals, waived) == {"R7": "not_finite", "R2": "low"}


def test_r2_high_does_not_ask_for_stalled_progress() -> None:
    signals = history(3, signal_to_noise=CALIBRATED.r2_high * 2, train_loss=[1.0, 0.5, 0.2])
    assert fired(signals) == {"R2": "high"}


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (CALIBRATED.r2_low / 2, 0.0, CALIBRATED.r2_low * 1.01),
        (CALIBRATED.r2_high * 2, CALIBRATED.r2_high * 0.99, math.inf),
        (CALIBRATED.r2_low / 2, None, None),
        (CALIBRATED.r2_high * 2, math.nan, math.nan),
    ],
)
def test_r2_is_silent_when_the_interval_reaches_into_the_band_or_is_missing(
    value: float, low: float | None, high: float | None
) -> None:
    ends = {"signal_to_noise_low": low, "signal_to_noise_high": high}
    signals = history(6, signal_to_noise=value, **ends)
    assert fired(signals) == {}
    assert fired(signals, CALIBRATED_1)


def test_r2_skips_an_epoch_without_an_interval() -> None:
    low = CALIBRATED.r2_low / 2
    signals = history(4, signal_to_noise=low, signal_to_noise_high=[low, None, low, low])
    assert fired(signals[:3]) == {}
    assert fired(signals) == {"R2": "low"}


def test_signals_read_the_interval_where_it_was_measured() -> None:
    old, new = measured(1), measured(1)
    new["gradients"] |= {"signal_to_noise_low": 0.5, "signal_to_noise_high": None}
    assert signals_of(1, old).signal_to_noise_low is None
    assert signals_of(1, new).signal_to_noise_low == 0.5
    assert signals_of(1, new).signal_to_noise_high is None
    new["gradients"]["signal_to_noise_high"] = "wide"
    with pytest.raises(MeasurementError, match="signal_to_noise_high"):
        signals_of(1, new)


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


def test_versions_that_are_recorded_keep_their_hash() -> None:
    # Recorded in ledgers: a change here makes every one of them fail the judge.
    assert [rules.hash for rules in VERSIONS["calibrated"]] == [
        "d4860c049ffc2d384b20fe12b8f69e6b8d8cefbb736b732e6c3b100d8cf262a1",
        "5c51565d32c858ce447ce5571ede61577b571a4ac0ee9c9ed7dd59e5095feeaf",
    ]
    assert [rules.hash for rules in VERSIONS["relative"]] == [
        "85ccbf7e11250914597ee25ab5b2eee136043cf49a8486212baffde4a7e1dba7",
        "2f6b3426a7640bd878a0d49008acfc388db27568d66a2fe70cb3141d32e08e67",
        "a513948d6f5aabf60704078d4190a6579101c613a85fde88962be116c6561696",
        "af1e72901df3e707aed9b75b2bb3a365ead3ec3beb7f3133d7d860b2916e86f8",
    ]
    assert DOCUMENT.hash == "8bc5e2f324660d8b7b1720a32c48a9621ba44b48802e79e6bf7f1f2558a9c298"
    assert all(
        set(rules.to_dict()) == set(DOCUMENT.to_dict()) for rules in (CALIBRATED_1, DOCUMENT)
    )


@pytest.mark.parametrize("profile", VERSIONS)
def test_every_version_is_read_back_as_it_is_recorded(profile: str) -> None:
    for number, rules in enumerate(VERSIONS[profile], start=1):
        assert RulesConfig(**rules.to_dict()) == rules
        assert (rules.profile, version_of(rules)) == (profile, number)
    assert PROFILES[profile] == VERSIONS[profile][-1]


def test_rules_with_other_thresholds_are_no_version() -> None:
    assert version_of(dataclasses.replace(CALIBRATED, r7_high=11.0)) is None
    assert version_of(dataclasses.replace(CALIBRATED_1, profile="mine")) is None
    assert version_of(dataclasses.replace(CALIBRATED_1, profile="document")) is None


numbers = st.floats() | st.none()


BANDS = {
    "R1": ("update_ratio", CALIBRATED.r1_low, CALIBRATED.r1_high),
    "R2": ("signal_to_noise", CALIBRATED.r2_low, CALIBRATED.r2_high),
    "R5": ("dead_share", 0.0, CALIBRATED.r5_high),
    "R6": ("min_layer_grad_norm", CALIBRATED.r6_low, math.inf),
    "R7": ("max_layer_grad_norm", 0.0, CALIBRATED.r7_high),
}


@given(
    st.sampled_from(list(BANDS)),
    st.lists(st.floats(0.0, 1e6), max_size=10),
    st.floats(0.0, 1.0),
)
def test_band_rule_never_fires_when_the_latest_value_is_inside(
    rule: str, before: list[float], share: float
) -> None:
    signal, low, high = BANDS[rule]
    latest = low + share * (min(high, low + 1.0) - low)
    values = [*before, latest]
    found = evaluate_rules(history(len(values), **{signal: values}), [], CALIBRATED)
    assert found[rule].side not in ("low", "high")
    assert found[rule].streak == 0


@given(
    st.lists(
        st.tuples(*[st.floats(0.0, 10.0)] * 4 + [st.sampled_from([1.0, 0.97, 0.5])]),
        min_size=1,
        max_size=10,
    )
)
def test_later_rules_fire_r2_and_r6_only_where_the_first_rules_do(
    epochs: list[tuple[float, float, float, float, float]],
) -> None:
    noise, below, above, smallest, gain = map(list, zip(*epochs, strict=True))
    signals = history(
        len(epochs),
        signal_to_noise=noise,
        signal_to_noise_low=below,
        signal_to_noise_high=above,
        min_layer_grad_norm=[value / 1000 for value in smallest],
        train_loss=[math.prod(gain[: n + 1]) for n in range(len(epochs))],
    )
    later, first = fired(signals), fired(signals, CALIBRATED_1)
    assert {k: v for k, v in later.items() if k in ("R2", "R6")}.items() <= first.items()


def test_r1_fires_in_the_first_epoch_when_the_steps_are_far_too_large() -> None:
    limit = NEWEST.r1_at_once
    assert limit is not None
    assert limit > NEWEST.r1_high
    assert fired(history(1, update_ratio=limit * 1.01), NEWEST) == {"R1": "high"}
    assert fired(history(1, update_ratio=limit), NEWEST) == {}
    assert fired(history(1, update_ratio=math.nan), NEWEST) == {}
    signals = history(2, update_ratio=[limit * 2, NEWEST.r1_low * 2])
    assert fired(signals, NEWEST) == {}
    assert fired(signals[:1], NEWEST, [AppliedRemedy(0, "R1")]) == {}


def test_nothing_lags_without_an_average() -> None:
    norms = [10.0, *[NEWEST.r6_low / 2] * NEWEST.persistence]
    assert fired(history(4, min_layer_grad_norm=norms), NEWEST) == {"R6": "low"}
    assert fired(history(4, min_layer_grad_norm=norms)) == {}


def _probed(ratio: float, *, pairs: int = 1) -> NoiseProbes:
    """Return one probe of a gradient whose noise has the square 1."""
    return NoiseProbes(((ratio, 1.0 + ratio),), 0.01, pairs)


def test_r2_pools_the_probes_of_epochs_too_short_to_say_anything_alone() -> None:
    noise = [_probed(NEWEST.r2_high * 4)] * 3
    signals = history(3, signal_to_noise=None, noise=noise)
    assert fired(signals, NEWEST) == {"R2": "high"}
    assert fired(signals[:2], NEWEST) == {}
    found = evaluate_rules(signals, [], NEWEST)["R2"]
    assert found.ema == pytest.approx(NEWEST.r2_high * 4, rel=0.2)
    assert found.streak == 1


def test_r2_does_not_let_an_early_epoch_speak_for_the_latest_one() -> None:
    noise = [_probed(NEWEST.r2_high * 4)] * 3
    inside = [NEWEST.r2_high * 4, NEWEST.r2_high * 4, NEWEST.r2_high / 2]
    assert fired(history(3, signal_to_noise=inside, noise=noise), NEWEST) == {}


def _streak_from_the_start(signals: list[EpochSignals]) -> tuple[int, str | None]:
    """Return the streak of R2's pools, and its side, counted from the first epoch on."""
    streak, side = 0, None
    for end in range(NEWEST.persistence, len(signals) + 1):
        last = signals[end - NEWEST.persistence : end]
        pooled = pool_noise([each.noise for each in last if each.noise is not None])
        if pooled is None:
            continue
        own = last[-1].signal_to_noise
        numbers = [pooled.low, pooled.high, *([] if own is None else [own])]
        low, high = max(numbers) < NEWEST.r2_low, min(numbers) > NEWEST.r2_high
        left = "low" if low else "high" if high else None
        streak = 0 if left is None else streak + 1 if left == side else 1
        side = left
    return streak, side


@given(st.lists(st.sampled_from(["high", "low", "inside", None]), min_size=1, max_size=24))
def test_r2_counts_its_streak_as_from_the_start(kinds: list[str | None]) -> None:
    ratios = {"high": NEWEST.r2_high * 9, "low": NEWEST.r2_low / 9, "inside": 1.0}
    noise = [None if kind is None else _probed(ratios[kind], pairs=90) for kind in kinds]
    signals = history(len(kinds), signal_to_noise=None, noise=noise)
    streak, side = _streak_from_the_start(signals)
    found = evaluate_rules(signals, [], NEWEST)["R2"]
    assert found.streak == streak
    assert found.side in {side, None}


@pytest.mark.parametrize("ratio", [1.0, NEWEST.r2_high * 9])
def test_r2_pools_each_window_of_a_long_run_once(ratio: float) -> None:
    noise = [_probed(ratio + epoch * 1e-6, pairs=90) for epoch in range(150)]
    signals = history(150, signal_to_noise=None, noise=noise)
    before = _pooled.cache_info().misses
    for end in range(1, 151):
        evaluate_rules(signals[:end], [], NEWEST)
    assert _pooled.cache_info().misses - before <= 150


def test_r2_says_nothing_of_epochs_without_probes() -> None:
    assert fired(history(5, noise=None, signal_to_noise=NEWEST.r2_high * 9), NEWEST) == {}


probes = st.builds(
    NoiseProbes,
    probes=st.lists(st.sampled_from([(0.1, 1.0), (0.9, 1.0), (0.02, 1.0)]), max_size=3).map(tuple),
    spread=st.sampled_from([None, 0.1, 0.5]),
    pairs=st.integers(1, 9),
)


@st.composite
def told_runs(draw: st.DrawFn) -> tuple[list[EpochSignals], list[AppliedRemedy]]:
    """Return a history whose signals stay where they are for a while, and remedies in it."""
    losses = st.sampled_from([0.2, 0.5, 0.505, 1.0, math.nan, math.inf]) | st.floats()
    some = st.sampled_from([None, math.nan, 1e-5, 0.01, 0.02, 0.3, 1.0, 5.0, 20.0]) | numbers
    kinds = st.builds(
        EpochSignals,
        epoch=st.just(0),
        train_loss=losses,
        train_accuracy=st.sampled_from([None, 0.3, 0.305, 0.5, 0.95]),
        val_loss=losses,
        gradients_finite=st.sampled_from([True, True, True, False]),
        **dict.fromkeys(
            (
                "max_layer_grad_norm",
                "min_layer_grad_norm",
                "update_ratio",
                "epoch_update_ratio",
                "signal_to_noise",
                "norm_noise_scale",
                "dead_share",
                "sparsity",
                "signal_to_noise_low",
                "signal_to_noise_high",
            ),
            some,
        ),
        noise=st.none() | probes,
        middle_update_ratios=st.none() | st.tuples(st.floats(0, 0.05), st.floats(0, 0.05)),
        skill=st.sampled_from([None, math.nan, -0.02, 0.0, 0.03, 0.031, 0.5]),
    )
    spells = draw(st.lists(st.tuples(kinds, st.integers(1, 6)), min_size=1, max_size=5))
    first = draw(st.sampled_from([0, 0, 3]))
    signals = [each for each, epochs in spells for _ in range(epochs)]
    numbered = [dataclasses.replace(each, epoch=first + n) for n, each in enumerate(signals)]
    places = st.tuples(st.integers(0, first + len(signals)), st.sampled_from(RULES))
    applied = sorted(draw(st.lists(places, max_size=4)))
    if not (trials := draw(st.sampled_from([0, 0, 2, 3]))):
        return numbered, [AppliedRemedy(epoch, rule) for epoch, rule in applied]
    since = draw(st.integers(0, first + len(signals)))
    others = [each for each in applied if not since <= each[0] <= since + trials]
    remedies = [AppliedRemedy(epoch, rule) for epoch, rule in others]
    remedies += [AppliedRemedy(since, rule, trials) for rule in RULES]
    return numbered, sorted(remedies, key=lambda remedy: remedy.epoch)


@settings(max_examples=50)
@given(
    told_runs(),
    st.sampled_from([CALIBRATED, DOCUMENT, *VERSIONS["calibrated"], *VERSIONS["relative"]]),
)
def test_rules_remember_what_the_whole_history_tells(
    told: tuple[list[EpochSignals], list[AppliedRemedy]], config: RulesConfig
) -> None:
    signals, remedies = told
    memory, each_epoch = RuleMemory(config), list(evaluate_epochs(signals, remedies, config))
    late = list(evaluate_epochs(signals, remedies, config, first=len(signals) // 2))
    assert repr(late) == repr(each_epoch[len(signals) // 2 :])
    for number, latest in enumerate(signals):
        seen = signals[: number + 1]
        before = [remedy for remedy in remedies if remedy.epoch < latest.epoch]
        plain = repr(plain_rules.evaluate_rules(seen, before, config))
        assert repr(memory.evaluate(seen, before)) == plain
        assert repr(memory.evaluate(seen, before)) == plain  # and asking changes nothing
        assert repr(evaluate_rules(seen, before, config)) == plain
        assert repr(each_epoch[number]) == plain
        assert all(each.fired == (each.side is not None) for each in each_epoch[number].values())
    every = plain_rules.evaluate_rules(signals, remedies, config)
    assert repr(evaluate_rules(signals, remedies, config)) == repr(every)


@settings(max_examples=50)
@given(told_runs(), st.sampled_from([2.0**-10, 2.0**-3, 2.0**6, 2.0**10]))
def test_relative_rules_do_not_know_the_scale_of_a_loss(
    told: tuple[list[EpochSignals], list[AppliedRemedy]], factor: float
) -> None:
    # Powers of two: products are exact but for the smallest and largest of numbers.
    def scaled(value: float | None) -> float | None:
        return None if value is None else value * factor

    def told_with_another_loss(signals: EpochSignals) -> EpochSignals:
        names = ("train_loss", "val_loss", "max_layer_grad_norm", "min_layer_grad_norm")
        changes: dict[str, Any] = {name: scaled(getattr(signals, name)) for name in names}
        return dataclasses.replace(signals, **changes)

    signals, remedies = told
    sizes = [abs(v) for s in signals for v in vars(s).values() if isinstance(v, float)]
    assume(all(size == 0 or 1e-290 < size < 1e290 or not math.isfinite(size) for size in sizes))
    plain = evaluate_epochs(signals, remedies, RELATIVE)
    other = evaluate_epochs([*map(told_with_another_loss, signals)], remedies, RELATIVE)
    for here, there in zip(plain, other, strict=True):
        assert {rule: found.side for rule, found in here.items()} == {
            rule: found.side for rule, found in there.items()
        }


def test_relative_rules_fire_in_the_first_epoch_whose_evidence_is_clear() -> None:
    for rule, side, signals in (
        ("R1", "high", {"update_ratio": 0.05}),
        ("R1", "low", {"update_ratio": 1e-5}),
        ("R5", "high", {"dead_share": 0.8}),
        ("R6", "low", {"max_layer_grad_norm": 500.0, "min_layer_grad_norm": 0.1}),
    ):
        assert fired(history(1, **signals), RELATIVE) == {rule: side}, signals
    exploding = history(2, max_layer_grad_norm=[1.0, 31.0], min_layer_grad_norm=1.0)
    assert fired(exploding[:1], RELATIVE) == {}
    assert fired(exploding, RELATIVE) == {"R7": "high"}
    assert (
        fired(history(2, max_layer_grad_norm=[1.0, 30.0], min_layer_grad_norm=1.0), RELATIVE) == {}
    )


@pytest.mark.parametrize(
    ("ratios", "side"),
    [
        ([0.1, 0.03], None),  # a head that begins small: the mean of both is above the band
        ([1.2, 0.03], None),  # nor do they count where both together kill a model at once
        ([0.1, 0.04], "high"),
        ([0.1, 1e-4, None], None),  # one that begins at zero has none
        ([1e-4, 2e-4], "low"),
        ([1e-4, 4e-4], None),
        ([0.1, 0.1, 1e-4], "high"),
        ([1e-4, 1e-4, 0.1], "low"),
        ([1.2, 1.1, 1.3, 1e-4, 1e-4], "high"),  # most weights are far too small
        ([0.05, math.nan], None),
        ([], None),
    ],
)
def test_rate_is_wrong_where_it_is_for_most_of_the_tensors(
    ratios: list[float | None], side: str | None
) -> None:
    part = measured(0)
    more = {"name": "it", "rank": 2, "grad_norm": 1.0, "epoch_update_ratio": 0.1}
    part["layers"] = [{**more, "update_ratio": ratio} for ratio in ratios]
    found = signals_of(0, part)
    assert fired([found], RELATIVE).get("R1") == side
    if ratios == [0.1, 0.03]:
        assert found.update_ratio == pytest.approx(0.065)
        assert fired([found], RELATIVE_2)["R1"] == "high"


def test_long_steps_are_left_alone_where_the_epoch_learned() -> None:
    def r1(losses: list[float], ratio: float = 0.1, *, first: float = 2.0, **changes: Any) -> str:
        told = history(len(losses), val_loss=losses, train_loss=first, update_ratio=ratio)
        found = fired([dataclasses.replace(each, **changes) for each in told], RELATIVE)
        return str(found.get("R1"))

    # The first epoch against the mean loss of its own steps, a later one against the best before.
    assert (r1([1.7]), r1([1.9]), r1([2.3])) == ("None", "high", "high")
    assert (r1([1.7, 1.5]), r1([1.7, 1.6]), r1([1.5, 1.7, 1.4])) == ("None", "high", "high")
    assert r1([1.7], first=math.nan) == r1([math.nan]) == r1([1.7], first=math.inf) == "high"
    assert (r1([-3.0], first=-2.0), r1([-2.1], first=-2.0)) == ("None", "high")
    assert r1([-math.inf, 1.0]) == "high"  # nothing is better than the first
    # Nothing is left of the weights, or the loss fell from a peak to that of guessing.
    assert (r1([1.7], 0.1), r1([1.7], 0.11)) == ("None", "high")
    assert (r1([1.7], skill=0.02), r1([1.7], skill=0.3)) == ("high", "None")
    # What is too short is not excused, and the version before excuses nothing.
    assert r1([1.0], 1e-5) == "low"
    assert fired(history(1, val_loss=1.0, train_loss=2.0, update_ratio=0.1), RELATIVE_3) == {
        "R1": "high"
    }
    # A remedy begins anew: what was better before it is gone.
    later = history(3, val_loss=[1.0, 1.9, 1.6], train_loss=2.0, update_ratio=0.1)
    assert fired(later, RELATIVE, [AppliedRemedy(1, "R1")]) == {}
    assert fired(later, RELATIVE) == {"R1": "high"}


def test_large_batch_is_left_alone_where_steps_are_long() -> None:
    noise = [_probed(NEWEST.r2_high * 4)] * 3
    for ratio, found in ((0.012, {"R2": "high"}), (0.013, {}), (None, {"R2": "high"})):
        signals = history(3, signal_to_noise=None, noise=noise, update_ratio=ratio)
        assert fired(signals, RELATIVE) == found
        assert fired(signals, RELATIVE_3) == {"R2": "high"}


def test_model_that_only_guesses_fires_r1_and_not_r4() -> None:
    still: dict[str, Any] = {"train_loss": 2.3, "val_loss": 2.3, "train_accuracy": 0.1}
    guesses = history(4, **still, skill=0.0)
    assert [fired(guesses[:n], RELATIVE) for n in (1, 2, 3, 4)] == [
        {},
        {},
        {"R1": "guessing"},
        {"R1": "guessing"},
    ]
    assert evaluate_rules(guesses, [], RELATIVE)["R1"].streak == 4
    assert fired(guesses, RELATIVE_1) == {"R4": "stalled"}
    # A control for each condition: it is a little better, or its loss falls, or nobody knows.
    assert fired(history(4, **still, skill=0.04), RELATIVE) == {"R4": "stalled"}
    falls = {**still, "train_loss": [2.3 * 0.98**n for n in range(4)]}
    assert fired(history(4, **falls, skill=0.0), RELATIVE) == {}
    assert fired(history(4, **still, skill=None), RELATIVE) == {"R4": "stalled"}
    low = history(4, **still, skill=0.0, update_ratio=1e-5)
    assert fired(low, RELATIVE) == {"R1": "low"}  # which names its cause


@pytest.mark.parametrize(
    ("accuracy", "told", "classes", "skill"),
    [
        (0.1, None, 10, 0.0),
        (1.0, None, 10, 1.0),
        (0.5, None, None, None),
        (None, 0.75, 2, 0.5),
        (None, None, 2, None),
    ],
)
def test_skill_is_what_an_accuracy_is_above_guessing(
    accuracy: float | None, told: float | None, classes: int | None, skill: float | None
) -> None:
    part = measured(0)
    part["train"]["accuracy"] = accuracy
    part["validation"]["accuracy"] = told if accuracy is None else 0.9
    reported: Any = {"train": {}, "validation": {}} if accuracy is None else None
    assert signals_of(0, part, reported, classes=classes).skill == skill


def test_rules_read_each_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def note(signals: EpochSignals, *_: object) -> tuple[float, ...]:
        read.append(signals.epoch)
        return ()

    monkeypatch.setattr("aggregates.rulebook.folds._interval", note)
    signals, memory = history(300), RuleMemory(NEWEST)
    for number in range(300):
        memory.evaluate(signals[: number + 1], [])
    assert read == [epoch for epoch in range(300) for _ in range(4)]  # R1, R5, R6 and R7
    assert len(list(evaluate_epochs(signals, [], NEWEST))) == 300
    assert len(read) == 2 * 4 * 300
