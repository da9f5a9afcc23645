"""The playbook's text, read to the letter, and followed by somebody who knows nothing else.

A text that no such reader can follow is worth as little to a model. What is read is the order of
the rules, and of each rule its remedies with their sides and numbers; the words around them count
only in so far as each rule keeps its symptoms, cause, remedy and caveat.

Trust: the text is the candidate's; CandidateError says what cannot be found in it.
I/O: none.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aggregates.decisions import Decision, Observation
from aggregates.errors import SpecError
from aggregates.playbook import DEFER, DIRECTIONS
from aggregates.rules import RULES
from aggregates.spec import ACTIVATIONS, Edit, apply_edit
from judge.gauntlet.errors import CandidateError

__all__ = ["LABELS", "Advice", "follow_advice", "read_advice"]

LABELS = ("Symptoms", "Cause", "Remedy", "Caveat")
MAX_TEXT = 40_000  # characters
_LEAST_WORDS = 4  # of a label's text
_ORDER = re.compile(r"\*\*(R[1-7](?:, R[1-7]){6})\*\*")
_SECTION = re.compile(r"^## (R[1-7])\b[^\n]*\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_BULLET = re.compile(r"^- \*\*(\w+)\.\*\*\s+(.*?)(?=^- \*\*|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`(\w+)`")
_TIMES = re.compile(r"by (\d+) to (\d+) times")
_CLIP = re.compile(r"`clip_norm` (?:of )?(\d+(?:\.\d+)?)")
_SIDES = {"high": "high", "low": "low", "plateau": "plateau", "finite": "not_finite"}


@dataclass(frozen=True)
class Remedy:
    """One direction that the text names for a rule."""

    direction: str
    sides: frozenset[str]  # none: every side
    times: tuple[float, float] | None
    clip_norm: float | None


@dataclass(frozen=True)
class Advice:
    """What the text says, as far as it can be followed."""

    order: tuple[str, ...]
    labels: Mapping[str, Mapping[str, str]]  # rule -> label -> text
    remedies: Mapping[str, tuple[Remedy, ...]]  # in the order of the text
    activations: tuple[str, ...]
    begins_again: bool  # whether weights that are lost are to be initialised


def read_advice(text: object) -> Advice:
    """Return what a text says; raise CandidateError where it cannot be followed."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise CandidateError(f"the advice is no text of at most {MAX_TEXT} characters")
    orders = _ORDER.findall(text)
    order = tuple(orders[0].split(", ")) if orders else ()
    if len(orders) != 1 or sorted(order) != sorted(RULES):
        raise CandidateError("the advice does not say once, in bold, in which order rules go")
    labels: dict[str, dict[str, str]] = {}
    for rule, body in _SECTION.findall(text):
        if rule in labels:
            raise CandidateError(f"the advice has two sections on {rule}")
        labels[rule] = {name: " ".join(said.split()) for name, said in _BULLET.findall(body)}
    for rule in RULES:
        for name in LABELS:
            if len(labels.get(rule, {}).get(name, "").split()) < _LEAST_WORDS and not (
                name == "Remedy" and labels.get(rule, {}).get(name)
            ):
                raise CandidateError(f"the advice on {rule} has no {name}")
    swaps = _CODE.findall(labels["R5"]["Remedy"])
    return Advice(
        order=order,
        labels=labels,
        remedies={rule: _remedies(rule, labels[rule]["Remedy"]) for rule in RULES},
        activations=tuple(name for name in swaps if name in ACTIVATIONS),
        begins_again="`reinitialise`" in labels["R7"]["Remedy"],
    )


def follow_advice(advice: Advice, seen: Observation) -> list[Decision]:
    """Return what somebody decides who follows the text: one rule is acted on, the others wait."""
    decisions: list[Decision] = []
    acting: str | None = None
    for rule in sorted(seen.due, key=advice.order.index):
        found = None if acting else _act(advice, rule, seen)
        acting = acting or (rule if found else None)
        decisions.append(found or Decision.of((rule,), DEFER, {}, "it waits"))
    return decisions


def _remedies(rule: str, text: str) -> tuple[Remedy, ...]:
    known = {direction for ways in DIRECTIONS[rule].values() for direction in ways}
    found = []
    for sentence in re.split(r"(?<=[.;])\s+", text):
        words = re.findall(r"[a-z]+", sentence.lower())
        times = _TIMES.search(sentence)
        factor = (float(times[1]), float(times[2])) if times else None
        if "to a tenth" in sentence:
            factor = (10.0, 10.0)
        clip = _CLIP.search(sentence)
        found += [
            Remedy(
                direction,
                frozenset(_SIDES[word] for word in words if word in _SIDES),
                factor,
                float(clip[1]) if clip else None,
            )
            for direction in _CODE.findall(sentence)
            if direction in known
        ]
    return tuple(found)


def _act(advice: Advice, rule: str, seen: Observation) -> Decision | None:
    """Return the first remedy for the rule that can be carried out as it is written."""
    side = seen.evaluations[rule].side
    for remedy in advice.remedies[rule]:
        if remedy.sides and side not in remedy.sides:
            continue
        params = _params(remedy, advice, rule, seen)
        if params is None:
            continue
        return Decision.of((rule,), remedy.direction, params, f"as is written under {rule}")
    return None


def _params(
    remedy: Remedy, advice: Advice, rule: str, seen: Observation
) -> dict[str, object] | None:
    """Return the remedy's parameters, None where it cannot be carried out."""
    lr, size = seen.settings.lr, seen.settings.batch_size
    match remedy.direction:
        case "decrease_lr" | "increase_lr":
            if remedy.times is None:
                return None
            factor = _factor(remedy.times, rule, seen)
            params: dict[str, object] = {
                "lr": lr * factor if remedy.direction == "increase_lr" else lr / factor
            }
            if remedy.clip_norm is not None:
                params["clip_norm"] = remedy.clip_norm
            if seen.evaluations[rule].side == "not_finite" and advice.begins_again:
                params["reinitialise"] = True
            return params
        case "increase_batch_size" if 2 * size <= seen.max_batch_size:
            return {"batch_size": 2 * size}
        case "accumulate_gradients":
            return {"accumulation": 2 * seen.settings.accumulation}
        case "decrease_batch_size" if size % 2 == 0:
            return {"batch_size": size // 2}
        case "stop":
            return {}
        case "add_block" | "add_norm" | "add_residual" | "widen" | "swap_activation":
            return _edit(remedy.direction, advice, seen)
    return None  # it is the alternative, or no value is left for it


def _factor(times: tuple[float, float], rule: str, seen: Observation) -> float:
    """Return how far to go between the two factors: as far as the average is from its middle."""
    low, high = times
    found = seen.evaluations[rule]
    if rule != "R1" or not found.ema or found.side == "plateau":
        return low
    middle = math.sqrt(seen.rules.r1_low * seen.rules.r1_high)
    away = middle / found.ema if found.side == "low" else found.ema / middle
    return min(high, max(low, away))


def _edit(direction: str, advice: Advice, seen: Observation) -> dict[str, object] | None:
    if direction == "swap_activation":
        now = seen.spec.blocks[-1].activation
        others = [name for name in advice.activations if name not in ("relu", now)]
        if not others:
            return None
        return {"to": others[0]}
    params: dict[str, object] = {"factor": 2} if direction == "widen" else {}
    try:
        apply_edit(seen.spec, Edit(op=direction, factor=2 if direction == "widen" else None))
    except SpecError:
        return None
    return params
