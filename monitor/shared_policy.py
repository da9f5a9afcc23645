"""One policy for the processes that train one model together.

The first process records the run. The others keep the same run in memory: they hear what the first
has measured and what its policy says, and so carry out the same decisions.

I/O: torch.distributed's default group.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aggregates.decisions import Decision, Observation, Said, parse_decision
from aggregates.run import Run
from monitor.answering import Policy, ask
from monitor.errors import PolicyError
from monitor.processes import Processes


class SharedPolicy:
    """The policy of the first process; the others say what it said."""

    def __init__(
        self, policy: Policy | None, processes: Processes, description: Mapping[str, Any]
    ) -> None:
        self._policy = policy  # None in all but the first
        self._processes = processes
        self._description = dict(description)
        self.name = str(self._description.pop("name"))

    def describe(self) -> dict[str, Any]:
        """Return what a run records of the policy."""
        return self._description

    def decide(self, observation: Observation, /) -> Sequence[Decision | Said]:
        """Ask the policy where it is, and tell the others."""
        if self._policy is None:
            heard = self._processes.of_first(None)
            if "error" in heard:
                raise PolicyError(heard["error"])
            return [Said(parse_decision(said), source) for said, source in heard["said"]]
        told: dict[str, Any] = {"error": f"policy {self.name} gave no decisions"}
        try:
            said = ask(self._policy, observation)
            told = {"said": [(each.decision.to_dict(), each.source) for each in said]}
        except PolicyError as error:
            told = {"error": str(error)}
            raise
        finally:
            self._processes.of_first(told)
        return said


class Nowhere:
    """The log of a process that is not the first."""

    def save(self, run: Run, /) -> None:
        """Forget the events that the run has gained."""
        run.collect_events()
