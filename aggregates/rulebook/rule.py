"""What a rule is: the declaration that everything else about it follows from.

I/O: none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aggregates.rulebook.folds import Fold
from aggregates.rules import RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals

KINDS = ("stability", "capacity", "tuning", "process")
"""The classes of rules; first goes first."""


@dataclass(frozen=True)
class Side:
    """A way in which a rule fires."""

    meaning: str  # in words, for people
    directions: tuple[str, ...] = ()  # that answer it: keys of aggregates.playbook.REMEDIES
    # Other directions that answer it, each with the field of RulesConfig under which it does.
    under: Mapping[str, str] = field(default_factory=dict)
    # It tells of damage, or of a rate, that going back can undo: always, or under that field.
    undone: bool | str = False
    tried: bool = False  # rates may be tried: what is measured tells of no rate that is right


@dataclass(frozen=True)
class Rule:
    """One rule: when it fires, and what answers it."""

    title: str
    kind: str  # one of KINDS
    fold: Callable[[str, RulesConfig], Fold]  # what it keeps, made of its name
    sides: Mapping[str, Side]
    limits: Callable[[RulesConfig], str]  # its thresholds in words, for models that decide
    first: bool = False  # among the rules of its kind
    # The least and the largest factor by which its remedies move a setting.
    factors: tuple[float, float] | None = None
    # What it compares with its limits, in words; and the fields of RulesConfig that are its limits.
    measured: Callable[[Mapping[str, object]], str] = lambda _: ""
    band: tuple[str, str] = ("", "")
    # What it says at once of the latest epoch, whatever was before.
    at_once: Callable[[RuleEvaluation, EpochSignals, RulesConfig], RuleEvaluation] | None = None
    silenced_by: tuple[str, ...] = ()  # it is silent where one of these fires


def outside(rules: RulesConfig) -> str:
    """Return for how long a band has to be left, in words."""
    return f"for {rules.band_persistence or rules.persistence} epochs"


def average(rules: RulesConfig) -> str:
    """Return what is compared with a band, in words."""
    return "average and value" if rules.band_needs_value else "average"
