"""The campaign: several attempts at one task, each a run of its own, and which was best.

It is iterative self-refinement: nothing is learned in any model's weights, and its mode says so.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

MODE = "iterative_self_refine"  # not reinforcement learning


class Campaign(Aggregate):
    """Attempts in order, rebuilt from its events."""

    class Started(Aggregate.Created):
        """What is attempted, and at most how often."""

        mode: str
        config: dict[str, Any]
        attempts: int

    class AttemptStarted(Aggregate.Event):
        """An attempt is given its run."""

        number: int
        run: str
        parent_run: str | None

        def apply(self, aggregate: "Campaign") -> None:
            """Add the run to the attempts."""
            aggregate.runs.append(self.run)

    class FeedbackGiven(Aggregate.Event):
        """What the next attempt is told of the earlier ones."""

        number: int
        feedback: dict[str, Any]

    class Ended(Aggregate.Event):
        """No attempt follows; the ranking's first is the best."""

        reason: str
        ranking: list[str]

        def apply(self, aggregate: "Campaign") -> None:
            """Close the campaign."""
            aggregate.ranking = list(self.ranking)

    def __init__(self, mode: str, config: dict[str, Any], attempts: int) -> None:
        self.mode = mode
        self.config = config
        self.attempts = attempts
        self.runs: list[str] = []
        self.ranking: list[str] | None = None

    @classmethod
    def start(
        cls, *, config: Mapping[str, Any], attempts: int, campaign_id: UUID | None = None
    ) -> "Campaign":
        """Open a campaign of at most `attempts` runs."""
        if attempts < 1:
            raise InvariantError(f"a campaign has at least one attempt, not {attempts}")
        return cls._create(
            event_class=cls.Started,
            id=campaign_id or uuid4(),
            mode=MODE,
            config=dict(config),
            attempts=attempts,
        )

    def start_attempt(self, run: str, *, parent_run: str | None = None) -> int:
        """Record the next attempt; its number is counted here."""
        self._check_open()
        if len(self.runs) >= self.attempts:
            raise InvariantError(f"all {self.attempts} attempts of campaign {self.id} are used")
        if run in self.runs:
            raise InvariantError(f"run {run} is an attempt already")
        if parent_run is not None and parent_run not in self.runs:
            raise InvariantError(f"parent run {parent_run} is no attempt of this campaign")
        number = len(self.runs) + 1
        self.trigger_event(self.AttemptStarted, number=number, run=run, parent_run=parent_run)
        return number

    def give_feedback(self, feedback: Mapping[str, Any]) -> None:
        """Record what the next attempt is told."""
        self._check_open()
        self.trigger_event(self.FeedbackGiven, number=len(self.runs) + 1, feedback=dict(feedback))

    def end(self, reason: str, *, ranking: Sequence[str]) -> None:
        """Close the campaign with its runs ranked, the best first."""
        self._check_open()
        if sorted(ranking) != sorted(self.runs):
            raise InvariantError("a ranking names every attempt's run once")
        self.trigger_event(self.Ended, reason=reason, ranking=list(ranking))

    def _check_open(self) -> None:
        if self.ranking is not None:
            raise InvariantError(f"campaign {self.id} has ended: nothing follows")
