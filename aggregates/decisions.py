"""Decisions: what a policy may answer when rules fire, and what makes an answer valid.

A decision is recorded as its author said it. What the harness could not do is another event.

Trust: whatever a policy returns is hostile until parse_decision() and validate_decision() return.
I/O: none.  Units: learning rates per step, batch sizes in examples, windows in epochs.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from aggregates.errors import DecisionError, SpecError
from aggregates.rules import PRECEDENCE, RULES, RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals
from aggregates.spec import Edit, ModelSpec

HYPERPARAMETER_CHANGE = "hyperparameter_change"
ARCHITECTURE_CHANGE = "architecture_change"
NO_ACTION = "rule_triggered_no_action"
EVENT_TYPES = (ARCHITECTURE_CHANGE, HYPERPARAMETER_CHANGE, NO_ACTION)

MIN_LR, MAX_LR = 1e-8, 10.0
LEAST_LR_FACTOR = 3.0  # by which R1 moves a learning rate
MAX_ACCUMULATION = 1_024  # batches per optimizer step
MAX_BATCH_SIZE = 65_536  # examples
MAX_JUSTIFICATION = 4_000  # characters

DEFER = "defer"
# rule -> side on which its signal left the band -> directions that the playbook knows for it
DIRECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "R1": {
            "high": ("decrease_lr", "warm_up_lr"),
            "low": ("increase_lr", "cycle_lr"),
            "plateau": ("decrease_lr", "cycle_lr"),
        },
        "R2": {
            "low": ("increase_batch_size", "accumulate_gradients"),
            "high": ("decrease_batch_size",),
        },
        "R3": {"plateau": ("stop",)},
        "R4": {"stalled": ("add_block", "widen")},
        "R5": {"high": ("swap_activation",)},
        "R6": {"low": ("add_norm", "add_residual", "swap_activation")},
        "R7": {"high": ("decrease_lr",), "not_finite": ("decrease_lr",)},
    }
)
ARCHITECTURE_DIRECTIONS = ("add_block", "add_norm", "add_residual", "swap_activation", "widen")
# direction -> parameters it must have, parameters it may have
PARAMETERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "decrease_lr": (("lr",), ("clip_norm", "reinitialise")),
        "increase_lr": (("lr",), ()),
        "warm_up_lr": (("lr", "epochs"), ()),
        "cycle_lr": (("lr_min", "lr_max", "epochs"), ()),
        "increase_batch_size": (("batch_size",), ()),
        "decrease_batch_size": (("batch_size",), ()),
        "accumulate_gradients": (("accumulation",), ()),
        "stop": ((), ()),
        "add_block": ((), ()),
        "widen": (("factor",), ("block",)),
        "swap_activation": (("to",), ("block",)),
        "add_norm": ((), ("block",)),
        "add_residual": ((), ("block",)),
        DEFER: ((), ("deferred_to",)),
    }
)
_RANGES: Mapping[str, tuple[type, float, float]] = MappingProxyType(
    {
        "lr": (float, MIN_LR, MAX_LR),
        "lr_min": (float, MIN_LR, MAX_LR),
        "lr_max": (float, MIN_LR, MAX_LR),
        "clip_norm": (float, 1e-6, 1e6),
        "epochs": (int, 1, 1_000),
        "batch_size": (int, 1, MAX_BATCH_SIZE),
        "accumulation": (int, 1, MAX_ACCUMULATION),
        "factor": (int, 2, 8),
        "block": (int, 0, 31),
    }
)


@dataclass(frozen=True)
class Decision:
    """One answer to one or more fired rules."""

    event_type: str
    cites: tuple[str, ...]
    direction: str  # of the remedy, or `defer`
    params: Mapping[str, Any]
    justification: str

    @property
    def acts(self) -> bool:
        """Whether the decision asks for something to be done."""
        return self.event_type != NO_ACTION

    @property
    def edit(self) -> Edit | None:
        """The change of the architecture that is asked for, if one is."""
        if self.direction not in ARCHITECTURE_DIRECTIONS:
            return None
        return Edit(op=self.direction, **self.params)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "cites": list(self.cites), "params": dict(self.params)}


@dataclass(frozen=True)
class Said:
    """A decision with who said it: one of aggregates.run.SOURCES."""

    decision: Decision
    source: str = "policy"


@dataclass(frozen=True)
class Settings:
    """The hyperparameters in force; the schedule multiplies or replaces `lr` step by step."""

    lr: float
    batch_size: int
    accumulation: int = 1  # batches per optimizer step
    clip_norm: float | None = None
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant"})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "schedule": dict(self.schedule)}


@dataclass(frozen=True)
class PastDecision:
    """A decision already recorded in this run, and what became of it."""

    number: int  # from 1
    epoch: int
    source: str
    decision: Decision
    outcome: str | None  # applied, refused, restart or None for a deferral


@dataclass(frozen=True)
class Observation:
    """All that a policy is shown at the end of an epoch in which rules fired."""

    run_id: str
    epoch: int
    due: tuple[str, ...]  # fired rules that want a decision now, in order of precedence
    evaluations: Mapping[str, RuleEvaluation]
    settings: Settings
    max_batch_size: int  # examples that fit into memory; beyond it, gradients are accumulated
    train_examples: int  # no step can take more
    spec: ModelSpec
    history: tuple[EpochSignals, ...]
    decisions: tuple[PastDecision, ...]
    waived: tuple[str, ...]
    rules: RulesConfig
    edits: str  # live or restart


def parse_decision(value: Mapping[str, Any]) -> Decision:
    """Build a decision from plain values; raises DecisionError naming what is wrong.

    Checks the form alone: types, closed choices, finite and bounded numbers.
    """
    names = {"event_type", "cites", "direction", "params", "justification"}
    if not isinstance(value, Mapping) or set(value) != names:
        found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise DecisionError(f"a decision needs exactly {sorted(names)}, not {found}")
    cites, params, words = value["cites"], value["params"], value["justification"]
    if value["event_type"] not in EVENT_TYPES:
        raise DecisionError(
            f"event_type must be one of {', '.join(EVENT_TYPES)}, not {value['event_type']!r}"
        )
    if (
        not isinstance(cites, list | tuple)
        or not cites
        or any(not isinstance(rule, str) or rule not in RULES for rule in cites)
        or len(set(cites)) != len(cites)
    ):
        raise DecisionError(f"cites must be a list of different rules R1 to R7, not {cites!r}")
    direction = value["direction"]
    if not isinstance(direction, str) or direction not in PARAMETERS:
        raise DecisionError(f"direction must be one of {sorted(PARAMETERS)}, not {direction!r}")
    if not isinstance(words, str) or not words.strip() or len(words) > MAX_JUSTIFICATION:
        raise DecisionError(f"justification must be 1 to {MAX_JUSTIFICATION} characters of text")
    if any("\ud800" <= character <= "\udfff" for character in words):
        raise DecisionError("justification holds half of a surrogate pair, which is no text")
    if not isinstance(params, Mapping):
        raise DecisionError(f"params must be a map, not {type(params).__name__}")
    _check_params(direction, params)
    expected = (
        NO_ACTION
        if direction == DEFER
        else ARCHITECTURE_CHANGE
        if direction in ARCHITECTURE_DIRECTIONS
        else HYPERPARAMETER_CHANGE
    )
    if value["event_type"] != expected:
        raise DecisionError(
            f"direction {direction} belongs to {expected}, not to {value['event_type']}"
        )
    decision = Decision(
        event_type=value["event_type"],
        cites=tuple(cites),
        direction=direction,
        params=dict(params),
        justification=words,
    )
    try:
        _ = decision.edit
    except SpecError as error:
        raise DecisionError(str(error)) from error
    return decision


def validate_decision(decision: Decision, observation: Observation) -> None:
    """Raise DecisionError unless `decision` fits what was observed.

    Every cited rule fired within the action window, and the direction belongs to each cited rule
    on the side on which its signal left the band. Learning rates and batch sizes change by the
    factors of the playbook.
    """
    for rule in decision.cites:
        evaluation = observation.evaluations[rule]
        if not evaluation.fired:
            raise DecisionError(f"{rule} is cited and did not fire in epoch {observation.epoch}")
        problem = direction_problem(rule, evaluation.side, decision, observation.settings)
        if problem is not None:
            raise DecisionError(problem)


def direction_problem(
    rule: str, side: str | None, decision: Decision, settings: Settings
) -> str | None:
    """Return why the decision's direction does not fit the rule, or None if it fits."""
    if not decision.acts:
        return None
    known = DIRECTIONS[rule].get(side or "", ())
    if decision.direction not in known:
        return f"{rule} fired on the side {side}: {decision.direction} is none of {known}"
    if side == "plateau" and decision.params.get("lr_max", 0.0) > settings.lr:
        return f"{rule}: on a plateau a cycle does not climb above the rate that led there"
    factor = _factor(decision, side, settings)
    low, high = _FACTORS.get((rule, decision.direction), (0.0, math.inf))
    if factor is not None and not low * (1 - 1e-9) <= factor <= high * (1 + 1e-9):
        return (
            f"{rule}: {decision.direction} changes the value by a factor of {factor:.4g}, "
            f"the playbook allows {low:g} to {high:g}"
        )
    return None


_FACTORS: Mapping[tuple[str, str], tuple[float, float]] = MappingProxyType(
    {
        ("R1", "decrease_lr"): (LEAST_LR_FACTOR, 10.0),
        ("R1", "increase_lr"): (LEAST_LR_FACTOR, 10.0),
        ("R1", "warm_up_lr"): (LEAST_LR_FACTOR, 10.0),
        ("R1", "cycle_lr"): (LEAST_LR_FACTOR, 10.0),
        ("R7", "decrease_lr"): (10.0, 10.0),
        ("R2", "increase_batch_size"): (2.0, 2.0),
        ("R2", "decrease_batch_size"): (2.0, 2.0),
        ("R2", "accumulate_gradients"): (2.0, 2.0),
    }
)


def _factor(decision: Decision, side: str | None, settings: Settings) -> float | None:
    """Return by how much a decision changes what it changes, as a number that should exceed one."""
    params = decision.params
    match decision.direction:
        case "decrease_lr" | "warm_up_lr":
            return settings.lr / float(params["lr"])
        case "cycle_lr" if side == "low":
            return float(params["lr_max"]) / settings.lr
        case "cycle_lr":
            return settings.lr / float(params["lr_min"])
        case "increase_lr":
            return float(params["lr"]) / settings.lr
        case "increase_batch_size":
            return int(params["batch_size"]) / settings.batch_size
        case "decrease_batch_size":
            return settings.batch_size / int(params["batch_size"])
        case "accumulate_gradients":
            return int(params["accumulation"]) / settings.accumulation
    return None


def _check_params(direction: str, params: Mapping[str, Any]) -> None:
    required, optional = PARAMETERS[direction]
    if not set(required) <= set(params) <= {*required, *optional}:
        raise DecisionError(
            f"{direction} needs {list(required)} and may have {list(optional)}, "
            f"not {sorted(map(str, params))}"
        )
    for name, value in params.items():
        if name == "deferred_to":
            if value not in PRECEDENCE:
                raise DecisionError(f"deferred_to must be a rule, not {value!r}")
        elif name == "reinitialise":
            if not isinstance(value, bool):
                raise DecisionError(f"reinitialise must be true or false, not {value!r}")
        elif name != "to":  # the edit checks it
            _check_range(name, value)
    if direction == "cycle_lr" and params["lr_min"] >= params["lr_max"]:
        raise DecisionError("lr_min must be below lr_max")


def _check_range(name: str, value: Any) -> None:
    kind, low, high = _RANGES[name]
    numeric = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, numeric):
        raise DecisionError(f"{name} must be a {kind.__name__}, not {value!r}")
    if not low <= value <= high:  # false for NaN too
        raise DecisionError(f"{name} must lie from {low:g} to {high:g}, not {value!r}")
