"""The mixed policy: the playbook decides, and asks a language model where it is unsure.

It is unsure about the rule whose turn it is if every remedy of the playbook is at its limit, or if
the remedy that was applied for the rule last did not silence it. What waits its turn is sure to
wait. Where the model gives no usable answer, the playbook's decision stands.
I/O: none; the model's part is passed in.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from aggregates.decisions import Decision, Observation, Said
from policies.calls import CallLog
from policies.hindsight import last_effects
from policies.playbook import AT_LIMIT, PlaybookPolicy


class Proposer(Protocol):
    """A policy whose decisions are taken up by another one."""

    def describe(self) -> dict[str, Any]:
        """Return what a run records of the policy."""

    def decide(self, observation: Observation, /) -> Sequence[Decision | Said]:
        """Answer the rules that are due."""


class MixedPolicy:
    """Decides by the playbook, and by `model` for the rule that the playbook is unsure about."""

    name = "mixed"

    def __init__(self, model: Proposer, *, log: CallLog) -> None:
        self._model = model
        self._log = log
        self._playbook = PlaybookPolicy()

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {
            **self._model.describe(),
            "name": self.name,
            "playbook": self._playbook.describe(),
        }

    def decide(self, observation: Observation) -> list[Decision | Said]:
        """Return one decision for each due rule, in the playbook's order."""
        began = time.monotonic()
        decisions = self._playbook.decide(observation)
        unsure = _unsure(decisions, observation)
        self._log.add(
            agent=self._playbook.name,
            action="decide",
            outcome="usable",
            epoch=observation.epoch,
            rules=observation.due,
            seconds=time.monotonic() - began,
        )
        said: list[Decision | Said] = []
        for decision in decisions:
            taken = self._asked(decision, observation) if decision is unsure else []
            said += taken or [decision]
        return said

    def _asked(self, decision: Decision, observation: Observation) -> list[Decision | Said]:
        """Return what the model says in the place of `decision`, nothing if it says nothing."""
        answers = self._model.decide(replace(observation, due=decision.cites))
        return [
            answer
            for answer in answers
            if not isinstance(answer, Said) or answer.source != "driver"
        ]


def _unsure(decisions: Sequence[Decision], seen: Observation) -> Decision | None:
    """Return the decision that the playbook is unsure about, if there is one."""
    effects = last_effects(seen)
    for decision in decisions:
        effect = effects.get(decision.cites[0])
        failed = decision.acts and effect is not None and effect.worked is False
        if failed or AT_LIMIT in decision.justification:
            return decision
    return None
