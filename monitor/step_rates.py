"""The learning rates that an optimizer's steps really have, in a loop that somebody else owns.

Decisions multiply the loop's own rates, for the length of a step. Another hook of the step may put
other values in their place: then the decision changes nothing, which is measured here.
I/O: none.  Units: learning rates per step.
"""

import math
from typing import Any

import torch


class StepRates:
    """Puts rates into the optimizer's groups before a step, and looks at them after it."""

    def __init__(self) -> None:
        self._own: list[Any] = []  # the loop's, during a step
        self._put: list[Any] = []
        self._factor = 1.0
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the steps of the epoch before."""
        self.last: list[float] = []  # of each group, in the latest step
        self.overridden = 0  # steps in which a group had another rate than decisions asked for
        self._asked = math.nan  # of the first group, in the latest overridden step
        self._least, self._most = math.inf, -math.inf

    @property
    def own(self) -> float:
        """The rate that the loop's own schedule had in the latest step: of its first group."""
        return float(next(filter(None, self._own), 0.0))

    def put(self, optimizer: torch.optim.Optimizer, factor: float) -> None:
        """Multiply the loop's rates; a factor of 1 touches nothing."""
        self._factor = factor
        self._own = [group["lr"] for group in optimizer.param_groups]
        self._put = [rate if factor == 1.0 else rate * factor for rate in self._own]
        if factor != 1.0:
            for group, rate in zip(optimizer.param_groups, self._put, strict=True):
                group["lr"] = rate

    def take_back(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the rates that the step had, and give the loop its own back.

        What another hook has put there stays: it is the loop's own from now on.
        """
        self.last = [float(group["lr"]) for group in optimizer.param_groups]
        self._least, self._most = min(self._least, *self.last), max(self._most, *self.last)
        if self._factor == 1.0:
            return
        asked = [float(rate) for rate in self._put]
        if self.last != asked:
            self.overridden += 1
            self._asked = asked[0]
        for group, own, put in zip(optimizer.param_groups, self._own, self._put, strict=True):
            if float(group["lr"]) == float(put):
                group["lr"] = own

    def measured(self) -> dict[str, Any] | None:
        """Return what the epoch's events hold of it; None where no step was taken."""
        if not self.last:
            return None
        return {"least": self._least, "most": self._most, "overridden": self.overridden}

    def told(self, *, epoch: int, steps: int) -> str | None:
        """Return in words that decisions were without effect in an epoch, None if they were not."""
        if not self.overridden:
            return None
        return (
            f"the learning rate was {self.last[0]:g} in epoch {epoch}, not {self._asked:g} as "
            f"decisions have it: in {self.overridden} of {steps} steps, a hook of the optimizer "
            "put another value there"
        )
