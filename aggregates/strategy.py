"""Strategy: which class of rule dominated which part of a run, and whether remedies worked.

The views strategy_phases and remedy_effects answer the same in SQL; PHASES and CLASSES are theirs.
I/O: none.  Units: epochs from 0.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from aggregates.decisions import PastDecision
from aggregates.rulebook import RULE_CLASSES

# name, first epoch, class of rule that is expected to need most of the attention
PHASES = (
    ("stabilise", 0, "stability"),
    ("capacity", 5, "capacity"),
    ("tune", 15, "tuning"),
    ("process", 35, "process"),
)
EFFECT_WINDOW = 3  # epochs that a remedy has to silence its rule
CLASSES = tuple(dict.fromkeys(RULE_CLASSES.values()))  # by precedence


@dataclass(frozen=True)
class Phase:
    """A part of a run, as far as the run has come in it."""

    name: str
    first: int
    last: int
    expected: str  # class of rule
    dominant: str | None  # class whose rules fired most, by precedence where equal; None: silence
    firings: Mapping[str, int]  # class -> how often its rules fired


@dataclass(frozen=True)
class Effect:
    """What a remedy did to a rule that it was applied for."""

    decision: int
    rule: str
    epoch: int  # behind which it was applied
    worked: bool | None  # None: cannot be told yet


def phases(fired: Sequence[Collection[str]]) -> tuple[Phase, ...]:
    """Return the phases that a run has reached; `fired` names the rules that fired, by epoch."""
    found = []
    ends = [first - 1 for _, first, _ in PHASES[1:]]
    for (name, first, expected), end in zip(PHASES, [*ends, len(fired) - 1], strict=True):
        if first >= len(fired):
            break
        last = min(end, len(fired) - 1)
        counts = Counter(RULE_CLASSES[rule] for rules in fired[first : last + 1] for rule in rules)
        firings = {kind: counts[kind] for kind in CLASSES if counts[kind]}
        dominant = max(firings, key=lambda kind: firings[kind], default=None)
        found.append(Phase(name, first, last, expected, dominant, firings))
    return tuple(found)


def remedy_effects(
    fired: Sequence[Collection[str]], decisions: Sequence[PastDecision]
) -> tuple[Effect, ...]:
    """Return whether each applied remedy silenced the rules that it cites, by decision and rule.

    It has worked if the rule is silent in the third epoch behind it, and has not if the rule fires
    then, or had to be remedied again before.
    """
    effects: list[Effect] = []
    remedied: dict[str, set[int]] = {}  # epochs of the remedies behind, by rule
    for past in reversed(decisions):
        if past.outcome != "applied":
            continue
        window = range(past.epoch + 1, past.epoch + EFFECT_WINDOW + 1)
        for rule in sorted(past.decision.cites, reverse=True):
            behind = remedied.setdefault(rule, set())
            again = next((epoch for epoch in window if epoch in behind), None)
            told = window[-1] if again is None else again
            worked = None
            if told < len(fired):
                worked = again is None and rule not in fired[told]
            effects.append(Effect(past.number, rule, past.epoch, worked))
            behind.add(past.epoch)
    return tuple(reversed(effects))
