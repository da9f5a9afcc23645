"""The playbook as a table: which remedies answer a rule, and what each of them changes and needs.

Decisions are checked against it, policies choose from it, and the judge's SQL views read it. What
a remedy does to settings and model is in aggregates.outcomes.
The text for people and models is policies/prompts/playbook.md.
I/O: none.  Units: learning rates per step, batch sizes in examples, epochs from 0.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from aggregates.declared import one_of
from aggregates.noise import NOTHING
from aggregates.rulebook import PRECEDENCE, RULEBOOK, RULES
from aggregates.rules import RulesConfig
from aggregates.spec import OPERATIONS, Activation, Block, Factor
from aggregates.trials import MAX_TRIALS

HYPERPARAMETER_CHANGE = "hyperparameter_change"
ARCHITECTURE_CHANGE = "architecture_change"
NO_ACTION = "rule_triggered_no_action"
EVENT_TYPES = (ARCHITECTURE_CHANGE, HYPERPARAMETER_CHANGE, NO_ACTION)
DEFER = "defer"
GO_BACK = "go_back"
TRY_RATES = "try_rates"
RESTORING = (GO_BACK, TRY_RATES)  # directions that put an earlier state back
FRESH = -1  # the epoch whose state is that of fresh weights

MIN_LR, MAX_LR = 1e-8, 10.0
MAX_ACCUMULATION = 1_024  # batches per optimizer step
MAX_BATCH_SIZE = 65_536  # examples

_Rate = Annotated[float, Meta(ge=MIN_LR, le=MAX_LR)]
PARAMETER_TYPES: Mapping[str, Any] = {
    "lr": _Rate,
    "lr_min": _Rate,
    "lr_max": _Rate,
    "rates": Annotated[list[_Rate], Meta(min_length=2, max_length=MAX_TRIALS)],
    "clip_norm": Annotated[float, Meta(ge=1e-6, le=1e6)],
    "reinitialise": bool,
    "epochs": Annotated[int, Meta(ge=1, le=1_000)],
    "epoch": Annotated[int, Meta(ge=FRESH)],
    "batch_size": Annotated[int, Meta(ge=1, le=MAX_BATCH_SIZE)],
    "accumulation": Annotated[int, Meta(ge=1, le=MAX_ACCUMULATION)],
    "factor": Factor,
    "block": Block,
    "to": Activation,
    "deferred_to": Annotated[str, one_of(PRECEDENCE)],
}


@dataclass(frozen=True)
class Remedy:
    """One direction: its kind, its parameters and the setting that it moves."""

    event_type: str
    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()
    moves: str | None = None  # the setting that the factors of a rule bound
    upwards: bool | None = None  # None: it depends on the rule's side

    @property
    def parameters(self) -> tuple[str, ...]:
        """All parameters that a decision for it may have."""
        return (*self.needs, *self.may_have)


_H, _A = HYPERPARAMETER_CHANGE, ARCHITECTURE_CHANGE
REMEDIES: Mapping[str, Remedy] = {
    "decrease_lr": Remedy(_H, ("lr",), ("clip_norm", "reinitialise"), "lr", upwards=False),
    "increase_lr": Remedy(_H, ("lr",), (), "lr", upwards=True),
    "warm_up_lr": Remedy(_H, ("lr", "epochs"), (), "lr", upwards=False),
    "cycle_lr": Remedy(_H, ("lr_min", "lr_max", "epochs"), (), "lr"),
    "increase_batch_size": Remedy(_H, ("batch_size",), (), "batch_size", upwards=True),
    "decrease_batch_size": Remedy(_H, ("batch_size",), (), "batch_size", upwards=False),
    "accumulate_gradients": Remedy(_H, ("accumulation",), (), "accumulation", upwards=True),
    GO_BACK: Remedy(_H, ("epoch", "lr"), ("clip_norm", "batch_size")),
    TRY_RATES: Remedy(_H, ("epoch", "rates"), ("clip_norm",)),
    "stop": Remedy(_H),
    "add_block": Remedy(_A),
    "widen": Remedy(_A, ("factor",), ("block",)),
    "swap_activation": Remedy(_A, ("to",), ("block",)),
    "add_norm": Remedy(_A, (), ("block",)),
    "add_residual": Remedy(_A, (), ("block",)),
    DEFER: Remedy(NO_ACTION, (), ("deferred_to",)),
}
ARCHITECTURE_DIRECTIONS = OPERATIONS
RATE_DIRECTIONS = tuple(name for name, remedy in REMEDIES.items() if remedy.moves == "lr")

DIRECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    name: {side: told.directions for side, told in rule.sides.items() if told.directions}
    for name, rule in RULEBOOK.items()
}
"""By rule and by the side on which it fired, the directions that answer it."""
UNDONE: Mapping[str, tuple[str, ...]] = {
    name: found
    for name, rule in RULEBOOK.items()
    if (found := tuple(side for side, told in rule.sides.items() if told.undone is True))
}
FACTORS: Mapping[str, tuple[float, float]] = {
    name: rule.factors for name, rule in RULEBOOK.items() if rule.factors
}


def directions(rule: str, side: str | None, rules: RulesConfig) -> tuple[str, ...]:
    """Return the directions that answer a rule on a side, under a set of rules."""
    told = RULEBOOK[rule].sides.get(side or "")
    if told is None:
        return ()
    more = (direction for direction, flag in told.under.items() if getattr(rules, flag))
    found = (*told.directions, *more)
    undone = getattr(rules, told.undone) if isinstance(told.undone, str) else told.undone
    if not undone or not rules.kept_states:
        return found
    return (*found, *RESTORING) if rules.tries_rates and told.tried else (*found, GO_BACK)


def restoring(rules: RulesConfig, *, epochs: int | None) -> tuple[str, ...]:
    """Return the directions that put an earlier state back in a training of so many epochs."""
    if not rules.kept_states:
        return ()
    return RESTORING if rules.tries_rates and epochs is not None else (GO_BACK,)


def rate_remedies(lr: float, restoring: Sequence[str]) -> tuple[str, ...]:
    """Return the directions that can change a learning rate which somebody else has chosen.

    A decision multiplies it, and sets none below MIN_LR or above MAX_LR. One that is too large can
    be lowered by the factors of R1; those that are `restoring` may keep it, so it has to be within.
    """
    if not MIN_LR <= lr <= FACTORS["R1"][0] * MAX_LR:
        return ()
    return (*RATE_DIRECTIONS, *(restoring if lr <= MAX_LR else ()))


def restarted(direction: str, cites: Sequence[str]) -> tuple[str, ...]:
    """Return the rules that start afresh once a remedy that cites `cites` was applied."""
    if direction in RESTORING:
        return RULES
    # add_norm for R1 ends a vanished gradient. R7 must not compare with norms from before it.
    more = ("R7",) if direction == "add_norm" and "R1" in cites else ()
    return (*cites, *more)


def unanswered_sides(rule: str, offers: Collection[str]) -> tuple[str, ...]:
    """Return the sides of a rule for which `offers` has no remedy."""
    undone = UNDONE.get(rule, ()) if GO_BACK in offers else ()
    return tuple(
        side
        for side, able in DIRECTIONS.get(rule, {}).items()
        if not {*able} & {*offers} and side not in undone
    )


def why_waived(
    waived: Iterable[str], offers: Collection[str] | None, noise: str | None
) -> dict[str, str]:
    """Return why each rule is waived.

    `offers` are a loop's remedies, None where it has all; `noise` is what measures the gradient's.
    """
    reasons = {}
    for rule in waived:
        sides = () if offers is None else unanswered_sides(rule, offers)
        reasons[rule] = "by the configuration"
        if rule == "R2" and noise == NOTHING:
            reasons[rule] = (
                "nothing measures its noise: give watch() an accumulation of 2 or more, or a probe"
            )
        elif offers is not None and not offers:
            reasons[rule] = "the loop was only observed, so no remedy could be carried out"
        elif sides:
            reasons[rule] = f"no remedy for {' or '.join(sides)} can be carried out in this loop"
    return reasons


def rises(direction: str, side: str | None) -> bool:
    """Return whether a direction that moves a setting makes it larger."""
    upwards = REMEDIES[direction].upwards
    return side == "low" if upwards is None else upwards


def moved_parameter(direction: str, side: str | None) -> str | None:
    """Return the parameter that holds a moved setting's new value, None if nothing is moved."""
    if direction == "cycle_lr":
        return "lr_max" if rises(direction, side) else "lr_min"
    return REMEDIES[direction].moves
