"""The policy that never acts: a baseline that shows what the remedies are worth.

I/O: none.
"""

from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER


class NothingPolicy:
    """Answers every due rule with no action."""

    name = "nothing"
    why = "this policy never acts"

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {"name": self.name}

    def decide(self, observation: Observation) -> list[Decision]:
        """Return a deferral, without anything that would clear it, for each due rule."""
        return [
            Decision.of((rule,), DEFER, {}, f"{rule} is left alone: {self.why}.")
            for rule in observation.due
        ]
