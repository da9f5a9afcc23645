"""What came of training a run, a campaign or a comparison again, as `replay --execute` answers.

I/O: none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aggregates.run import Run
from judge.compare import Difference
from proctor.output.shape import Answer


class RunAgain(Answer):
    """A run that was trained again; exit code 1 unless it is the same."""

    run_id: str
    epochs: int  # that were done again
    whole: bool  # up to the run's own end
    events: int  # compared
    values: int  # compared
    total: int  # differences
    differences: Sequence[Difference]  # the first of them
    environment: Sequence[Difference]  # versions, machine and code, then and now
    kind: Sequence[str]  # what of it decides the bits and differs
    same: bool
    calls: int  # to a model, that were checked
    policy: Sequence[Difference]  # what does not follow from the answers that are recorded


@dataclass(frozen=True)
class CutOff:
    """An attempt that was cut off and made again: what was made in its place is one more draw."""

    run: str
    state: str | None  # the reason of its run's end; None: it never began
    epochs: int  # that it had measured
    best_validation_accuracy: float | None

    @classmethod
    def read(cls, run: str, events: Iterable[Any]) -> Self:
        """Return what the events of the run tell."""
        state: str | None = None
        measured: list[float] = []
        for event in events:
            if type(event) is Run.EpochMeasured:
                measured.append(event.measured["validation"]["accuracy"])
            elif type(event) is Run.Ended:
                state = event.reason
        return cls(run, state, len(measured), max(measured, default=None))


class CampaignAgain(Answer):
    """A campaign that was trained again; exit code 1 unless it is the same."""

    campaign: str
    mode: str
    same: bool
    attempts: list[RunAgain]
    ranking: list[str]  # as derived again
    abandoned: list[CutOff]  # which are not done again
    differences: list[Difference]  # of starts, feedback, verdicts and the ranking


class ComparisonAgain(Answer):
    """A comparison that was trained again; exit code 1 unless it is the same."""

    comparison: str
    same: bool
    runs: list[RunAgain]  # of its finished cells
    differences: list[Difference]  # of starts and verdicts
