"""The policy that answers from a run's recorded decisions, so that a run can be retrained.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aggregates.decisions import Observation, PastDecision, Said


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

    def decide(self, observation: Observation) -> list[Said]:
        """Return what was said in the observed epoch, in its order, by whoever said it."""
        return [
            Said(past.decision, past.source)
            for past in self._decisions
            if past.epoch == observation.epoch
        ]
