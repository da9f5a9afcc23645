"""The campaign: several attempts at one task, each a separate run, with a ranking.

It is iterative self-refinement: no policy model's weights are trained, as its mode states.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, field
from typing import Annotated, Any
from uuid import UUID

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Event, First, Kept, KeptAs, OneOf, Since, begins, counted, records

MODE = "iterative_self_refine"  # not reinforcement learning
PROCESS, QUALITY = "process", "quality"  # which of an attempt's two axes is compared first


class Campaign(Aggregate):
    """Attempts in order, rebuilt from its events."""

    class Started(First):
        """What is attempted, and at most how often; whether runs are told of earlier ones."""

        _: KW_ONLY
        mode: str = counted()
        config: Mapping[str, Any]
        attempts: int
        policy: Mapping[str, Any]
        feedback: bool = False
        ranked_by: Annotated[
            str, OneOf("what attempts are ranked by", (PROCESS, QUALITY)), Since(2, PROCESS)
        ] = PROCESS
        campaign_id: InitVar[UUID | None] = None

        def check(self) -> dict[str, Any]:
            if self.attempts < 1:
                raise InvariantError(
                    f"a campaign must have at least one attempt, not {self.attempts}"
                )
            return {"mode": MODE}

    class AttemptStarted(Event):
        """An attempt is given its run."""

        number: int = counted(after="runs")
        run: str
        parent_run: str | None = None

        def check(self, campaign: "Campaign") -> None:
            if self.number > campaign.attempts:
                raise InvariantError(
                    f"all {campaign.attempts} attempts of campaign {campaign.id} are used"
                )
            if self.run in (*campaign.runs, *campaign.abandoned):
                raise InvariantError(f"run {self.run} is already an attempt of this campaign")
            if self.parent_run is not None and self.parent_run not in campaign.runs:
                raise InvariantError(
                    f"parent run {self.parent_run} is not an attempt of this campaign"
                )

        def apply(self, campaign: "Campaign") -> None:
            campaign.runs.append(self.run)

    class AttemptAbandoned(Event):
        """The latest attempt was cut off: its run does not count, and its number is free again."""

        number: int = counted("number")
        run: str
        reason: str

        def check(self, campaign: "Campaign") -> None:
            if not campaign.runs or campaign.runs[-1] != self.run:
                raise InvariantError(
                    f"run {self.run} is not the latest attempt: only the latest can be abandoned"
                )
            if self.run in campaign.audits:
                raise InvariantError(f"run {self.run} is already judged, so it cannot be abandoned")

        def apply(self, campaign: "Campaign") -> None:
            campaign.runs.remove(self.run)
            campaign.abandoned.append(self.run)

    class AttemptJudged(Event):
        """An attempt has its verdict: this audit counts, whatever others there are of its run."""

        number: int = counted()
        run: str
        audit: Annotated[str, KeptAs("audits", by="run")]

        def check(self, campaign: "Campaign") -> dict[str, Any]:
            """Number the attempt; which audit counts does not change any more."""
            if self.run not in campaign.runs:
                raise InvariantError(
                    f"run {self.run} is not an attempt of this campaign, or it was abandoned"
                )
            if self.run in campaign.audits:
                raise InvariantError(f"run {self.run} is already judged")
            return {"number": campaign.runs.index(self.run) + 1}

    class FeedbackGiven(Event):
        """What the next attempt is told of the earlier ones, once."""

        number: int = counted(after="runs")
        # However often the attempt of this number is made.
        feedback: Annotated[Mapping[str, Any], KeptAs("told", by="number")]

        def check(self, campaign: "Campaign") -> None:
            if not campaign.feedback:
                raise InvariantError(f"campaign {campaign.id} was started without feedback")
            if self.number in campaign.told:
                raise InvariantError(f"attempt {self.number} has already been given feedback")

    class Advised(Event):
        """The advice block that the next attempt's prompt has; empty: the model has none."""

        number: int = counted(after="runs")
        advice: Annotated[str, KeptAs("advised", by="number")]
        version: int  # of the model's advice; 0: none

        def check(self, campaign: "Campaign") -> None:
            if self.number in campaign.advised:
                raise InvariantError(f"attempt {self.number} already has an advice block")

    class Ended(Event):
        """No attempt follows; the ranking's first is the best."""

        ENDS = "campaign {aggregate.id} has ended"
        reason: str
        ranking: Kept[Sequence[str]]

        def check(self, campaign: "Campaign") -> None:
            if sorted(self.ranking) != sorted(campaign.runs):
                raise InvariantError("a ranking must name the run of every counted attempt once")

    mode: str
    config: dict[str, Any]
    attempts: int  # at most
    policy: dict[str, Any]
    feedback: bool
    ranked_by: str
    runs: list[str] = field(default_factory=list)  # of the attempts that count
    abandoned: list[str] = field(default_factory=list)
    audits: dict[str, str] = field(default_factory=dict)  # run -> the audit that counts
    # By the attempt's number: feedback, and advice block.
    told: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    advised: dict[int, str] = field(default_factory=dict)
    ranking: Sequence[str] | None = None
    ended: str | None = None

    start = begins(Started)
    start_attempt = records(AttemptStarted, lambda told: told.number)
    abandon_attempt = records(AttemptAbandoned)
    judge_attempt = records(AttemptJudged)
    give_feedback = records(FeedbackGiven)
    advise = records(Advised)
    end = records(Ended)

    @property
    def number(self) -> int:
        """The number of the latest attempt."""
        return len(self.runs)
