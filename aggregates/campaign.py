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
        """The start of a campaign: what is attempted, and how often.

        The view `campaigns` is easier to query.
        """

        _: KW_ONLY
        # always `iterative_self_refine`: no weights of a language model change
        mode: str = counted()
        config: Mapping[str, Any]
        attempts: int  # maximum number of attempts
        policy: Mapping[str, Any]  # the policy with its settings, without secrets
        feedback: bool = False  # whether attempts get feedback on earlier ones
        # which axis is compared first, `process` or `quality` (version 1 has none: `process`)
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
        """An attempt of a campaign is given its run."""

        # from 1; the replacement of an abandoned attempt has the same number
        number: int = counted(after="runs")
        run: str
        parent_run: str | None = None  # the run that it restarts, or null

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
        """The latest attempt was cut off with its process.

        It does not count, and its number is used again.
        """

        number: int = counted("number")  # the attempt, which is made again
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
        """Which audit of an attempt counts: the campaign's own.

        The campaign makes it after the run's end, of the submitted files. Other audits of the same
        run change nothing.
        """

        number: int = counted()  # the attempt
        run: str
        # the audit that is fed back and ranked by
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
        """The feedback that an attempt receives on earlier attempts.

        It is recorded once, before the attempt starts. If the attempt is abandoned, its replacement
        gets the same feedback.
        """

        number: int = counted(after="runs")  # the attempt that gets the feedback
        # feedback on earlier attempts; each violation in it is an object with `kind` and `rule`
        feedback: Annotated[Mapping[str, Any], KeptAs("told", by="number")]

        def check(self, campaign: "Campaign") -> None:
            if not campaign.feedback:
                raise InvariantError(f"campaign {campaign.id} was started without feedback")
            if self.number in campaign.told:
                raise InvariantError(f"attempt {self.number} has already been given feedback")

    class Advised(Event):
        """The advice block of an attempt's prompts.

        Only a campaign that tunes the block records it, before each attempt.
        """

        number: int = counted(after="runs")  # the attempt
        # the text of the block; empty: there is none
        advice: Annotated[str, KeptAs("advised", by="number")]
        version: int  # its version in the stream `advice` of the model; 0: the empty block

        def check(self, campaign: "Campaign") -> None:
            if self.number in campaign.advised:
                raise InvariantError(f"attempt {self.number} already has an advice block")

    class Ended(Event):
        """The end of a campaign; an unfinished campaign has none."""

        ENDS = "campaign {aggregate.id} has ended"
        reason: str  # why no attempt follows
        ranking: Kept[Sequence[str]]  # runs, the best first

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
