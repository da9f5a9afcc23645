"""When the rules fire: pure functions of the measured history, evaluated in one place only.

Two parties call evaluate_rules(): the monitor while a run goes on, and the judge again, from
verified bytes. It never sees what the training loop reports.

Source: docs/reference/rules.md.  I/O: none.  Units: epochs from 0; see EpochSignals.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median

from aggregates.noise import NoiseProbes, SignalToNoise, pool_noise
from aggregates.rules import GROWTH, RULES, AppliedRemedy, RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals
from aggregates.trials import chosen_trial


def evaluate_rules(
    history: Sequence[EpochSignals], remedies: Sequence[AppliedRemedy], config: RulesConfig
) -> dict[str, RuleEvaluation]:
    """Evaluate all seven rules for the latest epoch of `history`, which must not be empty."""
    return RuleMemory(config).evaluate(history, remedies)


def evaluate_epochs(
    history: Sequence[EpochSignals],
    remedies: Sequence[AppliedRemedy],
    config: RulesConfig,
    *,
    first: int = 0,
) -> Iterator[dict[str, RuleEvaluation]]:
    """Yield the evaluation of each epoch from `first` on, with the remedies applied before it."""
    memory, due = RuleMemory(config), sorted(remedies, key=lambda remedy: remedy.epoch)
    for place in range(first, len(history)):
        known = bisect_left(due, history[place].epoch, key=lambda remedy: remedy.epoch)
        yield memory.evaluate(history, due[:known] if known else (), end=place + 1)


class RuleMemory:
    """What the rules know of a run, so that the next epoch costs no more than the first.

    What a rule says of an epoch follows from the epochs after its last remedy. Of trials, which no
    rule judges, only the one that goes on counts afterwards. Both sequences that are passed may
    only have grown since the last time.
    """

    def __init__(self, config: RulesConfig) -> None:
        self._config = config
        self._read = 0  # remedies
        self._since = dict.fromkeys(RULES, -1)  # epoch of the last remedy
        self._trials = range(0)  # the latest epochs that are trials
        self._left: Collection[int] | None = ()  # of these, those that did not go on
        self._folds = {rule: _fold(rule, config) for rule in RULES}

    def __repr__(self) -> str:
        """Return the same text always: it spares time and changes nothing."""
        return "RuleMemory()"

    def evaluate(
        self,
        history: Sequence[EpochSignals],
        remedies: Sequence[AppliedRemedy],
        *,
        end: int | None = None,
    ) -> dict[str, RuleEvaluation]:
        """Evaluate all seven rules for the latest epoch, the last before `end` if it is given."""
        config, end = self._config, len(history) if end is None else end
        for remedy in remedies[self._read :] if config.restart_after_remedy else ():
            if remedy.epoch > self._since[remedy.rule]:
                self._since[remedy.rule] = remedy.epoch
                self._folds[remedy.rule] = _fold(remedy.rule, config)
            if remedy.trials:
                self._trials = range(remedy.epoch + 1, remedy.epoch + 1 + remedy.trials)
                self._left = None
        self._read = len(remedies)
        if history[end - 1].epoch in self._trials:
            return {rule: fold.evaluation() for rule, fold in self._folds.items()}
        if self._left is None:
            tried = [signals for signals in history[:end] if signals.epoch in self._trials]
            best = chosen_trial([signals.val_loss for signals in tried])
            self._left = {each.epoch for place, each in enumerate(tried) if place != best}
        for rule, fold in self._folds.items():
            fold.go_on(history, end, since=self._since[rule], without=self._left)
        found = {rule: fold.evaluation() for rule, fold in self._folds.items()}
        found["R7"] = _r7(found["R7"], history[end - 1], config)
        if any(found[rule].fired for rule in ("R5", "R6", "R7")):
            found["R4"] = replace(found["R4"], fired=False, side=None)
        return found


class _Fold(ABC):
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


class _Band(_Fold):
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
        left = _side((self.ema, *own, *ends), self.low, self.high)
        self.streak = 0 if left is None else self.streak + 1 if left == self.side else 1
        self.side = left

    def evaluation(self) -> RuleEvaluation:
        config = self.config
        needed = config.band_persistence or config.persistence
        fired = self.streak >= needed and (self.measured or not config.band_needs_value)
        side = self.side if fired else None
        return RuleEvaluation(self.rule, fired, side, self.value, self.ema, self.streak)


class _Growth(_Band):
    """The gradient's norm in units of what it was before: no scale of a loss moves it."""

    def __init__(
        self, rule: str, config: RulesConfig, signal: str, low: float | None, high: float | None
    ) -> None:
        super().__init__(rule, config, signal, low, high)
        self.before: list[float] = []  # in order of size

    def read(self, signals: EpochSignals) -> float | None:
        """Return the signal of an epoch; None for the first, and where no gradient was before."""
        norm = signals.max_layer_grad_norm
        if norm is None or not math.isfinite(norm):
            return norm
        usual = median(self.before) if self.before else 0.0
        insort(self.before, norm)
        return norm / usual if usual else None


def _interval(signals: EpochSignals, signal: str, config: RulesConfig) -> tuple[float, ...] | None:
    """Return what has to be outside of a band besides the signal; None where it lacks."""
    if signal == "update_ratio" and config.r1_majority:
        return signals.middle_update_ratios or ()
    if not config.r2_needs_interval or signal != "signal_to_noise":
        return ()
    low, high = signals.signal_to_noise_low, signals.signal_to_noise_high
    return None if low is None or high is None or math.isnan(low + high) else (low, high)


def _side(numbers: Sequence[float], low: float | None, high: float | None) -> str | None:
    """Return the side on which all numbers are outside of a band, None where one is inside."""
    if low is not None and max(numbers) < low:
        return "low"
    return "high" if high is not None and min(numbers) > high else None


class _Plateau(_Fold):
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


class _Progress:
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
            self.before = _best((first,) if self.before is None else (self.before, first))

    @property
    def stands_still(self) -> bool:
        """Whether the best loss is not below the one before by the share `gain`."""
        return self.before is not None and _best(self.losses) > (1 - self.gain) * self.before


def is_lower(loss: float, before: float, share: float) -> bool:
    """Return whether a loss is below the one before by more than a share of it.

    It is not where one of them is not finite.
    """
    return math.isfinite(before - loss) and before - loss > share * abs(before)


def _guesses(signals: EpochSignals, config: RulesConfig) -> bool:
    """Return whether an epoch's accuracy is known and no better than guessing."""
    limit, skill = config.guess_skill, signals.skill
    return limit is not None and skill is not None and skill <= limit


class _Guessing:
    """A model that is no better than guessing, and whose loss does not fall either."""

    def __init__(self, config: RulesConfig) -> None:
        self.config = config
        self.progress = _Progress(2, config.guess_gain)
        self.streak = 0

    def add(self, signals: EpochSignals) -> None:
        self.progress.add(signals.train_loss)
        self.streak = self.streak + 1 if _guesses(signals, self.config) else 0

    @property
    def fired(self) -> bool:
        """Whether it has guessed for long enough."""
        return self.streak >= self.config.persistence and self.progress.stands_still


class _R1(_Fold):
    """Steps too long or too short, a model that only guesses, or a loss that falls no more."""

    def __init__(self, rule: str, config: RulesConfig) -> None:
        super().__init__(rule, config)
        self.band = _Band(rule, config, config.r1_signal, config.r1_low, config.r1_high)
        self.guessing = _Guessing(config)
        self.plateau = _Plateau(rule, config, config.r1_patience, config.r1_min_delta)
        self.harmless = False  # the latest epoch learned, so its long steps do no harm

    def add(self, signals: EpochSignals) -> None:
        # No validation loss precedes the first epoch; its mean training loss takes that place.
        before = signals.train_loss if self.plateau.best == math.inf else self.plateau.best
        gain = self.config.r1_learning_gain
        self.harmless = (
            gain is not None
            and is_lower(signals.val_loss, before, gain)
            and not _guesses(signals, self.config)  # from a peak, a loss falls without learning
        )
        self.band.add(signals)
        self.guessing.add(signals)
        self.plateau.add(signals)

    def evaluation(self) -> RuleEvaluation:
        band, latest, at_once = self.band.evaluation(), self.band.value, self.config.r1_at_once
        killing = latest is not None and at_once is not None and latest > at_once
        spared = band.side == "high" and self.harmless and not killing
        if band.fired and not spared:
            return band
        if killing and not self.config.r1_majority:  # with it, the band has to fire, too
            # Steps so large kill a model in one epoch.
            return replace(band, fired=True, side="high")
        band = replace(band, fired=False, side=None)
        if self.guessing.fired:
            return replace(band, fired=True, side="guessing", streak=self.guessing.streak)
        plateau = self.plateau.evaluation()
        return plateau if plateau.fired else band


class _R2(_Fold):
    """A batch too large, or too small where progress stalls: noise alone harms nothing.

    Source: McCandlish et al. 2018 (An Empirical Model of Large-Batch Training): a larger batch
    saves steps and costs examples.
    """

    def __init__(self, rule: str, config: RulesConfig) -> None:
        super().__init__(rule, config)
        self.band: _Fold = (
            _Pool(rule, config)
            if config.r2_pooled
            else _Band(rule, config, config.r2_signal, config.r2_low, config.r2_high)
        )
        self.progress = _Progress(config.r2_stall_epochs, config.r2_stall_gain)
        self.long = False  # the latest epoch's steps are too long for a smaller batch

    def add(self, signals: EpochSignals) -> None:
        self.band.add(signals)
        self.progress.add(signals.train_loss)
        ratio, limit = signals.update_ratio, self.config.r2_longest_steps
        self.long = ratio is not None and limit is not None and ratio > limit

    def evaluation(self) -> RuleEvaluation:
        band = self.band.evaluation()
        stalled = self.config.r2_stall_epochs == 0 or self.progress.stands_still
        if (band.side == "low" and not stalled) or (band.side == "high" and self.long):
            return replace(band, fired=False, side=None)
        return band


class _Pool(_Fold):
    """Compares what the probes of the last `persistence` epochs say together with R2's band.

    One epoch has a probe for every 48 steps, too few for an interval of its own that says much.
    Pooling takes the place of average and persistence. The epoch's own ratio, where it has one, has
    to be on the same side. `ema` is the pooled ratio; the streak counts
    the epochs whose pool lies outside. An epoch without probes adds nothing.
    """

    def __init__(self, rule: str, config: RulesConfig) -> None:
        super().__init__(rule, config)
        # What is new, behind the epochs that are pooled with its first.
        self.epochs: list[tuple[NoiseProbes | None, float | None]] = []
        self.new = 0
        self.newest: SignalToNoise | None = None
        self.side: str | None = None
        self.streak = 0

    def add(self, signals: EpochSignals) -> None:
        self.epochs.append((signals.noise, signals.signal_to_noise))
        self.new += 1

    def evaluation(self) -> RuleEvaluation:
        if self.new:
            self._pool()
        fired = self.newest is not None and self.side is not None
        value = self.epochs[-1][1] if self.epochs else None
        ema = None if self.newest is None else self.newest.estimate
        return RuleEvaluation(
            self.rule, fired, self.side if fired else None, value, ema, self.streak
        )

    def _pool(self) -> None:
        """Go back from the latest epoch to where its streak began; a pool is dear."""
        config, streak, side = self.config, 0, None
        self.newest = None
        for end in range(len(self.epochs), len(self.epochs) - self.new, -1):
            if end < config.persistence:
                continue
            last = self.epochs[end - config.persistence : end]
            pooled = _pooled(tuple(noise for noise, _ in last if noise is not None))
            if end == len(self.epochs):
                self.newest = pooled
            if pooled is None:
                continue
            own = last[-1][1]  # large gradients of an earlier epoch outweigh later ones
            numbers = (pooled.low, pooled.high) if own is None else (pooled.low, pooled.high, own)
            left = _side(numbers, config.r2_low, config.r2_high)
            if left is None or (streak and left != side):
                break
            streak, side = streak + 1, left
        else:
            if not streak:
                streak, side = self.streak, self.side
            elif side == self.side:
                streak += self.streak
        self.streak, self.side, self.new = streak, side, 0
        del self.epochs[: -config.persistence]


@lru_cache(maxsize=4_096)  # in a long streak, each epoch asks for the pools of all before it
def _pooled(epochs: tuple[NoiseProbes, ...]) -> SignalToNoise | None:
    return pool_noise(epochs)


def _best(losses: Sequence[float]) -> float:
    return min(filter(math.isfinite, losses), default=math.inf)


class _R4(_Fold):
    """A training accuracy that stays where it is, between guessing and the ceiling."""

    def __init__(self, rule: str, config: RulesConfig) -> None:
        super().__init__(rule, config)
        self.accuracies: list[float | None] = []  # of the last two epochs
        self.value: float | None = None
        self.streak = 0

    def add(self, signals: EpochSignals) -> None:
        self.accuracies = [*self.accuracies[-1:], signals.train_accuracy]
        if len(self.accuracies) < 2:
            return
        before, now = self.accuracies
        if before is None or now is None:
            self.streak, self.value = 0, None  # nothing measures it
            return
        self.value = now - before
        stalled = abs(self.value) < self.config.r4_saturation_gap and now < self.config.r4_ceiling
        stalled = stalled and not _guesses(signals, self.config)
        self.streak = self.streak + 1 if stalled else 0

    def evaluation(self) -> RuleEvaluation:
        fired = self.streak >= self.config.persistence
        return RuleEvaluation(
            self.rule, fired, "stalled" if fired else None, self.value, None, self.streak
        )


def _fold(rule: str, config: RulesConfig) -> _Fold:
    """Return a rule as it stands before its first epoch."""
    match rule:
        case "R1":
            return _R1(rule, config)
        case "R2":
            return _R2(rule, config)
        case "R3":
            return _Plateau(rule, config, config.r3_patience, config.r3_min_delta)
        case "R4":
            return _R4(rule, config)
        case "R5":
            return _Band(rule, config, config.r5_signal, None, config.r5_high)
        case "R6":
            return _Band(rule, config, config.r6_signal, config.r6_low, None)
    if config.r7_signal == GROWTH:
        return _Growth(rule, config, GROWTH, None, config.r7_high)
    return _Band(rule, config, config.r7_signal, None, config.r7_high)


def _r7(band: RuleEvaluation, latest: EpochSignals, config: RulesConfig) -> RuleEvaluation:
    losses = (latest.train_loss, latest.val_loss) if config.r7_validation else (latest.train_loss,)
    if not latest.gradients_finite or not all(map(math.isfinite, losses)):
        return replace(band, fired=True, side="not_finite")
    norm, limit = latest.max_layer_grad_norm, config.r7_at_once
    if norm is not None and limit is not None and norm > limit:  # false for NaN
        return replace(band, fired=True, side="high")
    return band
