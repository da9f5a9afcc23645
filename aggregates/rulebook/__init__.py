"""The rules that this program knows: a file for each, whose RULE says all that is said of it.

Which of them a run has is in its recorded RulesConfig, so a rule that is added changes no judgment
of a run from before it.

Source: docs/reference/rules.md.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from aggregates.errors import InvariantError
from aggregates.rulebook.rule import KINDS, Rule
from aggregates.rules import FIRST_RULES, RuleEvaluation, RulesConfig

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


def known_rules(recorded: Mapping[str, Any]) -> RulesConfig:
    """Return a recorded configuration; raises InvariantError for rules that are not known."""
    names = recorded.get("names", FIRST_RULES)
    if not names or not isinstance(names, list | tuple) or len({*map(str, names)}) != len(names):
        raise InvariantError(f"names must be a list of different rules, not {names!r:.200}")
    if strange := [name for name in names if not isinstance(name, str) or name not in RULEBOOK]:
        raise InvariantError(
            f"this version does not know the rule {strange[0]!r:.80}; use the version that "
            "recorded the run"
        )
    return RulesConfig(**recorded)


def told_rules(names: Sequence[str]) -> str:
    """Return how many rules there are and what they are called, for models that decide."""
    return f"{len(names)} rule{'s' * (len(names) > 1)} ({', '.join(names)})"


def fired_in_precedence(evaluations: Mapping[str, RuleEvaluation]) -> tuple[str, ...]:
    """Return the rules that fired, the one to act on first in front."""
    return tuple(rule for rule in PRECEDENCE if rule in evaluations and evaluations[rule].fired)
