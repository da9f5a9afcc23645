"""R4, capacity: training accuracy stands still."""

from aggregates.rulebook.folds import Fold, guesses
from aggregates.rulebook.rule import Rule, Side
from aggregates.rules import RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals


class _R4(Fold):
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
        stalled = stalled and not guesses(signals, self.config)
        self.streak = self.streak + 1 if stalled else 0

    def evaluation(self) -> RuleEvaluation:
        fired = self.streak >= self.config.persistence
        return RuleEvaluation(
            self.rule, fired, "stalled" if fired else None, self.value, None, self.streak
        )


RULE = Rule(
    title="capacity",
    kind="capacity",
    first=True,
    fold=_R4,
    sides={
        "stalled": Side(
            "training accuracy stands still: the model may be too small", ("add_block", "widen")
        )
    },
    limits=lambda rules: (
        f"training accuracy moves by {rules.r4_saturation_gap:g} an epoch, or is above "
        f"{rules.r4_ceiling:g}, for {rules.persistence} epochs"
    ),
    silenced_by=("R5", "R6", "R7"),
)
