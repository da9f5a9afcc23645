"""The rules that this program knows: a file for each, whose RULE says all that is said of it.

Which of them a run has is in its recorded RulesConfig, so a rule that is added changes no judgment
of a run from before it.

Source: docs/reference/rules.md.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from aggregates.rulebook.rule import KINDS, Rule
from aggregates.rules import RuleEvaluation

_FILES = sorted(
    (each.name for each in iter_modules(__path__) if each.name[1:].isdigit()),
    key=lambda name: int(name[1:]),
)
RULEBOOK: Mapping[str, Rule] = {
    name.upper(): import_module(f"{__name__}.{name}").RULE for name in _FILES
}
RULES = tuple(RULEBOOK)
RULE_TITLES: Mapping[str, str] = {name: rule.title for name, rule in RULEBOOK.items()}
PRECEDENCE = tuple(  # first goes first
    sorted(RULES, key=lambda name: (KINDS.index(RULEBOOK[name].kind), not RULEBOOK[name].first))
)
RULE_CLASSES: Mapping[str, str] = {name: RULEBOOK[name].kind for name in PRECEDENCE}


def fired_in_precedence(evaluations: Mapping[str, RuleEvaluation]) -> tuple[str, ...]:
    """Return the rules that fired, the one to act on first in front."""
    return tuple(rule for rule in PRECEDENCE if rule in evaluations and evaluations[rule].fired)
