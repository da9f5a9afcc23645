"""The campaign: several attempts at one task, each a separate run, with a ranking.

It is iterative self-refinement: no policy model's weights are trained, as its mode states.
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
        policy: dict[str, Any]
        feedback: bool

    class AttemptStarted(Aggregate.Event):
        """An attempt is given its run."""

        number: int
        run: str
        parent_run: str | None

        def apply(self, aggregate: "Campaign") -> None:
            """Add the run to the attempts."""
            aggregate.runs.append(self.run)

    class AttemptAbandoned(Aggregate.Event):
        """The latest attempt was cut off: its run does not count, and its number is free again."""

        number: int
        run: str
        reason: str

        def apply(self, aggregate: "Campaign") -> None:
            """Take the run out of the attempts."""
            aggregate.runs.remove(self.run)
            aggregate.abandoned.append(self.run)

    class AttemptJudged(Aggregate.Event):
        """An attempt has its verdict: this audit counts, whatever others there are of its run."""

        number: int
        run: str
        audit: str

        def apply(self, aggregate: "Campaign") -> None:
            """Keep the audit's id."""
            aggregate.audits[self.run] = self.audit

    class FeedbackGiven(Aggregate.Event):
        """What the next attempt is told of the earlier ones."""

        number: int
        feedback: dict[str, Any]

        def apply(self, aggregate: "Campaign") -> None:
            """Keep what the attempt of this number is told, however often it is made."""
            aggregate.told[self.number] = self.feedback

    class Advised(Aggregate.Event):
        """The advice block that the next attempt's prompt has; empty: the model has none."""

        number: int
        advice: str
        version: int  # of the model's advice; 0: none

        def apply(self, aggregate: "Campaign") -> None:
            """Keep what the attempt of this number is advised, however often it is made."""
            aggregate.advised[self.number] = self.advice

    class Ended(Aggregate.Event):
        """No attempt follows; the ranking's first is the best."""

        reason: str
        ranking: list[str]

        def apply(self, aggregate: "Campaign") -> None:
            """Close the campaign."""
            aggregate.ranking = list(self.ranking)

    def __init__(
        self,
        mode: str,
        config: dict[str, Any],
        attempts: int,
        policy: dict[str, Any],
        feedback: bool,
    ) -> None:
        self.mode = mode
        self.config = config
        self.attempts = attempts  # at most
        self.policy = policy
        self.feedback = feedback
        self.runs: list[str] = []  # of the attempts that count
        self.abandoned: list[str] = []
        self.audits: dict[str, str] = {}  # run -> the audit that counts
        self.told: dict[int, dict[str, Any]] = {}  # feedback, by the attempt's number
        self.advised: dict[int, str] = {}  # advice block, by the attempt's number
        self.ranking: list[str] | None = None

    @classmethod
    def start(
        cls,
        *,
        config: Mapping[str, Any],
        attempts: int,
        policy: Mapping[str, Any],
        feedback: bool = False,
        campaign_id: UUID | None = None,
    ) -> "Campaign":
        """Open a campaign of at most `attempts` runs, that are told of earlier ones or are not."""
        if attempts < 1:
            raise InvariantError(f"a campaign must have at least one attempt, not {attempts}")
        return cls._create(
            event_class=cls.Started,
            id=campaign_id or uuid4(),
            mode=MODE,
            config=dict(config),
            attempts=attempts,
            policy=dict(policy),
            feedback=feedback,
        )

    @property
    def next_number(self) -> int:
        """The number of the attempt that would start now."""
        return len(self.runs) + 1

    def start_attempt(self, run: str, *, parent_run: str | None = None) -> int:
        """Record the next attempt; its number is counted here."""
        self._check_open()
        number = self.next_number
        if number > self.attempts:
            raise InvariantError(f"all {self.attempts} attempts of campaign {self.id} are used")
        if run in (*self.runs, *self.abandoned):
            raise InvariantError(f"run {run} is already an attempt of this campaign")
        if parent_run is not None and parent_run not in self.runs:
            raise InvariantError(f"parent run {parent_run} is not an attempt of this campaign")
        self.trigger_event(self.AttemptStarted, number=number, run=run, parent_run=parent_run)
        return number

    def abandon_attempt(self, run: str, reason: str) -> None:
        """Record that the latest attempt was cut off and does not count."""
        self._check_open()
        if not self.runs or self.runs[-1] != run:
            raise InvariantError(
                f"run {run} is not the latest attempt: only the latest can be abandoned"
            )
        if run in self.audits:
            raise InvariantError(f"run {run} is already judged, so it cannot be abandoned")
        self.trigger_event(self.AttemptAbandoned, number=len(self.runs), run=run, reason=reason)

    def judge_attempt(self, run: str, audit: str) -> None:
        """Record which audit of an attempt counts; it does not change any more."""
        self._check_open()
        if run not in self.runs:
            raise InvariantError(
                f"run {run} is not an attempt of this campaign, or it was abandoned"
            )
        if run in self.audits:
            raise InvariantError(f"run {run} is already judged")
        number = self.runs.index(run) + 1
        self.trigger_event(self.AttemptJudged, number=number, run=run, audit=audit)

    def give_feedback(self, feedback: Mapping[str, Any]) -> None:
        """Record what the next attempt is told; it is told once."""
        self._check_open()
        number = self.next_number
        if not self.feedback:
            raise InvariantError(f"campaign {self.id} was started without feedback")
        if number in self.told:
            raise InvariantError(f"attempt {number} has already been given feedback")
        self.trigger_event(self.FeedbackGiven, number=number, feedback=dict(feedback))

    def advise(self, advice: str, *, version: int) -> None:
        """Record which advice block the next attempt has; it is given once."""
        self._check_open()
        number = self.next_number
        if number in self.advised:
            raise InvariantError(f"attempt {number} already has an advice block")
        self.trigger_event(self.Advised, number=number, advice=advice, version=version)

    def end(self, reason: str, *, ranking: Sequence[str]) -> None:
        """Close the campaign with its runs ranked, the best first."""
        self._check_open()
        if sorted(ranking) != sorted(self.runs):
            raise InvariantError("a ranking must name the run of every counted attempt once")
        self.trigger_event(self.Ended, reason=reason, ranking=list(ranking))

    def _check_open(self) -> None:
        if self.ranking is not None:
            raise InvariantError(f"campaign {self.id} has ended")
