"""The numbered answers to a situation: what an agent with discrete actions can choose from.

A choice answers the due rule that goes first; the other due rules are deferred to it. The numbers
are stable: a new choice goes to the end.

Source: docs/how-to/agents.md.  I/O: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aggregates.decisions import (
    Decision,
    Observation,
    Settings,
    parse_decision,
    validate_decision,
)
from aggregates.errors import AggregateError
from aggregates.outcomes import derive_outcome
from aggregates.playbook import DEFER, DIRECTIONS, FACTORS, REMEDIES, moved_parameter, rises
from aggregates.spec import ACTIVATIONS

LEAST, MOST = "least", "most"
_EPOCHS = 2  # of a warm-up or a cycle


@dataclass(frozen=True)
class Choice:
    """A direction, with the factor by which it moves a setting and its other parameters."""

    direction: str
    size: str | None = None  # LEAST or MOST of the playbook's factors; None: there is one
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The choice in words."""
        more = [f"{key}={value}" for key, value in self.params.items()]
        return " ".join(filter(None, (self.direction, self.size, *more)))


CHOICES: tuple[Choice, ...] = (
    Choice(DEFER),
    Choice("decrease_lr", LEAST),
    Choice("decrease_lr", MOST),
    Choice("decrease_lr", MOST, {"clip_norm": 1.0}),
    Choice("decrease_lr", MOST, {"reinitialise": True}),
    *(Choice("warm_up_lr", size, {"epochs": _EPOCHS}) for size in (LEAST, MOST)),
    *(Choice("increase_lr", size) for size in (LEAST, MOST)),
    *(Choice("cycle_lr", size, {"epochs": _EPOCHS}) for size in (LEAST, MOST)),
    Choice("increase_batch_size"),
    Choice("decrease_batch_size"),
    Choice("accumulate_gradients"),
    Choice("stop"),
    Choice("add_block"),
    Choice("widen", None, {"factor": 2}),
    *(Choice("swap_activation", None, {"to": kind}) for kind in ACTIVATIONS),
    Choice("add_norm"),
    Choice("add_residual"),
)


def answers(seen: Observation) -> list[list[dict[str, Any]] | None]:
    """Return the decisions that each choice stands for; None: it does not fit the situation."""
    return [_answer(choice, seen) for choice in CHOICES]


def choices_on(rule: str, seen: Observation) -> dict[str, Decision]:
    """Return what the choices stand for on one due rule, by name, without those that do not fit."""
    found = {choice.name: _decision(choice, rule, seen) for choice in CHOICES}
    return {name: decision for name, decision in found.items() if decision is not None}


def _answer(choice: Choice, seen: Observation) -> list[dict[str, Any]] | None:
    first, *others = seen.due
    decision = _decision(choice, first, seen)
    if decision is None:
        return None
    waiting = {"deferred_to": first} if decision.acts else {}
    words = f"{first} goes first." if decision.acts else "The agent chose to wait."
    return [
        decision.to_dict(),
        *(Decision.of((rule,), DEFER, waiting, f"{rule}: {words}").to_dict() for rule in others),
    ]


def _decision(choice: Choice, rule: str, seen: Observation) -> Decision | None:
    """Return the decision on a rule if it is valid and can be carried out."""
    side = seen.evaluations[rule].side or ""
    if choice.direction == DEFER:
        return Decision.of((rule,), DEFER, {}, f"{rule}: the agent chose to wait.")
    if choice.direction not in DIRECTIONS[rule].get(side, ()):
        return None
    try:
        params = {**_moved(choice, rule, side, seen.settings), **choice.params}
    except ArithmeticError:
        return None
    words = f"{rule}: the agent chose {choice.name}."
    return fitting(Decision.of((rule,), choice.direction, params, words), seen)


def fitting(decision: Decision, seen: Observation) -> Decision | None:
    """Return a decision as it is recorded, None if it is invalid or cannot be carried out."""
    try:
        decision = parse_decision(decision.to_dict())
        validate_decision(decision, seen)
        derive_outcome(
            decision,
            settings=seen.settings,
            spec=seen.spec,
            epoch=seen.epoch,
            max_batch_size=seen.max_batch_size,
            train_examples=seen.train_examples,
        )
    except (AggregateError, ArithmeticError):
        return None
    return decision


def _moved(choice: Choice, rule: str, side: str, settings: Settings) -> dict[str, Any]:
    """Return the setting that is moved, at its new value; raises ArithmeticError if it has none."""
    direction = choice.direction
    name, moves = moved_parameter(direction, side), REMEDIES[direction].moves
    if name is None or moves is None:
        return {}
    least, most = FACTORS[rule]
    if choice.size == LEAST and least == most:
        raise ArithmeticError("the same as the choice with the largest factor")
    factor, old = (most if choice.size == MOST else least), getattr(settings, moves)
    new = old * factor if rises(direction, side) else old / factor
    if moves != "lr":
        if new != int(new):
            raise ArithmeticError("half of an odd number")
        new = int(new)
    ends = {"lr_min": old, "lr_max": old} if direction == "cycle_lr" else {}
    return {**ends, name: new}
