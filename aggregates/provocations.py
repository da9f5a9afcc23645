"""Provocations: faults that the environment puts into a run on purpose, to make rules fire.

A name and a seed stand for one fault: its severity and its place are drawn from the seed, within
the ranges of the catalogue, and depend on nothing else but the size of the training set and of the
memory. So whoever has a run's configuration can say what was done to it. The ranges of a name never
change: another range gets another name, or runs that are recorded could not be done again.

What a fault consists of, as plain values:

    settings   keys of the configuration with the values that they get
    weights    {part, factor}: initial weights of `body` or `head` are multiplied
    biases     {part, share, value}: so many of the normalisations' biases are set, in the
               `blocks` alone or `everywhere`
    loss       {factor, first, epochs}: the training loss is multiplied for some epochs

Source: docs/reference/provocations.md.  I/O: none.  Units: as in aggregates.spec; epochs from 0.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aggregates.declared import Plain
from aggregates.errors import ProvocationError

MAX_SEED = 2**53
PARTS = ("settings", "weights", "biases", "loss")
_SHAPES_EXAMPLES = 3_000  # what a run trains on that names no number
_MAX_BATCH_SIZE = 512  # what fits into memory where nothing is said

_T = TypeVar("_T")


@dataclass(frozen=True)
class Fault(Plain):
    """One drawn provocation: what it does, and the rules that it is meant to make fire."""

    name: str
    seed: int
    changes: Mapping[str, Mapping[str, Any]]  # by part; parts that stay as they are are not there
    expects: tuple[str, ...]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Keys of the configuration with the values that they get."""
        return self.changes.get("settings", {})

    def loss_factor(self, epoch: int) -> float:
        """Return what the training loss of `epoch` is multiplied by."""
        loss = self.changes.get("loss")
        if loss is None or not loss["first"] <= epoch < loss["first"] + loss["epochs"]:
            return 1.0
        return float(loss["factor"])


class _Draws:
    """Values that follow from a name and a seed, each from its own purpose."""

    def __init__(self, name: str, seed: int) -> None:
        self._purpose = f"provocation\x1f{name}\x1f{seed}"

    def number(self, what: str, low: float, high: float) -> float:
        """Return a number, its logarithm evenly spread; three digits, alike everywhere."""
        drawn = math.exp(math.log(low) + self._share(what) * math.log(high / low))
        return min(max(float(f"{drawn:.3g}"), low), high)

    def whole(self, what: str, low: int, high: int) -> int:
        """Return a whole number, both ends included."""
        return low + int(self._share(what) * (high - low + 1))

    def choice(self, what: str, options: Sequence[_T]) -> _T:
        return options[self.whole(what, 0, len(options) - 1)]

    def _share(self, what: str) -> float:
        sha = hashlib.sha256(f"{self._purpose}\x1f{what}".encode()).digest()
        return (int.from_bytes(sha[:8], "big") >> 11) / 2**53  # below 1, exact


_Drawn = tuple[str, dict[str, dict[str, Any]]]  # expected rule, changes
_Draw = Callable[[_Draws, Mapping[str, Any]], _Drawn]


@dataclass(frozen=True)
class Provocation:
    """One kind of fault."""

    name: str
    title: str
    expects: tuple[str, ...]  # rules; which of several, the drawn place decides
    ranges: str  # in words, for the reference page
    draw: _Draw


CATALOGUE: dict[str, Provocation] = {}


def _provocation(title: str, expects: tuple[str, ...], ranges: str) -> Callable[[_Draw], _Draw]:
    """Enter a kind of fault into the catalogue, under the name of the function that draws it."""

    def enter(draw: _Draw) -> _Draw:
        name = draw.__name__.removeprefix("_")
        CATALOGUE[name] = Provocation(name, title, expects, ranges, draw)
        return draw

    return enter


@_provocation("a learning rate far too high, and no warm-up", ("R1",), "`lr` 1.5 to 5")
def _lr_too_high(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    return "R1", {"settings": {"lr": draws.number("lr", 1.5, 5.0), "warm_up_epochs": 0}}


@_provocation("a learning rate far too low", ("R1",), "`lr` 1e-5 to 2e-4")
def _lr_too_low(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    return "R1", {"settings": {"lr": draws.number("lr", 1e-5, 2e-4), "warm_up_epochs": 0}}


@_provocation(
    "initial weights far too large",
    ("R1", "R6"),
    "times 50 to 200, in the head (R1) or in the body (R6)",
)
def _init_too_large(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    part = draws.choice("part", ("body", "head"))
    weights = {"part": part, "factor": draws.number("factor", 50.0, 200.0)}
    rule = {"body": "R6", "head": "R1"}[part]
    return rule, {"settings": {"norm": "batch"}, "weights": weights}


@_provocation("initial weights far too small", ("R1",), "times 3e-4 to 0.01, in the body")
def _init_too_small(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    weights = {"part": "body", "factor": draws.number("factor", 3e-4, 1e-2)}
    return "R1", {"settings": {"norm": "batch"}, "weights": weights}


@_provocation(
    "biases so far below zero that units never rise above it",
    ("R5",),
    "60% to 90% of the biases, in the blocks or everywhere, at -8 to -20",
)
def _dead_activations(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    biases = {
        "part": draws.choice("part", ("blocks", "everywhere")),
        "share": draws.number("share", 0.6, 0.9),
        "value": -draws.number("value", 8.0, 20.0),
    }
    return "R5", {"settings": {"norm": "batch", "activation": "relu"}, "biases": biases}


@_provocation(
    "many blocks and no normalisation",
    ("R6", "R7"),
    "12 to 16 blocks, of GELU without shortcuts (R6) or of ReLU with them and an `lr` "
    "of 0.002 (R7)",
)
def _no_norm_at_depth(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    settings: dict[str, Any] = {"norm": "none", "blocks": draws.whole("blocks", 12, 16)}
    if draws.choice("residual", (False, True)):
        # At a larger rate such a model dies within a few steps, and its gradients with it.
        return "R7", {"settings": {**settings, "residual": True, "activation": "relu", "lr": 0.002}}
    return "R6", {"settings": {**settings, "residual": False, "activation": "gelu"}}


@_provocation("batches of a few images", ("R2",), "`batch_size` 2 to 4")
def _batch_too_small(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    return "R2", {"settings": {"batch_size": draws.whole("size", 2, 4), "accumulation": 1}}


@_provocation(
    "two batches to an epoch",
    ("R2",),
    "`batch_size` 0.4 to 0.5 of the training set, as far as memory reaches",
)
def _batch_too_large(draws: _Draws, config: Mapping[str, Any]) -> _Drawn:
    examples = config.get("train_examples") or _SHAPES_EXAMPLES
    wanted = int(examples * draws.number("share", 0.4, 0.5))
    size = max(1, min(wanted, config.get("max_batch_size", _MAX_BATCH_SIZE)))
    even = size - size % 8 or size  # so that it can be halved
    return "R2", {"settings": {"batch_size": even, "accumulation": 1}}


@_provocation(
    "a trunk of a single channel", ("R4",), "`channels` 1, `width` 1 to 4, `blocks` 1 to 2"
)
def _too_little_capacity(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    settings = {
        "channels": 1,
        "width": draws.whole("width", 1, 4),
        "blocks": draws.whole("blocks", 1, 2),
    }
    return "R4", {"settings": settings}


@_provocation(
    "initial weights far too small, and no normalisation that could make up for it",
    ("R6",),
    "times 3e-4 to 0.01, in the body, `norm` none",
)
def _tiny_init_no_norm(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    weights = {"part": "body", "factor": draws.number("factor", 3e-4, 1e-2)}
    return "R6", {"settings": {"norm": "none"}, "weights": weights}


@_provocation(
    "a training loss that is multiplied for some epochs",
    ("R7",),
    "times 2,000 to 100,000, for 3 or 4 epochs from epoch 0 or 1",
)
def _exploding_loss(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    loss = {
        "factor": draws.number("factor", 2e3, 1e5),
        "first": draws.whole("first", 0, 1),
        "epochs": draws.whole("epochs", 3, 4),
    }
    return "R7", {"loss": loss}


@_provocation("an epoch with an infinite training loss", ("R7",), "in epoch 0, 1 or 2")
def _infinite_loss(draws: _Draws, _: Mapping[str, Any]) -> _Drawn:
    return "R7", {"loss": {"factor": math.inf, "first": draws.whole("first", 0, 2), "epochs": 1}}


def draw_fault(name: str, seed: int, config: Mapping[str, Any]) -> Fault:
    """Return the fault that a name and a seed stand for; raises ProvocationError.

    `config` holds keys of a run's configuration, of which `train_examples` and `max_batch_size`
    are looked at; what it lacks has its default.
    """
    if not isinstance(name, str) or name not in CATALOGUE:
        raise ProvocationError(f"unknown provocation {name!r}; choose from {', '.join(CATALOGUE)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= MAX_SEED:
        raise ProvocationError(
            f"the seed of a provocation must be a whole number of at least 0, not {seed!r}"
        )
    rule, changes = CATALOGUE[name].draw(_Draws(name, seed), config)
    return Fault(name, seed, changes, (rule,))


def apply_to_config(config: Mapping[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Return the configuration with the fault in it, named by its keys; raises ProvocationError.

    What the fault does beside its settings (weights, biases, loss) is done by the training, which
    reads the name and the seed from the configuration.
    """
    settings = draw_fault(name, seed, config).settings
    return {**config, **settings, "provocation": name, "provocation_seed": seed}


def fault_of(config: Mapping[str, Any]) -> Fault | None:
    """Return the fault that a configuration names, None where it names none.

    Raises ProvocationError where the configuration has not the settings that the fault brings: it
    would claim what was never done.
    """
    name = config.get("provocation")
    if name is None:
        if config.get("provocation_seed"):
            raise ProvocationError(
                "provocation_seed is set without a provocation; set `provocation` too"
            )
        return None
    fault = draw_fault(name, config.get("provocation_seed", 0), config)
    for key, value in fault.settings.items():
        if config.get(key) != value:
            raise ProvocationError(
                f"provocation {name} with seed {fault.seed} needs {key} = {value!r}, but the "
                f"configuration has {config.get(key)!r}: apply provocations with "
                "apply_to_config() or --provoke"
            )
    return fault
