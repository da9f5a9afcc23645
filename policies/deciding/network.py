"""The policy whose decisions come from a small trained network; its weights are data.

The network is asked about each due rule by precedence: it sees the numbers of the observation and
chooses among the directions that the playbook allows there, or to wait. The first rule that it
acts on is the one that acts, and the others are deferred to it. Two more outputs say how far a
learning rate moves and whether weights begin anew. Bounds are kept whatever the weights say.

It is computed here in Python's floats and in one order, without PyTorch: the same weights decide
the same on every machine. `python -m studies network` trains the shipped file.

Trust: the weights are hostile until Network.read() returns.
I/O: load_network() reads its own package's file.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.errors import WeightsError
from aggregates.playbook import (
    DEFER,
    DIRECTIONS,
    FACTORS,
    MAX_LR,
    MIN_LR,
    REMEDIES,
    RESTORING,
)
from aggregates.rules import FIRST_RULES
from aggregates.spec import WatchedModel
from aggregates.sums import added
from aggregates.weights import Tensor, read_tensors
from policies.errors import PolicyError
from policies.offers import parameters

_SIDES = ("high", "low", "plateau", "stalled", "not_finite")
_STATE = (  # what is read beside the rule and its side
    "streak",
    "signal",
    "epoch",
    "lr",
    "batch_size",
    "accumulation",
    "clipped",
    "blocks",
    "width",
    "normalised",
    "residual",
    "train_accuracy",
    "train_loss",
    "val_loss",
    "finite",
    "largest_gradient",
    "smallest_gradient",
    "dead_share",
    "since_this_rule",
    "since_any_rule",
    "times_this_rule",
    "others_due",
)
FEATURES = (*FIRST_RULES, *_SIDES, *_STATE)
HIDDEN = 24  # units, rectified
_MOVE, _FRESH = "move", "fresh"  # how far a learning rate moves; whether weights begin anew
OUTPUTS = (
    *(name for name in REMEDIES if name not in RESTORING),
    _MOVE,
    _FRESH,
)  # as it was trained
_EPOCHS = 3  # of a warm-up or a cycle
_CLIP_NORM = 1.0  # of a gradient
_LONG = 20  # epochs; what lies longer ago is as long ago
_ACTIVATIONS = ("leaky_relu", "gelu", "prelu")
_SHAPES = {
    "choice.bias": (len(OUTPUTS),),
    "choice.weight": (len(OUTPUTS), HIDDEN),
    "hidden.bias": (HIDDEN,),
    "hidden.weight": (HIDDEN, len(FEATURES)),
}


@dataclass(frozen=True)
class Network:
    """One hidden layer."""

    tensors: Mapping[str, Tensor]
    sha256: str

    @classmethod
    def read(cls, data: bytes) -> "Network":
        """Return the network of canonical safetensors; raises PolicyError for any other."""
        try:
            tensors = read_tensors(data)
        except WeightsError as error:
            raise PolicyError(f"the network's weights: {error}") from error
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != _SHAPES:
            raise PolicyError(f"the network's weights must have the shapes {_SHAPES}, not {shapes}")
        return cls(tensors, hashlib.sha256(data).hexdigest())

    def outputs(self, inputs: Sequence[float]) -> dict[str, float]:
        """Return each output by its name."""
        hidden = [max(0.0, value) for value in self._layer("hidden", inputs)]
        return dict(zip(OUTPUTS, self._layer("choice", hidden), strict=True))

    def _layer(self, name: str, inputs: Sequence[float]) -> list[float]:
        weight, bias = self.tensors[f"{name}.weight"].values, self.tensors[f"{name}.bias"].values
        width = len(inputs)
        return [
            added((weight[row * width + place] * inputs[place] for place in range(width)), start)
            for row, start in enumerate(bias)
        ]


@cache
def load_network() -> Network:
    """Return the network of the package's own file."""
    return Network.read(Path(__file__).with_name("network.safetensors").read_bytes())


class NetworkPolicy:
    """Decides for every rule that is due, by precedence, as the network says."""

    name = "network"

    def __init__(self, network: Network | None = None) -> None:
        self.network = network or load_network()

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy: the hash of the weights, too."""
        return {"name": self.name, "weights": self.network.sha256}

    def decide(self, observation: Observation) -> list[Decision]:
        """Return one decision for each due rule, in the order of precedence."""
        decisions: list[Decision] = []
        first: str | None = None  # the rule that the others are deferred to
        for rule in observation.due:
            if first is not None:
                words = f"{rule} waits: {first} goes first."
                decisions.append(Decision.of((rule,), DEFER, {"deferred_to": first}, words))
                continue
            decision = self._answer(rule, observation)
            first = rule if decision.acts else None
            decisions.append(decision)
        return decisions

    def _answer(self, rule: str, seen: Observation) -> Decision:
        found = self.network.outputs(features(rule, seen))
        allowed = options(rule, seen, move=found[_MOVE], fresh=found[_FRESH] > 0.0)
        chosen = max(allowed, key=lambda direction: found[direction])
        number = seen.evaluations[rule].ema or seen.evaluations[rule].value
        shown = "" if number is None else f" (at {number:.3g})"
        words = f"{rule}: the network prefers {chosen} to {len(allowed) - 1} others{shown}."
        return Decision.of((rule,), chosen, allowed[chosen], words)


def options(rule: str, seen: Observation, *, move: float, fresh: bool) -> dict[str, dict[str, Any]]:
    """Return the directions that are open to a due rule, each with its parameters.

    `move` says how far a learning rate moves, from 0 (the least factor) to 1; `fresh`, whether
    weights begin anew where the learning rate is lowered.
    """
    allowed: dict[str, dict[str, Any]] = {DEFER: {}}
    for direction in DIRECTIONS[rule].get(seen.evaluations[rule].side or "", ()):
        params = _params(rule, direction, seen, move=move, fresh=fresh)
        if params is not None:
            allowed[direction] = params
    return allowed


def features(rule: str, seen: Observation) -> tuple[float, ...]:
    """Return what the network is shown of a due rule, as FEATURES names it; all within -5 to 5."""
    found = seen.evaluations[rule]
    latest = seen.history[-1] if seen.history else None
    blocks = seen.spec.blocks
    acted = seen.applied
    own = [past.epoch for past in acted if rule in past.decision.cites]
    guessing = 1.0 if seen.spec.classes is None else math.log(seen.spec.classes)  # its loss
    state = (
        found.streak / 5.0,
        _log(found.ema if found.ema is not None else found.value),
        seen.epoch / _LONG,
        _log(seen.settings.lr),
        math.log2(seen.settings.batch_size) / 4.0,
        math.log2(seen.settings.accumulation) / 4.0,
        float(seen.settings.clip_norm is not None),
        len(blocks) / 6.0,
        math.log2(max((block.width for block in blocks), default=1)) / 4.0,
        float(seen.spec.norm != "none" and all(block.norm != "none" for block in blocks)),
        float(all(block.residual for block in blocks)),
        0.0 if latest is None or latest.train_accuracy is None else latest.train_accuracy,
        0.0 if latest is None else latest.train_loss / guessing,
        0.0 if latest is None else latest.val_loss / guessing,
        float(latest is None or latest.gradients_finite),
        0.0 if latest is None else _log(latest.max_layer_grad_norm),
        0.0 if latest is None else _log(latest.min_layer_grad_norm),
        0.0 if latest is None or latest.dead_share is None else latest.dead_share,
        min(seen.epoch - max(own), _LONG) / _LONG if own else 1.0,
        min(seen.epoch - max(past.epoch for past in acted), _LONG) / _LONG if acted else 1.0,
        len(own) / 5.0,
        (len(seen.due) - 1) / 3.0,
    )
    named = [float(each == rule) for each in FIRST_RULES]
    named += [float(each == found.side) for each in _SIDES]
    return tuple(max(-5.0, min(5.0, x)) if x == x else 5.0 for x in (*named, *state))  # noqa: PLR0124


def _log(value: float | None) -> float:
    """Return the decimal logarithm, halved; 0 where nothing was measured."""
    if value is None:
        return 0.0
    return math.log10(max(value, 1e-10)) / 2.0 if math.isfinite(value) else 5.0


def _params(
    rule: str, direction: str, seen: Observation, *, move: float, fresh: bool
) -> dict[str, Any] | None:
    """Return the parameters of a direction, None where the playbook's bounds leave no room."""
    settings, side = seen.settings, seen.evaluations[rule].side or ""
    if isinstance(seen.spec, WatchedModel) and direction not in seen.spec.offers:
        return None
    least, most = FACTORS["R1"] if rule == "R1" else FACTORS["R7"]
    factor = least + (most - least) * max(0.0, min(1.0, move))
    lr, up = settings.lr, settings.lr * factor
    down = lr / factor
    match direction:
        case "increase_lr":
            return {"lr": up} if up <= MAX_LR else None
        case "decrease_lr":
            anew = {"reinitialise": True} if fresh and seen.may_reset else {}
            clipped = {"clip_norm": _CLIP_NORM} if rule == "R7" else {}
            return {"lr": down, **clipped, **anew} if down >= MIN_LR else None
        case "warm_up_lr":
            return {"lr": down, "epochs": _EPOCHS} if down >= MIN_LR else None
        case "cycle_lr":
            low, high = (lr, up) if side == "low" else (down, lr)
            fits = low >= MIN_LR and high <= MAX_LR
            return {"lr_min": low, "lr_max": high, "epochs": _EPOCHS} if fits else None
    if parameters(rule, side, direction, seen) is None:
        return None
    match direction:
        case "decrease_batch_size":
            return {"batch_size": settings.batch_size // 2}
        case "increase_batch_size":
            return {"batch_size": 2 * settings.batch_size}
        case "accumulate_gradients":
            return {"accumulation": 2 * settings.accumulation}
        case "swap_activation":
            now = seen.spec.blocks[-1].activation
            return {"to": next(each for each in _ACTIVATIONS if each != now)}
        case "widen":
            return {"factor": 2}
    return {}  # stop, add_block, add_norm, add_residual
