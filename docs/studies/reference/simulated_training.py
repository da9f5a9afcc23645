"""A training that is worked out rather than done: the one that rescue tasks play in.

A few formulas tie what a policy can change (learning rate, batches, architecture) to what the rules
read, so that each fault shows in the signals as it does in a real run, yields to its own remedy
and to no other, and costs no time. The candidate is asked for decisions and sees no more of it.

Source: the ranges of docs/studies/rules.md.
I/O: none; deciding is passed in.  Units: epochs from 0; accuracies and shares from 0 to 1.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from aggregates.decisions import (
    Decision,
    Observation,
    PastDecision,
    Settings,
    parse_decision,
    validate_decision,
)
from aggregates.errors import DecisionError, SpecError
from aggregates.firing import evaluate_rules
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import AppliedRemedy
from aggregates.signals import EpochSignals
from aggregates.spec import BlockSpec, ModelSpec, apply_edit
from judge.reference.rules import REFERENCE_RULES

__all__ = ["Scenario", "SimulatedOutcome", "play"]

Decide = Callable[[Observation], Sequence[Mapping[str, Any]]]

_HEALTHY_RATIO = 2.5e-3  # of an update to the weights, at the learning rate that fits
_HEALTHY_GRADIENT, _LEAST_GRADIENT = 0.4, 0.1
_BEST = 0.97  # accuracy of a model that is large enough
_CREEP = 0.012  # what a hampered training still gains in an epoch: above R4's gap
_DEEP = 6  # blocks; more of them add nothing, wider ones do
_HALF_WAY = 0.6  # accuracy that a learning rate too coarse for the rest comes to
_QUIET = 3  # epochs of silence at the end


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a run starts with, and what is wrong with it."""

    seed: int
    epochs: int = 24
    profile: str = "calibrated"
    waived: tuple[str, ...] = ()
    hopeless: tuple[str, ...] = ()  # rules that have no remedy left here
    target: float = 0.8  # accuracy at which the training counts as well
    lr: float = 0.05
    good_lr: float = 0.05
    stable_lr: float | None = None  # above it gradients explode
    lost_lr: float | None = None  # above it the weights are lost
    batch_size: int = 64
    good_batch: int = 64
    max_batch_size: int = 512
    train_examples: int = 3000
    blocks: int = 2
    width: int = 32
    norm: str = "batch"
    residual: bool = True
    activation: str = "relu"
    shrink_unnormed: float = 1.0  # of the smallest gradient, for each block without norm
    shrink_plain: float = 1.0  # for each block without a shortcut
    shrink_activation: float = 1.0  # for each block with the activation that the run starts with
    dead: float = 0.0  # share of units that a relu leaves dead
    capacity: int = 64  # hidden channels that the task needs
    coarse_lr: float | None = None  # above it the validation loss stops getting better half way
    overfits_from: int | None = None  # epoch from which only stopping is of use
    most_false_alarms: int | None = None  # remedies for what has come right already
    noise: float = 0.02

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Scenario":
        """Build a scenario from plain values."""
        named = {item.name for item in fields(cls)}
        lists = {name: tuple(value[name]) for name in ("waived", "hopeless") if name in value}
        return cls(**{name: value[name] for name in value if name in named} | lists)


@dataclass
class SimulatedOutcome:
    """What became of a run."""

    steps: int  # epochs until it was well: silent, and accurate enough
    well: bool
    problems: list[str] = field(default_factory=list)  # answers that were no valid ones
    false_alarms: int = 0


@dataclass
class _Simulation:
    scenario: Scenario
    settings: Settings
    spec: ModelSpec
    rng: random.Random
    accuracy: float = 0.1
    lost: bool = False
    lr_moved: bool = False  # in the epoch before
    coarse_epochs: int = 0  # in which the learning rate was too coarse to go on
    history: list[EpochSignals] = field(default_factory=list)
    decisions: list[PastDecision] = field(default_factory=list)
    remedies: list[AppliedRemedy] = field(default_factory=list)
    stopped: bool = False


def play(scenario: Scenario, decide: Decide) -> SimulatedOutcome:
    """Let the run go on for its epochs, with `decide` asked whenever rules are due."""
    state = _start(scenario)
    rules = REFERENCE_RULES[scenario.profile]
    outcome = SimulatedOutcome(steps=scenario.epochs, well=False)
    well_since, quiet = None, 0
    for epoch in range(scenario.epochs):
        state.history.append(_measure(state, epoch))
        evaluations = evaluate_rules(state.history, state.remedies, rules)
        fired = fired_in_precedence(evaluations)
        due = tuple(rule for rule in fired if rule not in scenario.waived)
        firing = bool(set(due) - set(scenario.hopeless))
        quiet = 0 if firing else quiet + 1
        if firing or state.accuracy < scenario.target:
            well_since = None
        elif well_since is None:
            well_since = epoch
        if due:
            seen = Observation(
                run_id="run",
                epoch=epoch,
                due=due,
                evaluations=evaluations,
                settings=state.settings,
                max_batch_size=scenario.max_batch_size,
                train_examples=scenario.train_examples,
                spec=state.spec,
                history=tuple(state.history),
                decisions=tuple(state.decisions),
                waived=scenario.waived,
                rules=rules,
                edits="live",
            )
            _answer(state, seen, decide, outcome)
        if state.stopped:
            break
    if scenario.overfits_from is not None:
        outcome.well = state.stopped and len(state.history) > scenario.overfits_from
        outcome.steps = len(state.history)
    elif not state.stopped and well_since is not None and quiet >= _QUIET:
        outcome.well, outcome.steps = True, well_since
    if scenario.most_false_alarms is not None and outcome.false_alarms > scenario.most_false_alarms:
        outcome.well = False
    return outcome


def _start(scenario: Scenario) -> _Simulation:
    block = BlockSpec(scenario.width, scenario.residual, scenario.norm, scenario.activation)
    spec = ModelSpec(
        classes=10,
        channels=16,
        stem_stride=2,
        blocks=(block,) * scenario.blocks,
        norm=scenario.norm,
        activation=scenario.activation,
    )
    settings = Settings(lr=scenario.lr, batch_size=scenario.batch_size)
    return _Simulation(scenario, settings, spec, random.Random(scenario.seed))  # noqa: S311 - repeatable, no secret


def _measure(state: _Simulation, epoch: int) -> EpochSignals:
    """Train for one epoch and return what the hooks would have seen."""
    about, spec, now = state.scenario, state.spec, state.settings
    if about.lost_lr is not None and now.lr > about.lost_lr:
        state.lost = True
    pace = now.lr / about.good_lr
    largest = _HEALTHY_GRADIENT
    if about.stable_lr is not None and now.lr > about.stable_lr:
        largest *= 4 * (now.lr / about.stable_lr) ** 2
    unnormed = sum(block.norm == "none" for block in spec.blocks)
    plain = sum(not block.residual for block in spec.blocks)
    flat = sum(block.activation == about.activation for block in spec.blocks)
    smallest = (
        _LEAST_GRADIENT
        * about.shrink_unnormed**unnormed
        * about.shrink_plain**plain
        * about.shrink_activation**flat
    )
    dead = about.dead if spec.blocks[-1].activation == "relu" else 0.0
    noise_scale = 0.2 if state.lr_moved else 1.0  # it moves with the learning rate, for an epoch
    effective = now.batch_size * now.accumulation
    coarse = about.coarse_lr is not None and now.lr > about.coarse_lr
    drowned = effective < 0.28 * about.good_batch  # the noise outweighs the gradient's signal
    hampered = state.lost or largest > 3 or smallest < 3e-3 or dead > 0.2 or drowned
    _train(state, pace, hampered=hampered)
    if coarse:
        state.accuracy = min(state.accuracy, _HALF_WAY)
    state.coarse_epochs += coarse and state.accuracy == _HALF_WAY
    state.lr_moved = False
    loss = math.nan if state.lost else 2.3 * (1 - state.accuracy) + 0.05
    worse = 0.0 if about.overfits_from is None else 0.05 * max(0, epoch - about.overfits_from)
    worse += 0.02 * state.coarse_epochs if coarse else 0.0
    ratio = math.nan if state.lost else _HEALTHY_RATIO * pace**0.8
    signals = EpochSignals(
        epoch=epoch,
        train_loss=loss,
        train_accuracy=round(state.accuracy, 6),
        val_loss=loss + 0.3 * 0.97**epoch + worse,
        gradients_finite=not state.lost,
        max_layer_grad_norm=math.nan if state.lost else _shaken(state, largest),
        min_layer_grad_norm=math.nan if state.lost else _shaken(state, smallest),
        update_ratio=_shaken(state, ratio),
        epoch_update_ratio=_shaken(state, ratio),
        signal_to_noise=_shaken(state, 0.5 * noise_scale * effective / about.good_batch),
        norm_noise_scale=300.0,
        dead_share=dead,
        sparsity=0.5,
    )
    noise = signals.signal_to_noise or 0.0
    return replace(signals, signal_to_noise_low=0.9 * noise, signal_to_noise_high=1.1 * noise)


def _train(state: _Simulation, pace: float, *, hampered: bool) -> None:
    """Move the accuracy: fast where all is well, and best at the learning rate that fits."""
    if state.lost:
        state.accuracy = 0.1
        return
    widths = sorted((block.width for block in state.spec.blocks), reverse=True)[:_DEEP]
    best = _BEST * min(1.0, sum(widths) / state.scenario.capacity)
    speed = 0.0 if hampered else 0.3 * math.exp(-(math.log(pace) ** 2) / 4.5)
    gain = max(speed * (best - state.accuracy), min(_CREEP, best - state.accuracy))
    state.accuracy = min(best, state.accuracy + gain) if gain > 0 else state.accuracy


def _shaken(state: _Simulation, value: float) -> float:
    shaken = value * (1 + state.rng.uniform(-1, 1) * state.scenario.noise)
    return float(f"{shaken:.6g}")


def _answer(
    state: _Simulation, seen: Observation, decide: Decide, outcome: SimulatedOutcome
) -> None:
    """Ask, check what is said, and do it; every due rule wants exactly one answer."""
    answered: list[str] = []
    for said in decide(seen):
        try:
            decision = parse_decision(said)
            answered += decision.cites
            _verify_due(decision, seen)
            validate_decision(decision, seen)
        except DecisionError as error:
            outcome.problems.append(f"epoch {seen.epoch}: {error}"[:200])
            continue
        done = _do(state, decision)
        number = len(state.decisions) + 1
        result = None if not decision.acts else "applied" if done else "refused"
        state.decisions.append(PastDecision(number, seen.epoch, "policy", decision, result))
        if done:
            state.remedies += [AppliedRemedy(seen.epoch, rule) for rule in decision.cites]
            outcome.false_alarms += sum(_has_come_right(rule, seen) for rule in decision.cites)
    if sorted(answered) != sorted(seen.due):
        outcome.problems.append(f"epoch {seen.epoch}: not every due rule has one answer")


def _verify_due(decision: Decision, seen: Observation) -> None:
    if any(rule not in seen.due for rule in decision.cites):
        raise DecisionError("a rule is cited that is not due")


def _has_come_right(rule: str, seen: Observation) -> bool:
    """Return whether a band's signal is back inside, and the average alone lags behind."""
    found, rules = seen.evaluations[rule], seen.rules
    bands = {
        "R1": (rules.r1_low, rules.r1_high),
        "R2": (rules.r2_low, rules.r2_high),
        "R5": (0.0, rules.r5_high),
        "R6": (rules.r6_low, math.inf),
        "R7": (0.0, rules.r7_high),
    }
    if rule not in bands or found.value is None or found.side not in ("high", "low"):
        return False
    low, high = bands[rule]
    return low <= found.value <= high


def _do(state: _Simulation, decision: Decision) -> bool:
    """Carry a decision out; return whether anything was done."""
    params, before = decision.params, state.settings
    if not decision.acts:
        return False
    if decision.edit is not None:
        try:
            state.spec = apply_edit(state.spec, decision.edit)
        except SpecError:
            return False
        return True
    if decision.direction == "stop":
        state.stopped = True
        return True
    if "lr" in params or "lr_min" in params:
        lr = params["lr"] if "lr" in params else math.sqrt(params["lr_min"] * params["lr_max"])
        state.settings = replace(before, lr=float(lr), clip_norm=params.get("clip_norm"))
        state.lr_moved = True
        if params.get("reinitialise"):
            state.lost, state.accuracy = False, 0.1
    elif "batch_size" in params:
        if params["batch_size"] > state.scenario.max_batch_size:
            return False
        state.settings = replace(before, batch_size=params["batch_size"])
    else:
        state.settings = replace(before, accumulation=params["accumulation"])
    return state.settings != before
