"""R2, batch size: the batch does not fit the noise of the gradient."""

from dataclasses import replace
from functools import lru_cache

from aggregates.noise import NoiseProbes, SignalToNoise, pool_noise
from aggregates.rulebook.folds import Band, Fold, Progress, side_of
from aggregates.rulebook.rule import Rule, Side, average
from aggregates.rules import RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals


class _R2(Fold):
    """A batch too large, or too small where progress stalls: noise alone harms nothing.

    Source: McCandlish et al. 2018 (An Empirical Model of Large-Batch Training): a larger batch
    saves steps and costs examples.
    """

    def __init__(self, rule: str, config: RulesConfig) -> None:
        super().__init__(rule, config)
        self.band: Fold = (
            _Pool(rule, config)
            if config.r2_pooled
            else Band(rule, config, config.r2_signal, config.r2_low, config.r2_high)
        )
        self.progress = Progress(config.r2_stall_epochs, config.r2_stall_gain)
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


class _Pool(Fold):
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
            left = side_of(numbers, config.r2_low, config.r2_high)
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


def _limits(rules: RulesConfig) -> str:
    name = rules.r2_signal.replace("_", " ")
    limits = (
        f"{average(rules)} of {name} from {rules.r2_low:g} to {rules.r2_high:g}, "
        f"for {rules.persistence} epochs"
    )
    if rules.r2_stall_epochs:
        limits += (
            f"; low only where the training loss has not fallen by {rules.r2_stall_gain:g} "
            f"of itself in {rules.r2_stall_epochs} epochs"
        )
    if rules.r2_longest_steps is not None:
        limits += f"; high only with an update ratio of at most {rules.r2_longest_steps:g}"
    return limits


RULE = Rule(
    title="batch size",
    kind="tuning",
    fold=_R2,
    sides={
        "low": Side(
            "the batch is too small for the noise of the gradient",
            ("increase_batch_size", "accumulate_gradients"),
        ),
        "high": Side(
            "the batch is larger than the noise of the gradient needs",
            ("decrease_batch_size",),
            undone="back_sets_batch",
        ),
    },
    limits=_limits,
    factors=(2.0, 2.0),
    measured=lambda _: "signal to noise",
    band=("r2_low", "r2_high"),
)
