"""R7, exploding gradients: they are far too large, or not finite."""

import math
from bisect import insort
from dataclasses import replace
from statistics import median

from aggregates.rulebook.folds import Band
from aggregates.rulebook.rule import Rule, Side, average, outside
from aggregates.rules import GROWTH, RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals

_SIGNALS = {
    "max_layer_grad_norm": "largest gradient norm",
    GROWTH: "largest gradient norm over its median before",
}


class _Growth(Band):
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


def _fold(name: str, rules: RulesConfig) -> Band:
    kind = _Growth if rules.r7_signal == GROWTH else Band
    return kind(name, rules, rules.r7_signal, None, rules.r7_high)


def _at_once(band: RuleEvaluation, latest: EpochSignals, config: RulesConfig) -> RuleEvaluation:
    losses = (latest.train_loss, latest.val_loss) if config.r7_validation else (latest.train_loss,)
    if not latest.gradients_finite or not all(map(math.isfinite, losses)):
        return replace(band, fired=True, side="not_finite")
    norm, limit = latest.max_layer_grad_norm, config.r7_at_once
    if norm is not None and limit is not None and norm > limit:  # false for NaN
        return replace(band, fired=True, side="high")
    return band


def _limits(rules: RulesConfig) -> str:
    at_once = "" if rules.r7_at_once is None else f", and at most {rules.r7_at_once:g} at once"
    high = f"at most {rules.r7_high:g}, {outside(rules)}{at_once}"
    return f"{average(rules)} of {_SIGNALS[rules.r7_signal]} {high}; finite"


RULE = Rule(
    title="exploding gradients",
    kind="stability",
    first=True,
    fold=_fold,
    sides={
        "high": Side("gradients are far too large", ("decrease_lr",), undone=True, tried=True),
        "not_finite": Side(
            "a loss or a gradient is not a finite number",
            ("decrease_lr",),
            undone=True,
            tried=True,
        ),
    },
    limits=_limits,
    factors=(10.0, 10.0),
    measured=lambda said: _SIGNALS.get(str(said.get("r7_signal", "max_layer_grad_norm")), ""),
    band=("", "r7_high"),
    at_once=_at_once,
)
