"""R5, activations: too many of them are dead."""

from aggregates.rulebook.folds import Band
from aggregates.rulebook.rule import Rule, Side, average, outside

RULE = Rule(
    title="activations",
    kind="capacity",
    fold=lambda name, rules: Band(name, rules, rules.r5_signal, None, rules.r5_high),
    sides={"high": Side("too many activations are dead", ("swap_activation",), undone=True)},
    limits=lambda rules: (
        f"{average(rules)} of {rules.r5_signal.replace('_', ' ')} at most {rules.r5_high:g}, "
        f"{outside(rules)}"
    ),
    measured=lambda _: "share of dead activations",
    band=("", "r5_high"),
)
