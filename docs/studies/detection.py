"""Whether a rule saw a fault in time, and which rule went first.

Source: docs/reference/rules.md for what fires when.  I/O: none.  Units: epochs from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aggregates.firing import evaluate_epochs
from aggregates.provocations import Fault
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import RulesConfig
from aggregates.signals import EpochSignals

SLACK = 2  # epochs after the earliest possible one in which a fault still counts as seen in time

Fired = tuple[str, ...]  # the rules that fire in an epoch, the one to act on first in front


@dataclass(frozen=True)
class Detection:
    """What the rules said of one run with a fault."""

    earliest: int  # first epoch in which the expected rule can fire
    first: int | None  # first epoch in which it fired
    front: str | None  # the rule to act on first, in the first epoch in which any rule fired
    expects: Fired

    @property
    def in_time(self) -> bool:
        """Whether the expected rule fired within two epochs of the earliest possible one."""
        return self.first is not None and self.first <= self.earliest + SLACK

    @property
    def wrong_in_front(self) -> bool:
        """Whether the first rule to act on is one that the fault is not meant to make fire."""
        return self.front is not None and self.front not in self.expects


def fired_by_epoch(history: Sequence[EpochSignals], rules: RulesConfig) -> list[Fired]:
    """Return what fires in each epoch where nobody acts."""
    return list(map(fired_in_precedence, evaluate_epochs(history, [], rules)))


def earliest_epoch(rule: str, fault: Fault, rules: RulesConfig) -> int:
    """Return the first epoch in which a rule can fire for a fault.

    R4 compares accuracies with earlier ones. R7 and R1 ask for no persistence where a loss is not
    finite or a signal is above the limit at which they fire at once; what fires so is too large, so
    a learning rate that is too low has to persist.
    """
    loss = fault.changes.get("loss")
    start = 0 if loss is None else int(loss["first"])
    if rule == "R7" and rules.r7_at_once is not None:
        return start
    if rule == "R1" and rules.r1_at_once is not None and fault.name != "lr_too_low":
        return start
    if rule == "R4":
        return start + rules.persistence
    return start + rules.persistence - 1


def detect(fired: Sequence[Fired], fault: Fault, rules: RulesConfig) -> Detection:
    """Say when the expected rule fired, and which rule was in front when the first one did."""
    expected = set(fault.expects)
    return Detection(
        earliest=min(earliest_epoch(rule, fault, rules) for rule in fault.expects),
        first=next((epoch for epoch, now in enumerate(fired) if expected & set(now)), None),
        front=next((now[0] for now in fired if now), None),
        expects=tuple(fault.expects),
    )
