"""Decisions: what a policy may answer when rules fire, and what makes an answer valid.

A decision is recorded as its author said it. What the harness could not do is another event.

Trust: whatever a policy returns is hostile until parse_decision() and validate_decision() return.
I/O: none.  Units: learning rates per step, batch sizes in examples, windows in epochs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from aggregates.declared import Plain, build, check, check_fields, one_of
from aggregates.errors import DecisionError, SpecError
from aggregates.playbook import (
    ARCHITECTURE_DIRECTIONS,
    DEFER,
    EVENT_TYPES,
    FACTORS,
    FRESH,
    GO_BACK,
    NO_ACTION,
    PARAMETER_TYPES,
    REMEDIES,
    RESTORING,
    TRY_RATES,
    directions,
    moved_parameter,
    rises,
)
from aggregates.rulebook import RULES
from aggregates.rules import AppliedRemedy, RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals
from aggregates.spec import Edit, ModelSpec, Spec

MAX_JUSTIFICATION = 4_000  # characters
NO_ANSWER = "no usable answer: "  # how the driver's reason for a deferral begins
_MAX_REASON = 600  # characters


@dataclass(frozen=True)
class Decision(Plain):
    """One answer to one or more fired rules; parse_decision() checks it, its parameters too."""

    event_type: Annotated[str, one_of(EVENT_TYPES)]
    cites: Annotated[tuple[Annotated[str, one_of(RULES)], ...], Meta(min_length=1)]
    direction: Annotated[str, one_of(sorted(REMEDIES))]  # of the remedy, or `defer`
    params: Mapping[str, Any]
    justification: Annotated[str, Meta(min_length=1, max_length=MAX_JUSTIFICATION)]

    @property
    def acts(self) -> bool:
        """Whether the decision asks for something to be done."""
        return self.event_type != NO_ACTION

    @property
    def back(self) -> int | None:
        """The epoch whose state is put back, FRESH for fresh weights; None: none is."""
        return self.params["epoch"] if self.direction in RESTORING else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried, an epoch each; none by most decisions."""
        return tuple(map(float, self.params.get("rates", ())))

    @property
    def edit(self) -> Edit | None:
        """The change of the architecture that is asked for, if one is."""
        if self.direction not in ARCHITECTURE_DIRECTIONS:
            return None
        return Edit(op=self.direction, **self.params)

    @classmethod
    def of(
        cls, cites: tuple[str, ...], direction: str, params: Mapping[str, Any], justification: str
    ) -> "Decision":
        """Return a decision of the kind that its direction belongs to."""
        return cls(REMEDIES[direction].event_type, cites, direction, params, justification)


@dataclass(frozen=True)
class Said:
    """A decision with who said it: one of aggregates.run.SOURCES."""

    decision: Decision
    source: str = "policy"


def unanswered(rule: str, reason: str | None) -> Said:
    """Return what is recorded of a due rule that has no usable answer: the driver's deferral."""
    words = f"{NO_ANSWER}{reason}"[:_MAX_REASON]
    return Said(Decision.of((rule,), DEFER, {}, words), source="driver")


def printable(text: str) -> str:
    """Return text that can be recorded: what cannot be printed is a space."""
    text = text.encode("utf-8", "replace").decode()
    return "".join(each if each.isprintable() else " " for each in text)


@dataclass(frozen=True)
class Settings(Plain):
    """The hyperparameters in force; the schedule multiplies or replaces `lr` step by step."""

    lr: float
    batch_size: int
    accumulation: int = 1  # batches per optimizer step
    clip_norm: float | None = None
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant"})


def learning_rate(settings: Settings, *, epoch: int, fraction: float) -> float:
    """Return the learning rate at `fraction` (0 to 1) of `epoch`.

    constant: lr.  warm_up: a straight line from nothing to lr within `epochs` since `since`, then
    lr.  cycle: a triangle from lr_min up to lr_max and back, once every `epochs`.
    """
    schedule = settings.schedule
    if schedule["kind"] == "constant":
        return settings.lr
    passed: float = (epoch - schedule["since"] + fraction) / schedule["epochs"]
    if schedule["kind"] == "warm_up":
        return settings.lr * min(1.0, passed)
    height = 1.0 - abs(2.0 * (passed - math.floor(passed)) - 1.0)
    low, high = float(schedule["lr_min"]), float(schedule["lr_max"])
    return low + (high - low) * height


def mean_rate(settings: Settings, *, epoch: int) -> float:
    """Return the mean learning rate of an epoch, of 100 places in it."""
    places = 1 if settings.schedule["kind"] == "constant" else 100
    rates = (
        learning_rate(settings, epoch=epoch, fraction=(place + 1) / places)
        for place in range(places)
    )
    return math.fsum(rates) / places


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
    spec: Spec
    history: tuple[EpochSignals, ...]
    decisions: tuple[PastDecision, ...]
    waived: tuple[str, ...]
    rules: RulesConfig
    edits: str  # live or restart
    # The rules that fired in each epoch before, by precedence; None: it follows from the history.
    fired: tuple[tuple[str, ...], ...] | None = None
    back: tuple[int, ...] = ()  # epochs whose state can be gone back to; -1: fresh weights
    tries: int = 0  # epochs that are left for trials, with one left behind them
    left: int | None = None  # epochs that follow this one; None: nobody knows how many

    def directions(self, rule: str) -> tuple[str, ...]:
        """Return the directions that answer a rule as it stands and can be carried out."""
        found = directions(rule, self.evaluations[rule].side, self.rules)
        closed = () if self.tries else (TRY_RATES,)
        return tuple(each for each in found if each not in (closed if self.back else RESTORING))

    @property
    def applied(self) -> tuple[PastDecision, ...]:
        """The earlier decisions that were carried out."""
        return tuple(past for past in self.decisions if past.outcome == "applied")

    @property
    def remedies(self) -> tuple[AppliedRemedy, ...]:
        """What was carried out before the present epoch, for each rule that it answered."""
        return tuple(
            AppliedRemedy(past.epoch, rule)
            for past in self.applied
            if past.epoch < self.epoch
            for rule in past.decision.cites
        )

    @property
    def may_reset(self) -> bool:
        """Whether fresh weights may be asked for.

        Those of a model that Proctor did not build are given up only where gradients or weights
        were measured that are not finite: other thresholds need not fit it, and losses are what its
        owner says.
        """
        return isinstance(self.spec, ModelSpec) or bool(self.history and self.history[-1].lost)


def parse_decision(value: Mapping[str, Any]) -> Decision:
    """Build a decision from plain values; raises DecisionError naming what is wrong.

    Checks the form alone: types, closed choices, finite and bounded numbers.
    """
    said = build(Decision, value, what="a decision", error=DecisionError)
    check_fields(said, DecisionError)
    if len(set(said.cites)) != len(said.cites):
        raise DecisionError(f"cites names a rule more than once: {said.cites!r}")
    if not said.justification.strip():
        raise DecisionError(f"justification must be 1 to {MAX_JUSTIFICATION} characters of text")
    try:
        said.justification.encode()
    except UnicodeEncodeError:
        raise DecisionError(
            "justification holds half of a surrogate pair, which is no text"
        ) from None
    _check_params(said.direction, said.params)
    expected = REMEDIES[said.direction].event_type
    if said.event_type != expected:
        raise DecisionError(
            f"direction {said.direction} belongs to {expected}, not to {said.event_type}"
        )
    decision = replace(said, params=dict(said.params))
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
        if decision.back is not None and decision.back not in observation.back:
            states = ", ".join(map(str, observation.back)) or "none"
            raise DecisionError(f"{decision.direction}: epoch must be one of {states}")
        if len(decision.rates) > observation.tries:
            raise DecisionError(
                f"try_rates: {observation.tries} rates can be tried: one epoch has to follow them"
            )
        if not evaluation.fired:
            raise DecisionError(f"{rule} is cited and did not fire in epoch {observation.epoch}")
        problem = direction_problem(
            rule,
            evaluation,
            decision,
            observation.settings,
            rules=observation.rules,
            epoch=observation.epoch,
        )
        if problem is not None:
            raise DecisionError(problem)


def direction_problem(
    rule: str,
    fired: RuleEvaluation | None,
    decision: Decision,
    settings: Settings,
    *,
    rules: RulesConfig,
    epoch: int,
) -> str | None:
    """Return why the decision's direction does not fit the rule, or None if it fits.

    `fired` is the latest firing that it can answer, `epoch` the decision's own, and `settings` are
    those in force in it.
    """
    if not decision.acts:
        return None
    side = None if fired is None else fired.side
    known = directions(rule, side, rules)
    if decision.direction not in known:
        return f"{rule} fired on the side {side}: {decision.direction} is none of {known}"
    if side == "plateau" and decision.params.get("lr_max", 0.0) > settings.lr:
        return f"{rule}: on a plateau a cycle does not climb above the rate that led there"
    if fired is not None and decision.direction == GO_BACK:
        return _back_problem(fired, decision, settings, rules, epoch)
    if fired is not None and decision.direction == TRY_RATES:
        return _loosened(fired, decision, settings) or _rates_problem(fired, decision, settings)
    moved = moved_parameter(decision.direction, side)
    if moved is None:
        return None
    old = getattr(settings, str(REMEDIES[decision.direction].moves))
    new = decision.params[moved]
    low, high = FACTORS[rule]
    factor = new / old if rises(decision.direction, side) else old / new
    if not low * (1 - 1e-9) <= factor <= high * (1 + 1e-9):
        return (
            f"{rule}: {decision.direction} changes the value by a factor of {factor:.4g}, "
            f"the playbook allows {low:g} to {high:g}"
        )
    return None


def _back_problem(
    fired: RuleEvaluation, decision: Decision, settings: Settings, rules: RulesConfig, epoch: int
) -> str | None:
    """Return why the settings of going back do not answer a firing.

    The update ratio is proportional to the learning rate, so for R1 one step has to bring it into
    the band; for fresh weights, whose ratio nobody has measured, the rate may not go the other way.
    For another rule it stays, or falls to a tenth at most. No bound on the gradient is loosened,
    and R7 has to be answered by a tighter one or a lower rate. R2's ratio is proportional to the
    batch, which alone moves. A model that only guesses begins again with other settings.
    """
    new, rate = decision.params["lr"], mean_rate(settings, epoch=epoch)
    bound = decision.params.get("clip_norm", settings.clip_norm)
    if (loosened := _loosened(fired, decision, settings)) is not None:
        return loosened
    tighter = bound is not None and (settings.clip_norm is None or bound < settings.clip_norm)
    if fired.rule == "R2":
        return _batch_problem(fired, decision, settings, rules)
    if "batch_size" in decision.params:
        return f"{fired.rule}: going back sets batch_size for R2 alone"
    if fired.side == "guessing":
        return _guessing_problem(decision, settings, tighter=tighter)
    if fired.rule == "R1":
        if decision.params["epoch"] == FRESH:
            if fired.side == "low" and new < rate:
                return f"R1 low: fresh weights need lr of at least {rate:g}, not {new:g}"
            most = max(rate, settings.lr) if rules.back_bounds_steps and tighter else rate
            if fired.side == "high" and new > most:
                return f"R1 high: fresh weights need lr of at most {most:g}, not {new:g}"
            return None
        ratio = (fired.value or 0.0) * new / rate
        if rules.r1_low <= ratio <= rules.r1_high:
            return None
        return (
            f"R1: with lr {new:g} an update ratio of {fired.value or 0.0:.3g} becomes {ratio:.3g}, "
            f"outside of {rules.r1_low:g} to {rules.r1_high:g}"
        )
    least = settings.lr / 10 * (1 - 1e-9)
    if not least <= new <= settings.lr:
        return (
            f"{fired.rule}: going back needs lr from {settings.lr / 10:g} to {settings.lr:g}, "
            f"not {new:g}"
        )
    if fired.rule == "R7" and not tighter and new > settings.lr / FACTORS["R1"][0] * (1 + 1e-9):
        return (
            "R7: going back needs a tighter clip_norm, or lr of at most "
            f"{settings.lr / FACTORS['R1'][0]:g}, not {new:g}"
        )
    return None


def _loosened(fired: RuleEvaluation, decision: Decision, settings: Settings) -> str | None:
    bound = decision.params.get("clip_norm", settings.clip_norm)
    if settings.clip_norm is None or bound <= settings.clip_norm:
        return None
    return (
        f"{fired.rule}: going back needs clip_norm of at most {settings.clip_norm:g}, not {bound:g}"
    )


def _rates_problem(fired: RuleEvaluation, decision: Decision, settings: Settings) -> str | None:
    """Return why the rates that are tried do not answer a firing: one has to go its way.

    The others may lie anywhere, since the trials decide. A model that only guesses begins again,
    and its rate may have to go either way.
    """
    if fired.side == "guessing" and decision.params["epoch"] != FRESH:
        return f"R1 guessing: trying rates needs fresh weights: epoch {FRESH}"
    rates, factor = decision.rates, FACTORS["R1"][0]
    least, most = settings.lr / factor, settings.lr * factor
    lower, higher = min(rates) <= least * (1 + 1e-9), max(rates) >= most * (1 - 1e-9)
    if {"low": higher, "guessing": lower or higher}.get(str(fired.side), lower):
        return None
    needed = f"at least {most:g}" if fired.side == "low" else f"at most {least:g}"
    return f"{fired.rule}: one of the rates that are tried has to be {needed}"


def _guessing_problem(decision: Decision, settings: Settings, *, tighter: bool) -> str | None:
    """Nobody knows why, so fresh weights begin with other settings, whatever these are."""
    if decision.params["epoch"] != FRESH:
        return f"R1 guessing: going back needs fresh weights: epoch {FRESH}"
    new, old, (least, most) = decision.params["lr"], settings.lr, FACTORS["R1"]
    factor = max(new / old, old / new)
    if factor > most * (1 + 1e-9):
        return f"R1 guessing: going back needs lr from {old / most:g} to {old * most:g}"
    if not tighter and factor < least * (1 - 1e-9):
        return f"R1 guessing: going back needs a tighter clip_norm, or lr changed {least:g} times"
    return None


def batch_band(
    fired: RuleEvaluation, settings: Settings, rules: RulesConfig
) -> tuple[int, int] | None:
    """Return the least and the largest smaller batch that brings R2 into its band, if one does."""
    if not fired.ema or not math.isfinite(fired.ema):
        return None
    least, most = (end * settings.batch_size / fired.ema for end in (rules.r2_low, rules.r2_high))
    low, high = max(1, math.ceil(least)), min(math.floor(most), settings.batch_size - 1)
    return (low, high) if low <= high else None


def _batch_problem(
    fired: RuleEvaluation, decision: Decision, settings: Settings, rules: RulesConfig
) -> str | None:
    found, params = batch_band(fired, settings, rules), decision.params
    if params["lr"] != settings.lr or params.get("clip_norm", settings.clip_norm) != (
        settings.clip_norm
    ):
        return f"R2: going back changes batch_size only: lr must be {settings.lr!r}"
    if found is None:
        return "R2: no smaller batch brings its ratio into the band"
    if not found[0] <= params.get("batch_size", 0) <= found[1]:
        return f"R2: going back needs batch_size from {found[0]} to {found[1]}"
    return None


def _check_params(direction: str, params: Mapping[str, Any]) -> None:
    remedy = REMEDIES[direction]
    if not {*remedy.needs} <= set(params) <= {*remedy.parameters}:
        raise DecisionError(
            f"{direction} needs {list(remedy.needs)} and may have {list(remedy.may_have)}, "
            f"not {sorted(map(str, params))}"
        )
    for name, value in params.items():
        check(name, value, PARAMETER_TYPES[name], DecisionError)
    rates = params.get("rates", ())
    if len(set(rates)) != len(rates):
        raise DecisionError("rates: each learning rate may be given only once")
    if direction == "cycle_lr" and params["lr_min"] >= params["lr_max"]:
        raise DecisionError("lr_min must be below lr_max")
