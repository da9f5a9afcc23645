"""Metrics with one usual definition, computed by the judge itself from outputs and targets.

Rows are read piece by piece, so a part may be larger than memory.

Trust: outputs and targets are hostile, of known form (monitor/task_form.py).
I/O: none.  Shapes: outputs (N, ...), targets (N, ...), N above 0.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from monitor.stored import Rows, row_bytes, spans

__all__ = ["known_metric"]

_AT_ONCE = 2**21  # numbers of 64 bits: 16 MiB
_Pairs = Iterator[tuple[Tensor, Tensor]]


def known_metric(name: str, outputs: Rows, targets: Rows) -> float | None:
    """Return a metric by its usual definition; None for another name, or for other shapes.

    accuracy and perplexity: logits (N, ..., classes), the classes last, and whole targets (N, ...).
    mse and mae: outputs and targets of one shape, or of one element each.
    """
    if name not in _KNOWN:
        return None
    fits, metric = _KNOWN[name]
    return metric(outputs, targets) if fits(outputs, targets) else None


def _pieces(outputs: Rows, targets: Rows, *, classes: int = 1) -> _Pairs:
    """Yield outputs (P, classes) of 64 bits, P small, with their targets (P,)."""
    step = max(_AT_ONCE // classes, 1)
    for start, stop in spans(len(outputs), row_bytes(outputs) + row_bytes(targets)):
        found = torch.split(outputs[start:stop].reshape(-1, classes), step)
        wanted = torch.split(targets[start:stop].reshape(-1), step)
        for here, there in zip(found, wanted, strict=True):
            yield here.double(), there


def _are_classes(outputs: Rows, targets: Rows) -> bool:
    whole = not targets.dtype.is_floating_point
    return whole and tuple(outputs.shape[:-1]) == tuple(targets.shape)


def _are_alike(outputs: Rows, targets: Rows) -> bool:
    return math.prod(outputs.shape) == math.prod(targets.shape)


def _accuracy(outputs: Rows, targets: Rows) -> float:
    right = sum(
        int((found.argmax(dim=-1) == wanted.long()).sum())
        for found, wanted in _pieces(outputs, targets, classes=outputs.shape[-1])
    )
    return right / math.prod(targets.shape)


def _perplexity(outputs: Rows, targets: Rows) -> float | None:
    classes, total = outputs.shape[-1], 0.0
    for found, wanted in _pieces(outputs, targets, classes=classes):
        labels = wanted.long()
        if int(labels.min()) < 0 or int(labels.max()) >= classes:
            return None
        total += float(functional.cross_entropy(found, labels, reduction="sum"))
    mean = total / math.prod(targets.shape)
    return float(torch.tensor(mean, dtype=torch.float64).exp())  # infinite where it is large


def _mse(outputs: Rows, targets: Rows) -> float:
    return _mean_of(torch.square, outputs, targets)


def _mae(outputs: Rows, targets: Rows) -> float:
    return _mean_of(torch.abs, outputs, targets)


def _mean_of(of: Callable[[Tensor], Tensor], outputs: Rows, targets: Rows) -> float:
    total = sum(
        float(of(found.reshape(-1) - wanted.double()).sum())
        for found, wanted in _pieces(outputs, targets)
    )
    return total / math.prod(outputs.shape)


_Fits = Callable[[Rows, Rows], bool]
_Metric = Callable[[Rows, Rows], float | None]
_KNOWN: Mapping[str, tuple[_Fits, _Metric]] = {
    "accuracy": (_are_classes, _accuracy),
    "mae": (_are_alike, _mae),
    "mse": (_are_alike, _mse),
    "perplexity": (_are_classes, _perplexity),
}
