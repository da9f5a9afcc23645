"""Trials: a decision tries several learning rates, an epoch each, all from one state.

Trials are epochs of the run itself: measured and recorded like any other, and part of its budget.
What follows each of them is decided here, from the recorded validation losses. The training loop
does it, the run refuses anything else, and the judge derives it again.
I/O: none.  Units: learning rates per step, epochs from 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aggregates.errors import InvariantError

MAX_TRIALS = 4  # of one decision


def chosen_trial(losses: Sequence[float]) -> int | None:
    """Return the trial that goes on, by its place: that with the smallest validation loss.

    Of equal ones it is the first; None if no loss is finite.
    """
    finite = [place for place, loss in enumerate(losses) if math.isfinite(loss)]
    return min(finite, key=losses.__getitem__, default=None)


@dataclass(frozen=True)
class Step:
    """What goes on after a trial: from the state after an epoch, with a learning rate."""

    epoch: int  # FRESH: the fresh weights that the first trial began with
    lr: float


@dataclass(frozen=True)
class Trials:
    """The trials of one decision."""

    decision: int  # its number
    asked: int  # the epoch after which it was made
    epoch: int  # after which each trial begins, or FRESH
    rates: tuple[float, ...]

    @property
    def epochs(self) -> range:
        """The epochs that are trials, one for each rate in order."""
        return range(self.asked + 1, self.asked + 1 + len(self.rates))

    def best(self, losses: Sequence[float]) -> int | None:
        """Return the epoch of the best trial so far, None if no loss is finite."""
        place = chosen_trial(losses)
        return None if place is None else self.epochs[place]

    def verify_rate(self, lr: float, losses: Sequence[float]) -> None:
        """Raise InvariantError unless the next epoch has the learning rate that these lead to."""
        step, epoch = self.step(losses), self.asked + 1 + len(losses)
        if lr != step.lr:
            what = "is a trial" if epoch in self.epochs else f"goes on from epoch {step.epoch}"
            raise InvariantError(
                f"epoch {epoch} {what} of decision {self.decision} with lr {step.lr!r}, not {lr!r}"
            )

    def step(self, losses: Sequence[float]) -> Step:
        """Return what follows, given the validation losses of the trials so far.

        After the last one the chosen trial goes on; if there is none, the smallest rate is tried
        once more from where all began.
        """
        done = len(losses)
        if done < len(self.rates):
            return Step(self.epoch, self.rates[done])
        best = chosen_trial(losses)
        if best is None:
            return Step(self.epoch, min(self.rates))
        return Step(self.epochs[best], self.rates[best])
