"""A watched run that a framework's callback begins and ends.

The framework calls back between its steps, so that the run cannot be a `with` block around a loop.
I/O: appends to the home's ledger.
"""

import os
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, TypedDict

import torch
from torch import nn

from monitor.answering import Policy
from monitor.errors import WatchError
from monitor.watching import WatchedRun
from proctor.runs.watching import watch


class WatchOptions(TypedDict, total=False):
    """What a callback hands on to proctor.watch() as it is."""

    name: str
    epochs: int
    classes: int
    seed: int
    policy: str | Policy | None
    policy_settings: Sequence[str]
    profile: str
    waived: Sequence[str]
    tags: Sequence[str]
    notes: str
    own_config: Mapping[str, Any]
    home: str | os.PathLike[str]


class FrameworkRun:
    """At most one open run at a time: begin(), then evaluated() after each evaluation, then end().

    An epoch of the run lasts from one evaluation to the next. Steps behind the last one are not
    recorded.
    """

    def __init__(self, options: WatchOptions, *, say: Callable[[str], object]) -> None:
        self.run: WatchedRun | None = None
        self._options = options
        self._say = say

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer, **found: Any) -> WatchedRun:
        """Start a run; one that is still open is closed as failed."""
        self.end(WatchError("another training began before this one had ended"))
        options: dict[str, Any] = {
            "name": type(model).__name__,
            "say": lambda line: self._say(f"proctor: {line}"),
            **found,
            **self._options,
        }
        self.run = watch(model, optimizer, **options)
        return self.run

    def evaluated(
        self, metrics: Mapping[str, Any], *, loss: str, accuracy: str | None
    ) -> WatchedRun | None:
        """Record the epoch with the metrics of its evaluation; None if there is nothing to record.

        The run is over if a decision has stopped it.
        """
        run = self.run
        if run is None or not run.in_epoch:
            return None
        numbers = {name: float(value) for name, value in metrics.items() if _is_number(value)}
        for needed in (loss, accuracy):
            if needed is not None and needed not in numbers:
                raise WatchError(
                    f"the evaluation has no metric {needed!r}; it has "
                    f"{', '.join(map(repr, sorted(numbers))) or 'none'}"
                )
        known = {loss, accuracy, "loss", "accuracy", "self"}
        others = {name: each for name, each in numbers.items() if name not in known}
        right = None if accuracy is None else numbers[accuracy]
        run.validate(loss=numbers[loss], accuracy=right, **others)
        if run.stopped:
            self.end()
        return run

    def end(self, error: BaseException | None = None) -> None:
        """Close the run, as failed or interrupted where `error` is the reason."""
        run, self.run = self.run, None
        if run is not None:
            run.close(error)


def count_examples(loader: object) -> int | None:
    """Return how many examples a data loader's dataset has; None if it does not say."""
    dataset = getattr(loader, "dataset", None)
    if not isinstance(dataset, Sized):
        return None
    try:
        return len(dataset) or None
    except (TypeError, NotImplementedError):  # as of datasets that stream
        return None


def count_batch(batch: Any) -> int | None:
    """Return how many examples a batch has: the length of the first tensor in it."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else None
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(batch, Mapping | list | tuple):
        return next((size for part in parts if (size := count_batch(part))), None)
    return None


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, int | float) and not isinstance(value, bool)
