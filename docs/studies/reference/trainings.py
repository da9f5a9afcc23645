"""Real trainings for reference tasks: small ones, in our process, with the candidate's decisions.

I/O: none; everything is kept in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.errors import DecisionError
from aggregates.run import Run
from judge.auditing.reexecution import NoBlobs
from judge.gauntlet.errors import CandidateError
from judge.gauntlet.tasks.scoring import Ask
from judge.reference.observations import to_plain
from judge.reference.scorers import MOST_ANSWERS, list_of_at_most, valid_decision
from monitor.config import RunConfig
from monitor.errors import MonitorError
from monitor.loop import train

__all__ = ["Asking", "train_with"]

Decide = Callable[[Observation], Sequence[Decision]]


def train_with(config: Mapping[str, Any], decide: Decide) -> Run:
    """Train, with `decide` asked whenever rules are due, and return the run.

    The rules are `calibrated` unless the configuration names others: a task's answer does not
    depend on what is the default.
    Raises the CandidateError that `decide` raises.
    """
    try:
        known = RunConfig.from_dict({"profile": "calibrated", **config})
        return train(known, _Policy(decide), log=_Log(), blobs=NoBlobs())
    except MonitorError as error:
        if isinstance(error.__cause__, CandidateError):
            raise error.__cause__ from error
        raise


class Asking:
    """Asks the candidate for decisions; what is none that can be carried out is a problem."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.problems: list[str] = []

    def decide(self, seen: Observation) -> list[Decision]:
        """Return those of the candidate's decisions that are valid."""
        said = self._ask({"ask": "decide", "observation": to_plain(seen)})
        valid = []
        for plain in list_of_at_most(said, MOST_ANSWERS):
            try:
                valid.append(valid_decision(plain, seen))
            except DecisionError as error:
                self.problems.append(f"epoch {seen.epoch}: {error}"[:200])
        return valid


class _Policy:
    """Hands every question on."""

    name = "candidate"

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation, /) -> Sequence[Decision]:
        return self._decide(observation)


class _Log:
    """Keeps nothing: the run itself is what is looked at."""

    def save(self, run: Run, /) -> None:
        run.collect_events()
