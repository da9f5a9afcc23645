"""Metrics with one usual definition, computed by the judge itself from outputs and targets.

Rows are read piece by piece, so a part may be larger than memory.

Trust: outputs and targets are hostile, of known form (monitor/task_form.py).
I/O: none.  Shapes: outputs (N, ...), targets (N, ...), N above 0.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from aggregates.sums import added
from monitor.stored import Rows, row_bytes, spans

_AT_ONCE = 2**21  # numbers of 64 bits: 16 MiB
_MOST_CLASSES = 2**24  # one example of more would take gigabytes here
_Pairs = Iterator[tuple[Tensor, Tensor]]


def known_metric(name: str, outputs: Rows, targets: Rows, *, order: Tensor) -> float | None:
    """Return a metric by its usual definition; None for another name, or for other shapes.

    order: the positions (P,) of the examples that it is computed of.

    accuracy and perplexity: logits (N, ..., classes), the classes last, and whole targets (N, ...).
    mse and mae: outputs and targets of one shape, or of one element each.
    """
    if name not in _KNOWN:
        return None
    fits, metric = _KNOWN[name]
    return metric(outputs, targets, order) if fits(outputs, targets) else None


def _pieces(outputs: Rows, targets: Rows, order: Tensor, *, classes: int = 1) -> _Pairs:
    """Yield outputs (P, classes) of 64 bits, P small, with their targets (P,)."""
    step = max(_AT_ONCE // classes, 1)
    for start, stop in spans(len(order), row_bytes(outputs) + row_bytes(targets)):
        at = order[start:stop]
        found = torch.split(outputs[at].reshape(-1, classes), step)
        wanted = torch.split(targets[at].reshape(-1), step)
        for here, there in zip(found, wanted, strict=True):
            yield here.double(), there


def _mean(total: float, rows: Rows, order: Tensor) -> float:
    """Return the mean over the numbers in rows, whose sum is known."""
    return total / (len(order) * math.prod(rows.shape[1:]))


def _are_classes(outputs: Rows, targets: Rows) -> bool:
    whole = not targets.dtype.is_floating_point
    few = outputs.shape[-1] <= _MOST_CLASSES
    return whole and few and tuple(outputs.shape[:-1]) == tuple(targets.shape)


def _are_alike(outputs: Rows, targets: Rows) -> bool:
    return math.prod(outputs.shape) == math.prod(targets.shape)


def _accuracy(outputs: Rows, targets: Rows, order: Tensor) -> float:
    right = sum(
        int((found.argmax(dim=-1) == wanted.long()).sum())
        for found, wanted in _pieces(outputs, targets, order, classes=outputs.shape[-1])
    )
    return _mean(right, targets, order)


def _perplexity(outputs: Rows, targets: Rows, order: Tensor) -> float | None:
    classes, total = outputs.shape[-1], 0.0
    for found, wanted in _pieces(outputs, targets, order, classes=classes):
        labels = wanted.long()
        if int(labels.min()) < 0 or int(labels.max()) >= classes:
            return None
        total += float(functional.cross_entropy(found, labels, reduction="sum"))
    mean = _mean(total, targets, order)
    return float(torch.tensor(mean, dtype=torch.float64).exp())  # infinite where it is large


def _mean_of(of: Callable[[Tensor], Tensor], outputs: Rows, targets: Rows, order: Tensor) -> float:
    total = added(
        float(of(found.reshape(-1) - wanted.double()).sum())
        for found, wanted in _pieces(outputs, targets, order)
    )
    return _mean(total, outputs, order)


_Fits = Callable[[Rows, Rows], bool]
_Metric = Callable[[Rows, Rows, Tensor], float | None]
_KNOWN: Mapping[str, tuple[_Fits, _Metric]] = {
    "accuracy": (_are_classes, _accuracy),
    "mae": (_are_alike, partial(_mean_of, torch.abs)),
    "mse": (_are_alike, partial(_mean_of, torch.square)),
    "perplexity": (_are_classes, _perplexity),
}
