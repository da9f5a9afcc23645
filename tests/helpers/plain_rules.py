"""The rules as their definition says: each epoch is evaluated from all epochs before it.

What aggregates/firing.py computes step by step has to be the same. Slow: one epoch costs as much as
the history is long.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from aggregates.rulebook.folds import _interval, side_of
from aggregates.rulebook.r2 import _pooled
from aggregates.rules import FIRST_RULES as RULES
from aggregates.rules import GROWTH, AppliedRemedy, RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals


def evaluate_rules(
    history: Sequence[EpochSignals], remedies: Sequence[AppliedRemedy], config: RulesConfig
) -> dict[str, RuleEvaluation]:
    """Evaluate all seven rules for the latest epoch of `history`, which must not be empty."""
    r5 = _outside_band("R5", config.r5_signal, None, config.r5_high)
    r6 = _outside_band("R6", config.r6_signal, config.r6_low, None)
    r7 = _outside_band("R7", config.r7_signal, None, config.r7_high)
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
        "R7": r7(_window("R7", history, remedies, config), config),
    }
    if not _trials(history, remedies, config):
        evaluations["R7"] = _r7(evaluations["R7"], history[-1], config)
    healthy = not any(evaluations[rule].fired for rule in ("R5", "R6", "R7"))
    evaluations["R4"] = _r4(_window("R4", history, remedies, config), config, others_silent=healthy)
    return {rule: evaluations[rule] for rule in RULES}


def _growth(window: Sequence[EpochSignals]) -> float | None:
    *before, norm = [signals.max_layer_grad_norm for signals in window]
    if norm is None or not math.isfinite(norm):
        return norm
    known = [each for each in before if each is not None and math.isfinite(each)]
    usual = median(known) if known else 0.0
    return norm / usual if usual else None


def _window(
    rule: str,
    history: Sequence[EpochSignals],
    remedies: Sequence[AppliedRemedy],
    config: RulesConfig,
) -> Sequence[EpochSignals]:
    """Return the epochs that count for `rule`: those after its last remedy, or all."""
    if not config.restart_after_remedy:
        return history
    if _trials(history, remedies, config):
        return []
    last = max((remedy.epoch for remedy in remedies if remedy.rule == rule), default=-1)
    left: set[int] = set()
    for remedy in remedies:
        tried = [each for each in history if 0 < each.epoch - remedy.epoch <= remedy.trials]
        finite = [each for each in tried if math.isfinite(each.val_loss)]
        best = min(finite, key=lambda each: each.val_loss, default=None)
        left |= {each.epoch for each in tried if each is not best}
    return [each for each in history if each.epoch > last and each.epoch not in left]


def _trials(
    history: Sequence[EpochSignals], remedies: Sequence[AppliedRemedy], config: RulesConfig
) -> bool:
    """Return whether the latest epoch is a trial, which no rule judges."""
    latest = history[-1].epoch
    tried = any(0 < latest - remedy.epoch <= remedy.trials for remedy in remedies)
    return config.restart_after_remedy and tried


def _outside_band(
    rule: str, signal: str, low: float | None, high: float | None
) -> Callable[[Sequence[EpochSignals], RulesConfig], RuleEvaluation]:
    def evaluate(window: Sequence[EpochSignals], config: RulesConfig) -> RuleEvaluation:
        ema: float | None = None
        streak, side, value, measured = 0, None, None, True
        for place, signals in enumerate(window):
            value = _growth(window[: place + 1]) if signal == GROWTH else getattr(signals, signal)
            ends = _interval(signals, signal, config)
            # A value that is missing or not finite says nothing: it enters neither EMA nor streak,
            # so that one NaN cannot silence the rule for the rest of the run.
            measured = value is not None and math.isfinite(value) and ends is not None
            if value is None or ends is None or not measured:
                continue
            ema = value if ema is None else config.ema_alpha * value + (1 - config.ema_alpha) * ema
            own = (value,) if config.band_needs_value else ()
            left = side_of((ema, *own, *ends), low, high)
            streak = 0 if left is None else streak + 1 if left == side else 1
            side = left
        needed = config.band_persistence or config.persistence
        fired = streak >= needed and (measured or not config.band_needs_value)
        return RuleEvaluation(rule, fired, side if fired else None, value, ema, streak)

    return evaluate


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
    latest, limit = getattr(window[-1], config.r1_signal) if window else None, config.r1_at_once
    at_once = latest is not None and limit is not None and latest > limit
    if band.fired and (band.side != "high" or at_once or not _learned(window, config)):
        return band
    if at_once and not config.r1_majority:
        return replace(band, fired=True, side="high")  # steps so large kill a model in one epoch
    band = replace(band, fired=False, side=None)
    guessed = 0
    for signals in window:
        guessed = guessed + 1 if _guesses(signals, config) else 0
    if guessed >= config.persistence and _stands_still(window, 2, config.guess_gain):
        return replace(band, fired=True, side="guessing", streak=guessed)
    plateau = _plateau("R1", window, config.r1_patience, config.r1_min_delta)
    return plateau if plateau.fired else band


def _learned(window: Sequence[EpochSignals], config: RulesConfig) -> bool:
    """Return whether the last epoch lowered the validation loss by the share that is asked for."""
    latest = window[-1]
    if config.r1_learning_gain is None or _guesses(latest, config):
        return False
    before = [each.val_loss for each in window[:-1] if each.val_loss < math.inf]
    best = min(before, default=latest.train_loss)
    if not math.isfinite(best) or not math.isfinite(latest.val_loss):
        return False
    return best - latest.val_loss > config.r1_learning_gain * abs(best)


def _guesses(signals: EpochSignals, config: RulesConfig) -> bool:
    if config.guess_skill is None or signals.skill is None:
        return False
    return signals.skill <= config.guess_skill


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
    epochs, gain = config.r2_stall_epochs, config.r2_stall_gain
    if band.side == "low" and epochs and not _stands_still(window, epochs, gain):
        return replace(band, fired=False, side=None)
    ratio, limit = window[-1].update_ratio if window else None, config.r2_longest_steps
    if band.side == "high" and ratio is not None and limit is not None and ratio > limit:
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
        left = side_of(numbers, config.r2_low, config.r2_high)
        if left is None or (streak and left != side):
            break
        streak, side = streak + 1, left
    fired = newest is not None and side is not None
    value = window[-1].signal_to_noise if window else None
    ema = None if newest is None else newest.estimate
    return RuleEvaluation("R2", fired, side if fired else None, value, ema, streak)


def _stands_still(window: Sequence[EpochSignals], epochs: int, gain: float) -> bool:
    """Return whether the training loss has made no progress for some epochs.

    That is: the best of these epochs is not below the best before them by the share `gain`.
    A loss that is not finite is no progress.
    """
    losses = [signals.train_loss for signals in window]
    before, since = losses[:-epochs], losses[-epochs:]
    return bool(before) and _best(since) > (1 - gain) * _best(before)


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
        stalled = stalled and not _guesses(now, config)
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
