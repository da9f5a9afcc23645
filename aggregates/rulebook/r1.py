"""R1, learning rate: each update changes the weights too much or too little."""

import math
from dataclasses import replace

from aggregates.rulebook.folds import Band, Fold, Plateau, Progress, guesses, is_lower
from aggregates.rulebook.rule import Rule, Side, average, outside
from aggregates.rules import RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals


class _Guessing:
    """A model that is no better than guessing, and whose loss does not fall either."""

    def __init__(self, config: RulesConfig) -> None:
        self.config = config
        self.progress = Progress(2, config.guess_gain)
        self.streak = 0

    def add(self, signals: EpochSignals) -> None:
        self.progress.add(signals.train_loss)
        self.streak = self.streak + 1 if guesses(signals, self.config) else 0

    @property
    def fired(self) -> bool:
        """Whether it has guessed for long enough."""
        return self.streak >= self.config.persistence and self.progress.stands_still


class _R1(Fold):
    """Steps too long or too short, a model that only guesses, or a loss that falls no more."""

    def __init__(self, rule: str, config: RulesConfig) -> None:
        super().__init__(rule, config)
        self.band = Band(rule, config, config.r1_signal, config.r1_low, config.r1_high)
        self.guessing = _Guessing(config)
        self.plateau = Plateau(rule, config, config.r1_patience, config.r1_min_delta)
        self.harmless = False  # the latest epoch learned, so its long steps do no harm

    def add(self, signals: EpochSignals) -> None:
        # No validation loss precedes the first epoch; its mean training loss takes that place.
        before = signals.train_loss if self.plateau.best == math.inf else self.plateau.best
        gain = self.config.r1_learning_gain
        self.harmless = (
            gain is not None
            and is_lower(signals.val_loss, before, gain)
            and not guesses(signals, self.config)  # from a peak, a loss falls without learning
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


def _limits(rules: RulesConfig) -> str:
    name = rules.r1_signal.replace("_", " ")
    guessing = learned = ""
    if rules.guess_skill is not None:
        guessing = (
            f"guessing where accuracy is at most {rules.guess_skill:g} of the way from "
            f"guessing to always right, for {rules.persistence} epochs, and the training loss "
            "stands still; "
        )
    if rules.r1_learning_gain is not None:
        learned = (
            "more is allowed while an epoch lowers the validation loss by "
            f"{rules.r1_learning_gain:g} of itself, up to {rules.r1_at_once:g}; "
        )
    return (
        f"{average(rules)} of {name} from {rules.r1_low:g} to {rules.r1_high:g}, "
        f"{outside(rules)}; {learned}{guessing}plateau after {rules.r1_patience} epochs without a "
        "better validation loss"
    )


RULE = Rule(
    title="learning rate",
    kind="tuning",
    first=True,
    fold=_R1,
    sides={
        "high": Side(
            "each update changes the weights too much",
            ("decrease_lr", "warm_up_lr"),
            undone=True,
            tried=True,
        ),
        "low": Side(
            "each update changes the weights too little",
            ("increase_lr", "cycle_lr"),
            # Without it, deep models may have no gradient.
            under={"add_norm": "r1_adds_norm"},
            undone=True,
            tried=True,
        ),
        "guessing": Side(
            "the model is no better than guessing, and its training loss stands still",
            under={"add_norm": "r1_adds_norm"},
            undone=True,
            tried=True,
        ),
        "plateau": Side("training no longer gains", ("decrease_lr", "cycle_lr")),
    },
    limits=_limits,
    factors=(3.0, 10.0),
    measured=lambda _: "update ratio",
    band=("r1_low", "r1_high"),
)
