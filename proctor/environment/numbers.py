"""A situation as bounded arrays, for agents that take numbers.

Each value is finite and between its bounds; what lies beyond is cut off. Where a signal was not
measured or is not finite, the value is 0 and its flag in `missing` is 1.

Source: docs/how-to/agents.md.  I/O: none.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregates.playbook import MAX_ACCUMULATION, MAX_BATCH_SIZE, MAX_LR, MIN_LR
from aggregates.rules import FIRST_RULES, RuleEvaluation
from aggregates.signals import EpochSignals
from aggregates.spec import MAX_BLOCKS, MAX_WIDTH, ModelSpec

EPOCHS = 8  # the latest ones, the newest in the last row
SIDES = ("high", "low", "plateau", "stalled", "not_finite", "guessing")
_LOG = (-10.0, 10.0)  # decimal logarithm of a signal
_SHARE = (0.0, 1.0)
SIGNALS: Mapping[str, tuple[float, float]] = {
    "train_loss": _LOG,
    "train_accuracy": _SHARE,
    "val_loss": _LOG,
    "max_layer_grad_norm": _LOG,
    "min_layer_grad_norm": _LOG,
    "update_ratio": _LOG,
    "signal_to_noise": _LOG,
    "dead_share": _SHARE,
    "sparsity": _SHARE,
}
_Read = tuple[tuple[float, float], Callable[[Any], float]]  # bounds, and what reads the value
SETTINGS: Mapping[str, _Read] = {
    "lr": ((math.log10(MIN_LR), math.log10(MAX_LR)), lambda now: math.log10(now["lr"])),
    "batch_size": ((0.0, math.log2(MAX_BATCH_SIZE)), lambda now: math.log2(now["batch_size"])),
    "accumulation": (
        (0.0, math.log2(MAX_ACCUMULATION)),
        lambda now: math.log2(now["accumulation"]),
    ),
    "clip_norm": ((-6.0, 6.0), lambda now: math.log10(now["clip_norm"] or 1.0)),  # 0: not clipped
    "clipped": (_SHARE, lambda now: now["clip_norm"] is not None),
}
_WIDTH = (0.0, math.log2(MAX_WIDTH))
MODEL: Mapping[str, _Read] = {
    "blocks": ((1.0, float(MAX_BLOCKS)), lambda spec: len(spec.blocks)),
    "channels": (_WIDTH, lambda spec: math.log2(spec.channels)),
    "widest_block": (_WIDTH, lambda spec: math.log2(max(block.width for block in spec.blocks))),
    # Shares of the blocks
    "normalised": (_SHARE, lambda spec: fmean(block.norm != "none" for block in spec.blocks)),
    "residual": (_SHARE, lambda spec: fmean(block.residual for block in spec.blocks)),
    "relu": (_SHARE, lambda spec: fmean(block.activation == "relu" for block in spec.blocks)),
}

_Bounds = tuple[NDArray[np.float32], NDArray[np.float32]]


def _bounds(each: Iterable[tuple[float, float]], *, rows: int | None = None) -> _Bounds:
    low, high = np.array(list(each), dtype=np.float32).T
    return (low, high) if rows is None else (np.tile(low, (rows, 1)), np.tile(high, (rows, 1)))


def _flags(*shape: int) -> _Bounds:
    return np.zeros(shape, dtype=np.float32), np.ones(shape, dtype=np.float32)


# Name of an array -> its least and largest values; their shape is the array's.
BOUNDS: Mapping[str, _Bounds] = {
    "due": _flags(len(FIRST_RULES), len(SIDES)),
    "left": _bounds([(0.0, 20.0)]),
    "missing": _flags(EPOCHS, len(SIGNALS)),
    "model": _bounds(bounds for bounds, _ in MODEL.values()),
    "progress": _flags(1),
    "settings": _bounds(bounds for bounds, _ in SETTINGS.values()),
    "signals": _bounds(SIGNALS.values(), rows=EPOCHS),
}


def numbers_of(
    *,
    history: Sequence[EpochSignals],
    due: Iterable[RuleEvaluation],
    settings: Mapping[str, Any],
    spec: ModelSpec,
    epochs: int,  # of the whole training
) -> dict[str, Any]:
    """Return a situation as lists of numbers, which arrays() makes an observation of."""
    rows = [_signals(each) for each in history[-EPOCHS:]]
    nothing = [0.0] * len(SIGNALS), [1.0] * len(SIGNALS)
    rows = [nothing] * (EPOCHS - len(rows)) + rows
    sides = {each.rule: each.side for each in due}
    return {
        "due": [[float(sides.get(rule) == side) for side in SIDES] for rule in FIRST_RULES],
        "left": [math.log2(1 + epochs - len(history))],
        "missing": [missing for _, missing in rows],
        "model": [float(read(spec)) for _, read in MODEL.values()],
        "progress": [len(history) / epochs],
        "settings": [float(read(settings)) for _, read in SETTINGS.values()],
        "signals": [values for values, _ in rows],
    }


def arrays(numbers: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Return an observation: an array within its bounds for each name."""
    return {
        name: np.clip(np.array(numbers[name], dtype=np.float32), low, high)
        for name, (low, high) in BOUNDS.items()
    }


def _signals(found: EpochSignals) -> tuple[list[float], list[float]]:
    read = [
        _scaled(getattr(found, name), _decimal if bounds is _LOG else float)
        for name, bounds in SIGNALS.items()
    ]
    return [0.0 if each is None else each for each in read], [float(each is None) for each in read]


def _scaled(value: float | None, scale: Callable[[float], float]) -> float | None:
    return scale(value) if value is not None and math.isfinite(value) else None


def _decimal(value: float) -> float:
    low, high = _LOG
    return low if value <= 10.0**low else min(high, math.log10(value))
