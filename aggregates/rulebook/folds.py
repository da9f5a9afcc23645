"""What a rule keeps of a run from epoch to epoch: the parts that rules are made of.

Source: docs/reference/rules.md.  I/O: none.  Units: epochs from 0; see EpochSignals.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from aggregates.rules import RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals


class Fold(ABC):
    """What one rule keeps of its window: the epochs after its last remedy, or all."""

    def __init__(self, rule: str, config: RulesConfig) -> None:
        self.rule = rule
        self.config = config
        self._next: int | None = None  # epoch to add, by its place in the history

    def go_on(
        self,
        history: Sequence[EpochSignals],
        end: int,
        *,
        since: int,
        without: Collection[int],
    ) -> None:
        """Add the epochs before `end` that were not added yet; none up to epoch `since`."""
        place = self._next
        if place is None:
            place = end
            while place and history[place - 1].epoch > since:
                place -= 1
        while place < end:
            if history[place].epoch > since and history[place].epoch not in without:
                self.add(history[place])
            place += 1
        self._next = place

    @abstractmethod
    def add(self, signals: EpochSignals) -> None:
        """Take in the next epoch."""

    @abstractmethod
    def evaluation(self) -> RuleEvaluation:
        """Return what the rule says of the epoch that was added last."""


class Band(Fold):
    """A signal whose average has left its band, and for how many epochs."""

    def __init__(
        self, rule: str, config: RulesConfig, signal: str, low: float | None, high: float | None
    ) -> None:
        super().__init__(rule, config)
        self.signal, self.low, self.high = signal, low, high
        self.value: float | None = None
        self.ema: float | None = None
        self.side: str | None = None
        self.streak, self.measured = 0, True

    def read(self, signals: EpochSignals) -> float | None:
        """Return the signal of an epoch."""
        value: float | None = getattr(signals, self.signal)
        return value

    def add(self, signals: EpochSignals) -> None:
        config = self.config
        value = self.value = self.read(signals)
        ends = _interval(signals, self.signal, config)
        # A value that is missing or not finite says nothing: it enters neither EMA nor streak,
        # so that one NaN cannot silence the rule for the rest of the run.
        self.measured = value is not None and math.isfinite(value) and ends is not None
        if value is None or ends is None or not self.measured:
            return
        alpha, ema = config.ema_alpha, self.ema
        self.ema = value if ema is None else alpha * value + (1 - alpha) * ema
        own = (value,) if config.band_needs_value else ()
        left = side_of((self.ema, *own, *ends), self.low, self.high)
        self.streak = 0 if left is None else self.streak + 1 if left == self.side else 1
        self.side = left

    def evaluation(self) -> RuleEvaluation:
        config = self.config
        needed = config.band_persistence or config.persistence
        fired = self.streak >= needed and (self.measured or not config.band_needs_value)
        side = self.side if fired else None
        return RuleEvaluation(self.rule, fired, side, self.value, self.ema, self.streak)


def _interval(signals: EpochSignals, signal: str, config: RulesConfig) -> tuple[float, ...] | None:
    """Return what has to be outside of a band besides the signal; None where it lacks."""
    if signal == "update_ratio" and config.r1_majority:
        return signals.middle_update_ratios or ()
    if not config.r2_needs_interval or signal != "signal_to_noise":
        return ()
    low, high = signals.signal_to_noise_low, signals.signal_to_noise_high
    return None if low is None or high is None or math.isnan(low + high) else (low, high)


def side_of(numbers: Sequence[float], low: float | None, high: float | None) -> str | None:
    """Return the side on which all numbers are outside of a band, None where one is inside."""
    if low is not None and max(numbers) < low:
        return "low"
    return "high" if high is not None and min(numbers) > high else None


class Plateau(Fold):
    """A validation loss that has not beaten its best by `min_delta` for `patience` epochs."""

    def __init__(self, rule: str, config: RulesConfig, patience: int, min_delta: float) -> None:
        super().__init__(rule, config)
        self.patience, self.min_delta = patience, min_delta
        self.best, self.since = math.inf, 0
        self.value: float | None = None

    def add(self, signals: EpochSignals) -> None:
        self.value = signals.val_loss
        if self.value < self.best - self.min_delta:  # false for NaN: a diverged loss is no progress
            self.best, self.since = self.value, 0
        else:
            self.since += 1

    def evaluation(self) -> RuleEvaluation:
        fired, best = self.since >= self.patience, None if self.value is None else self.best
        side = "plateau" if fired else None
        return RuleEvaluation(self.rule, fired, side, self.value, best, self.since)


class Progress:
    """Whether the training loss still falls: its best of some epochs against the best before."""

    def __init__(self, epochs: int, gain: float) -> None:
        self.epochs, self.gain = epochs, gain
        self.losses: list[float] = []  # of the last `epochs`
        self.before: float | None = None  # the best one before these

    def add(self, loss: float) -> None:
        """Take in the loss of the next epoch; one that is not finite is no progress."""
        self.losses.append(loss)
        if len(self.losses) > self.epochs:
            first = self.losses.pop(0)
            self.before = best_of((first,) if self.before is None else (self.before, first))

    @property
    def stands_still(self) -> bool:
        """Whether the best loss is not below the one before by the share `gain`."""
        return self.before is not None and best_of(self.losses) > (1 - self.gain) * self.before


def best_of(losses: Sequence[float]) -> float:
    """Return the least of the losses that are finite; infinity if none is."""
    return min(filter(math.isfinite, losses), default=math.inf)


def is_lower(loss: float, before: float, share: float) -> bool:
    """Return whether a loss is below the one before by more than a share of it.

    It is not where one of them is not finite.
    """
    return math.isfinite(before - loss) and before - loss > share * abs(before)


def guesses(signals: EpochSignals, config: RulesConfig) -> bool:
    """Return whether an epoch's accuracy is known and no better than guessing."""
    limit, skill = config.guess_skill, signals.skill
    return limit is not None and skill is not None and skill <= limit
