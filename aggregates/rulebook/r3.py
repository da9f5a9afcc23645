"""R3, early stopping: the validation loss has not improved for several epochs."""

from aggregates.rulebook.folds import Plateau
from aggregates.rulebook.rule import Rule, Side

RULE = Rule(
    title="early stopping",
    kind="process",
    fold=lambda name, rules: Plateau(name, rules, rules.r3_patience, rules.r3_min_delta),
    sides={
        "plateau": Side("the validation loss has not improved for several epochs", ("stop",)),
    },
    limits=lambda rules: (
        f"validation loss better by {rules.r3_min_delta:g} within {rules.r3_patience} epochs"
    ),
)
