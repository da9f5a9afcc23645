"""What is trained, as decisions see it: a model of ours, a task's, or one of a watched loop.

I/O: none.
"""

from typing import Protocol

from aggregates.decisions import Decision, Settings
from aggregates.outcomes import Changes, Outcome, derive_outcome
from aggregates.spec import Spec
from monitor.config import AnyConfig


class Trained(Protocol):
    """What is trained, and can be changed by a decision."""

    settings: Settings

    @property
    def config(self) -> AnyConfig:
        """The run's configuration."""

    @property
    def train_examples(self) -> int:
        """How many training examples there are; 0: nobody knows."""

    @property
    def spec(self) -> Spec:
        """The model as it is now."""

    def execute(self, decision: Decision, *, epoch: int) -> Changes:
        """Carry a decision out; raises RemedyRefused, everything as it was, if that cannot be."""


def outcome_of(decision: Decision, state: Trained, *, epoch: int) -> Outcome:
    """Return what carrying a decision out after `epoch` leads to; raises RemedyRefused."""
    return derive_outcome(
        decision,
        settings=state.settings,
        spec=state.spec,
        epoch=epoch,
        max_batch_size=state.config.max_batch_size,
        train_examples=state.train_examples,
    )
