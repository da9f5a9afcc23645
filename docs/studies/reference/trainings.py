"""Real trainings for reference tasks: small ones, in our process, with the candidate's decisions.

I/O: none; everything is kept in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.run import Run
from judge.auditing.reexecution import NoBlobs
from judge.gauntlet.errors import CandidateError
from monitor.config import RunConfig
from monitor.errors import MonitorError
from monitor.loop import train

__all__ = ["train_with"]

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
