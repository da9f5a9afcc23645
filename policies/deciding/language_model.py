"""The policy that asks a language model about all due rules in one request.

Usable answers become decisions. Unusable ones are requested again with the problem named. Rules
that then have no answer are answered in the driver's name, never in the model's. No server failure
ends the run.

I/O: the asker's.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aggregates.campaign import MODE
from aggregates.decisions import Decision, Observation, Said, unanswered
from policies.answers import decision_schema, exported_schema, read_answer
from policies.asking.ask import Asked, Asker
from policies.asking.prompt import messages
from policies.ensemble import VOTED, Ballot, put_to_vote

_ASKED_AGAIN = ("unusable", "usable", "truncated")  # what a model can do better when told
_Read = tuple[list[Decision], dict[str, str]]


class LanguageModelPolicy:
    """Decides what a model says."""

    name = "openai"

    def __init__(
        self,
        asker: Asker,
        *,
        rung: str,
        feedback: Mapping[str, Any] | None = None,
        advice: str = "",
    ) -> None:
        self._asker = asker
        self._settings = asker.settings
        self._rung = rung
        self._feedback = feedback
        self._advice = advice

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        told = {"mode": MODE, **self._settings.to_dict(), "rung": self._rung}
        if (version := self._asker.version) > 1:
            told["version"] = version
        if self._advice:
            told["advice"] = hashlib.sha256(self._advice.encode()).hexdigest()
        return told

    def decide(self, observation: Observation) -> list[Said]:
        """Return one answer for each due rule, in order of precedence."""
        due = observation.due
        voted = tuple(rule for rule in due if rule in VOTED and self._settings.votes > 1)
        said: list[Said] = []
        for rule in voted:
            ballot = put_to_vote(
                rule, observation, ask=self._ballot, votes=self._settings.votes, log=self._asker.log
            )
            said.append(
                Said(ballot.decision) if ballot.decision else unanswered(rule, ballot.problem)
            )
        if others := tuple(rule for rule in due if rule not in voted):
            said += self._ask_until_usable(replace(observation, due=others))
        return sorted(said, key=lambda one: min(map(due.index, one.decision.cites)))

    def _ask_until_usable(self, observation: Observation) -> list[Said]:
        """Ask about every due rule, again about what is open, and speak for what stays open."""
        said: list[Said] = []
        problem: str | None = None
        for attempt in range(self._settings.repairs + 1):
            asked = self._ask(observation, agent="decider", attempt=attempt, problem=problem)
            decisions, open_rules = asked.found or (
                [],
                dict.fromkeys(observation.due, f"{asked.problem}"),
            )
            said += [Said(decision) for decision in decisions]
            observation = replace(
                observation, due=tuple(rule for rule in observation.due if rule in open_rules)
            )
            if not observation.due:
                return said
            problem = asked.problem
            if asked.outcome not in _ASKED_AGAIN:
                break
        kind = "unusable" if asked.outcome == "usable" else asked.outcome
        return said + [unanswered(rule, f"{kind}: {open_rules[rule]}") for rule in observation.due]

    def _ballot(self, observation: Observation, /, *, agent: str, voter: int) -> Ballot:
        """Ask one voter about one rule, once."""
        asked = self._ask(observation, agent=agent, seed=(self._settings.seed or 0) + voter)
        if asked.found is None or not asked.found[0]:
            return Ballot(asked.number, None, f"{asked.outcome}: {asked.problem}")
        return Ballot(asked.number, asked.found[0][0], None)

    def _ask(
        self,
        observation: Observation,
        *,
        agent: str,
        attempt: int = 0,
        problem: str | None = None,
        seed: int | None = None,
    ) -> Asked[_Read]:
        def read(value: Any) -> tuple[_Read, str | None, bool]:
            early = self._asker.version == 1
            decisions, problems = read_answer(value, observation, early=early)
            return (decisions, problems), _joined(problems), bool(decisions)

        schema = decision_schema if self._settings.form == "full" else exported_schema
        return self._asker.ask(
            self._rung,
            messages(
                observation,
                settings=self._settings,
                feedback=self._feedback,
                advice=self._advice,
                problem=problem,
            ),
            schema(observation),
            read,
            agent=agent,
            action="repair" if attempt else "decide",
            epoch=observation.epoch,
            rules=observation.due,
            seed=seed,
        )


def _joined(problems: Mapping[str, str]) -> str | None:
    """Return the problems of several rules in one line, each problem once."""
    rules: dict[str, list[str]] = {}
    for rule, problem in problems.items():
        rules.setdefault(problem, []).append(rule)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in rules.items()) or None
