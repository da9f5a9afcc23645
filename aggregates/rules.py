"""The seven rules: pure functions of the measured history, evaluated in one place only.

Two parties call evaluate_rules(): the monitor while a run goes on, and the judge again, from
verified bytes. It never sees what the training loop reports.

Source: docs/reference/rules.md.  I/O: none.  Units: epochs from 0; see EpochSignals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from aggregates.canonical import digest
from aggregates.noise import NoiseProbes, SignalToNoise, pool_noise
from aggregates.signals import EpochSignals

RULES = ("R1", "R2", "R3", "R4", "R5", "R6", "R7")
RULE_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "R1": "learning rate",
        "R2": "batch size",
        "R3": "early stopping",
        "R4": "capacity",
        "R5": "activations",
        "R6": "vanishing gradients",
        "R7": "exploding gradients",
    }
)
RULE_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "R7": "stability",
        "R6": "stability",
        "R4": "capacity",
        "R5": "capacity",
        "R1": "tuning",
        "R2": "tuning",
        "R3": "process",
    }
)
PRECEDENCE = tuple(RULE_CLASSES)  # first goes first


def _added(default: Any) -> Any:
    """Declare a field that the first rules did not have; the default is their behaviour."""
    return field(default=default, metadata={"added": True})


@dataclass(frozen=True)
class RulesConfig:
    """Signals, thresholds and windows of the rules; frozen, and named by its hash in every run."""

    profile: str
    restart_after_remedy: bool  # a rule's EMA and window start afresh once its remedy was applied
    r1_signal: str
    r1_low: float
    r1_high: float
    r2_signal: str
    r2_low: float
    r2_high: float
    r5_signal: str
    r5_high: float  # share
    r6_low: float  # gradient norm
    r7_high: float  # gradient norm
    r1_patience: int  # epochs without a better validation loss
    r1_min_delta: float  # nats
    r3_patience: int  # epochs
    r3_min_delta: float  # nats
    r4_saturation_gap: float  # change of training accuracy per epoch
    r4_ceiling: float  # training accuracy at which nothing is left to gain
    ema_alpha: float = 0.1
    persistence: int = 3  # consecutive epochs
    action_window: int = 2  # epochs within which a firing must be decided on
    deferral_limit: int = 7  # epochs within which a deferral must clear: one for each rule
    band_needs_value: bool = _added(False)  # the epoch's own value is outside the band, too
    r1_at_once: float | None = _added(None)  # update ratio above which R1 fires in that epoch
    r2_needs_interval: bool = _added(False)  # and the whole 90% interval of the signal-to-noise
    r2_pooled: bool = _added(False)  # R2's interval is that of the last `persistence` epochs
    r2_stall_epochs: int = _added(0)  # epochs without progress that R2 low needs; 0 asks for none
    r2_stall_gain: float = _added(0.0)  # share by which training loss must fall to be progress
    r7_validation: bool = _added(False)  # a validation loss that is not finite fires R7
    r7_at_once: float | None = _added(None)  # gradient norm above which R7 fires in that epoch

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as run.started holds them.

        A field that was added later is left out at its default, so that rules recorded before it
        existed keep their hash.
        """
        legacy = {
            item.name
            for item in fields(self)
            if "added" in item.metadata and getattr(self, item.name) == item.default
        }
        return {name: value for name, value in asdict(self).items() if name not in legacy}

    @property
    def hash(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest(self.to_dict())


# The versions of the profiles. One that is on the main branch is never changed: recorded runs name
# it by its hash. A change of thresholds is another version.
DOCUMENT = RulesConfig(
    profile="document",
    restart_after_remedy=False,
    r1_signal="epoch_update_ratio",
    r1_low=1e-4,
    r1_high=1e-2,
    r2_signal="norm_noise_scale",
    r2_low=50.0,
    r2_high=5000.0,
    r5_signal="sparsity",
    r5_high=0.40,
    r6_low=1e-5,
    r7_high=10.0,
    r1_patience=3,
    r1_min_delta=0.0,
    r3_patience=5,
    r3_min_delta=1e-3,
    r4_saturation_gap=0.02,
    r4_ceiling=0.99,
)
# Midpoints between ten healthy and ten faulty runs: docs/explanation/threshold-study.md.
CALIBRATED_1 = RulesConfig(
    profile="calibrated",
    restart_after_remedy=True,
    r1_signal="update_ratio",
    r1_low=1.4e-4,
    r1_high=1.1e-2,
    r2_signal="signal_to_noise",
    r2_low=0.14,
    r2_high=2.6,
    r5_signal="dead_share",
    r5_high=0.25,
    r6_low=3e-3,
    r7_high=3.0,
    r1_patience=5,
    r1_min_delta=0.0,
    r3_patience=8,
    r3_min_delta=1e-3,
    r4_saturation_gap=0.01,
    r4_ceiling=0.90,
)
# Chosen on one half of a grid of settings: docs/explanation/threshold-study.md.
CALIBRATED = RulesConfig(
    profile="calibrated",
    restart_after_remedy=True,
    r1_signal="update_ratio",
    r1_low=3.3e-4,
    r1_high=2.5e-2,
    r2_signal="signal_to_noise",
    r2_low=0.14,
    r2_high=2.5,
    r5_signal="dead_share",
    r5_high=0.28,
    r6_low=9.2e-3,
    r7_high=3.0,
    r1_patience=7,
    r1_min_delta=0.0,
    r3_patience=9,
    r3_min_delta=1e-3,
    r4_saturation_gap=0.01,
    r4_ceiling=0.90,
    ema_alpha=1.0,  # no average: persistence alone keeps chance out, and nothing lags behind
    band_needs_value=True,
    r1_at_once=0.036,
    r2_pooled=True,
    r2_stall_epochs=2,
    r2_stall_gain=0.03,
    r7_validation=True,
    r7_at_once=9.77,
)
VERSIONS: Mapping[str, tuple[RulesConfig, ...]] = MappingProxyType(
    {"calibrated": (CALIBRATED_1, CALIBRATED), "document": (DOCUMENT,)}
)
"""Every version of each profile, the oldest first. Runs start with the newest; the judge accepts
all of them, and its verdict names the version."""

PROFILES: Mapping[str, RulesConfig] = MappingProxyType(
    {profile: versions[-1] for profile, versions in VERSIONS.items()}
)


def version_of(rules: RulesConfig) -> int | None:
    """Return the number of the profile's version (from 1), None for rules that are no version."""
    for versions in VERSIONS.values():
        if rules in versions:
            return versions.index(rules) + 1
    return None


@dataclass(frozen=True)
class AppliedRemedy:
    """A rule's remedy took effect after the evaluation of `epoch`."""

    epoch: int
    rule: str


@dataclass(frozen=True)
class RuleEvaluation:
    """What one rule says of the latest epoch, and the numbers it says it from."""

    rule: str
    fired: bool
    side: str | None  # high, low, plateau, stalled or not_finite; None while silent
    value: float | None  # this epoch's signal
    ema: float | None
    streak: int  # consecutive epochs with a value, up to the latest, in which the condition held

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as run.rules_evaluated holds them."""
        return asdict(self)


def evaluate_rules(
    history: Sequence[EpochSignals], remedies: Sequence[AppliedRemedy], config: RulesConfig
) -> dict[str, RuleEvaluation]:
    """Evaluate all seven rules for the latest epoch of `history`, which must not be empty."""
    r5 = _outside_band("R5", config.r5_signal, None, config.r5_high)
    r6 = _outside_band("R6", "min_layer_grad_norm", config.r6_low, None)
    r7 = _outside_band("R7", "max_layer_grad_norm", None, config.r7_high)
    evaluations = {
        "R1": _r1(_window("R1", history, remedies, config), config),
        "R2": _r2(_window("R2", history, remedies, config), config),
        "R3": _plateau(
            "R3",
            _window("R3", history, remedies, config),
            config.r3_patience,
            config.r3_min_delta,
        ),
        "R5": r5(_window("R5", history, remedies, config), config),
        "R6": r6(_window("R6", history, remedies, config), config),
        "R7": _r7(r7(_window("R7", history, remedies, config), config), history[-1], config),
    }
    healthy = not any(evaluations[rule].fired for rule in ("R5", "R6", "R7"))
    evaluations["R4"] = _r4(_window("R4", history, remedies, config), config, others_silent=healthy)
    return {rule: evaluations[rule] for rule in RULES}


def fired_in_precedence(evaluations: Mapping[str, RuleEvaluation]) -> tuple[str, ...]:
    """Return the rules that fired, the one to act on first in front."""
    return tuple(rule for rule in PRECEDENCE if evaluations[rule].fired)


def _window(
    rule: str,
    history: Sequence[EpochSignals],
    remedies: Sequence[AppliedRemedy],
    config: RulesConfig,
) -> Sequence[EpochSignals]:
    """Return the epochs that count for `rule`: those after its last remedy, or all."""
    if not config.restart_after_remedy:
        return history
    last = max((remedy.epoch for remedy in remedies if remedy.rule == rule), default=-1)
    return [signals for signals in history if signals.epoch > last]


def _outside_band(
    rule: str, signal: str, low: float | None, high: float | None
) -> Callable[[Sequence[EpochSignals], RulesConfig], RuleEvaluation]:
    def evaluate(window: Sequence[EpochSignals], config: RulesConfig) -> RuleEvaluation:
        ema: float | None = None
        streak, side, value, measured = 0, None, None, True
        for signals in window:
            value = getattr(signals, signal)
            ends = _interval(signals, signal, config)
            # A value that is missing or not finite says nothing: it enters neither EMA nor streak,
            # so that one NaN cannot silence the rule for the rest of the run.
            measured = value is not None and math.isfinite(value) and ends is not None
            if value is None or ends is None or not measured:
                continue
            ema = value if ema is None else config.ema_alpha * value + (1 - config.ema_alpha) * ema
            own = (value,) if config.band_needs_value else ()
            left = _side((ema, *own, *ends), low, high)
            streak = 0 if left is None else streak + 1 if left == side else 1
            side = left
        fired = streak >= config.persistence and (measured or not config.band_needs_value)
        return RuleEvaluation(rule, fired, side if fired else None, value, ema, streak)

    return evaluate


def _interval(signals: EpochSignals, signal: str, config: RulesConfig) -> tuple[float, ...] | None:
    """Return the ends of a signal's interval: () where none is asked for, None where it lacks."""
    if not config.r2_needs_interval or signal != "signal_to_noise":
        return ()
    low, high = signals.signal_to_noise_low, signals.signal_to_noise_high
    return None if low is None or high is None or math.isnan(low + high) else (low, high)


def _side(numbers: Sequence[float], low: float | None, high: float | None) -> str | None:
    """Return the side on which all numbers are outside of a band, None where one is inside."""
    if low is not None and max(numbers) < low:
        return "low"
    return "high" if high is not None and min(numbers) > high else None


def _plateau(
    rule: str, window: Sequence[EpochSignals], patience: int, min_delta: float
) -> RuleEvaluation:
    """Fire when the validation loss has not beaten its best by min_delta for `patience` epochs."""
    best, since = math.inf, 0
    for signals in window:
        if signals.val_loss < best - min_delta:  # false for NaN: a diverged loss is no progress
            best, since = signals.val_loss, 0
        else:
            since += 1
    fired = since >= patience
    value = window[-1].val_loss if window else None
    return RuleEvaluation(
        rule, fired, "plateau" if fired else None, value, best if window else None, since
    )


def _r1(window: Sequence[EpochSignals], config: RulesConfig) -> RuleEvaluation:
    band = _outside_band("R1", config.r1_signal, config.r1_low, config.r1_high)(window, config)
    if band.fired:
        return band
    latest = getattr(window[-1], config.r1_signal) if window else None
    if latest is not None and config.r1_at_once is not None and latest > config.r1_at_once:
        return replace(band, fired=True, side="high")  # steps so large kill a model in one epoch
    plateau = _plateau("R1", window, config.r1_patience, config.r1_min_delta)
    return plateau if plateau.fired else band


def _r2(window: Sequence[EpochSignals], config: RulesConfig) -> RuleEvaluation:
    """Report a batch too small only where progress stalls: noise alone harms nothing.

    Source: McCandlish et al. 2018 (An Empirical Model of Large-Batch Training): a larger batch
    saves steps and costs examples.
    """
    band = (
        _r2_pooled(window, config)
        if config.r2_pooled
        else _outside_band("R2", config.r2_signal, config.r2_low, config.r2_high)(window, config)
    )
    if band.side == "low" and not _stalled(window, config):
        return replace(band, fired=False, side=None)
    return band


def _r2_pooled(window: Sequence[EpochSignals], config: RulesConfig) -> RuleEvaluation:
    """Compare what the probes of the last `persistence` epochs say together with the band.

    One epoch has a probe for every 48 steps, too few for an interval of its own that says much.
    Pooling takes the place of average and persistence. The epoch's own ratio, where it has one, has
    to be on the same side. `ema` is the pooled ratio; the streak counts
    the epochs whose pool lies outside. An epoch without probes adds nothing.
    """
    streak, side, newest = 0, None, None
    for end in range(len(window), config.persistence - 1, -1):  # back to where the streak began
        last = window[end - config.persistence : end]
        pooled = _pooled(tuple(each.noise for each in last if each.noise is not None))
        if end == len(window):
            newest = pooled
        if pooled is None:
            continue
        own = last[-1].signal_to_noise  # large gradients of an earlier epoch outweigh later ones
        numbers = (pooled.low, pooled.high) if own is None else (pooled.low, pooled.high, own)
        left = _side(numbers, config.r2_low, config.r2_high)
        if left is None or (streak and left != side):
            break
        streak, side = streak + 1, left
    fired = newest is not None and side is not None
    value = window[-1].signal_to_noise if window else None
    ema = None if newest is None else newest.estimate
    return RuleEvaluation("R2", fired, side if fired else None, value, ema, streak)


@lru_cache(maxsize=4_096)  # in a long streak, each epoch asks for the pools of all before it
def _pooled(epochs: tuple[NoiseProbes, ...]) -> SignalToNoise | None:
    return pool_noise(epochs)


def _stalled(window: Sequence[EpochSignals], config: RulesConfig) -> bool:
    """Return whether the training loss has made no progress for r2_stall_epochs.

    That is: the best of these epochs is not below the best before them by the share r2_stall_gain.
    A loss that is not finite is no progress.
    """
    if config.r2_stall_epochs == 0:
        return True
    losses = [signals.train_loss for signals in window]
    before, since = losses[: -config.r2_stall_epochs], losses[-config.r2_stall_epochs :]
    if not before:
        return False
    return _best(since) > (1 - config.r2_stall_gain) * _best(before)


def _best(losses: Sequence[float]) -> float:
    return min(filter(math.isfinite, losses), default=math.inf)


def _r4(
    window: Sequence[EpochSignals], config: RulesConfig, *, others_silent: bool
) -> RuleEvaluation:
    streak, value = 0, None
    for before, now in pairwise(window):
        if before.train_accuracy is None or now.train_accuracy is None:
            streak, value = 0, None  # nothing measures it
            continue
        value = now.train_accuracy - before.train_accuracy
        stalled = abs(value) < config.r4_saturation_gap and now.train_accuracy < config.r4_ceiling
        streak = streak + 1 if stalled else 0
    fired = streak >= config.persistence and others_silent
    return RuleEvaluation("R4", fired, "stalled" if fired else None, value, None, streak)


def _r7(band: RuleEvaluation, latest: EpochSignals, config: RulesConfig) -> RuleEvaluation:
    losses = (latest.train_loss, latest.val_loss) if config.r7_validation else (latest.train_loss,)
    if not latest.gradients_finite or not all(map(math.isfinite, losses)):
        return replace(band, fired=True, side="not_finite")
    norm, limit = latest.max_layer_grad_norm, config.r7_at_once
    if norm is not None and limit is not None and norm > limit:  # false for NaN
        return replace(band, fired=True, side="high")
    return band
