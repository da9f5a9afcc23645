"""The policy that answers from a run's recorded decisions, so that a run can be done again.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aggregates.decisions import Decision, Observation, PastDecision


class RecordedPolicy:
    """Says again, epoch by epoch, what was said then."""

    name = "recorded"

    def __init__(
        self, decisions: Sequence[PastDecision], description: Mapping[str, Any] | None = None
    ) -> None:
        self._decisions = tuple(decisions)
        self._description = dict(description or {"name": self.name})

    def describe(self) -> dict[str, Any]:
        """Return the description of the policy that decided then."""
        return dict(self._description)

    def decide(self, observation: Observation) -> list[Decision]:
        """Return the decisions of the observed epoch, in their order."""
        return [past.decision for past in self._decisions if past.epoch == observation.epoch]
