"""The harness of a campaign: attempts at one task, each judged and then fed back to the next.

Everything that the next step depends on is in the ledger, so a campaign that was cut off is carried
on by whoever asks for it again: an attempt that came to no end of its own is abandoned and made
again, one that did is judged if it was not. A chain of restarts is a campaign that ends with the
first run that schedules none.

I/O: appends to the log; reads and writes the home.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol
from uuid import UUID, uuid4, uuid5

from aggregates.campaign import PROCESS, Campaign
from aggregates.canonical import digest
from aggregates.improvement.advice import TRANSCRIPTS, Advice
from aggregates.run import OWN_ENDS, Run
from judge.auditing.report import AuditReport
from judge.auditing.scores import rank
from ledger.application import LedgerApplication
from ledger.progress import advanced
from ledger.wording import counted
from monitor.config import RunConfig
from monitor.datasets import Splits
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import told_score
from proctor.runs.campaign_feedback import make_feedback, read_verdict
from proctor.runs.executors import Executor, trained
from proctor.runs.jobs import Job, is_done, recorded_run
from proctor.runs.policies import PolicyChoice
from proctor.runs.training import Attempt, Told, Watching, following_attempt
from proctor.runs.transcript_log import Tally, read_tally

MAX_RESTARTS = 8  # runs that may follow one another before an unfinished chain is left as it is
_CAMPAIGNS = UUID("b7d4b1ae-1c7e-5f0c-9a38-9d7f2ce0c2a4")  # namespace of their ids


@dataclass(frozen=True)
class Task:
    """What a campaign attempts; the same task is the same campaign."""

    config: RunConfig
    policy: Mapping[str, Any]  # its name and settings
    attempts: int
    feedback: bool
    name: str = ""  # tells apart what is the same otherwise
    tune: bool = False  # the advice to its model is tuned between attempts
    ranked_by: str = PROCESS

    @cached_property
    def id(self) -> UUID:
        """The campaign's id: a hash of everything above."""
        told = {
            "config": self.config.to_dict(),
            "policy": dict(self.policy),
            "attempts": self.attempts,
            "feedback": self.feedback,
            "name": self.name,
            **({"tune": True} if self.tune else {}),
            **({} if self.ranked_by == PROCESS else {"ranked_by": self.ranked_by}),
        }
        return uuid5(_CAMPAIGNS, digest(told))

    def find(self, log: LedgerApplication) -> Campaign | None:
        """Return the campaign as far as it has got, None if there is none."""
        return log.find(self.id, Campaign)

    def open(self, log: LedgerApplication) -> Campaign:
        """Return the campaign as far as it has got, beginning it if there is none."""
        if (found := self.find(log)) is not None:
            return found
        begun = Campaign.start(
            config=self.config.to_dict(),
            attempts=self.attempts,
            policy=self.policy,
            feedback=self.feedback,
            ranked_by=self.ranked_by,
            campaign_id=self.id,
        )
        log.save(begun)
        return begun


class Tuning(Protocol):
    """Tunes the advice to the campaign's model."""

    def champion(self) -> tuple[str, int]:
        """Return the advice block that is in force, and its version."""

    def after_attempt(self, campaign: str, number: int, verdict: AuditReport, /) -> None:
        """Propose, test and promote or keep, unless that was done after this attempt."""


@dataclass
class Harness:
    """Makes a campaign's attempts, one after the other."""

    home: Home
    log: LedgerApplication
    campaign: Campaign
    _: KW_ONLY
    executor: Executor
    choice: PolicyChoice
    judge_run: Callable[[UUID], AuditReport]
    splits: Splits
    watching: Watching
    tuning: Tuning | None = None
    verdicts: list[AuditReport] = field(default_factory=list)  # on the attempts, in order

    def carry_on(self, *, chain: bool = False) -> Attempt | None:
        """Make the attempts that are missing and return what would follow the last one's restart.

        A chain ends where no restart follows.

        Whatever interrupts an attempt leaves the campaign open, to be carried on.
        """
        following = self._resume()
        while len(self.campaign.runs) < self.campaign.attempts:
            if chain and following is None and self.verdicts:
                break
            advanced("attempts", len(self.campaign.runs), self.campaign.attempts)
            run = self._make(following or Attempt(RunConfig.from_dict(self.campaign.config)))
            following = self._settle(run)
        self._tune()
        return following

    def end(self, reason: str) -> None:
        """Close the campaign with the attempts ranked; those without a verdict come last."""
        ranking = rank_runs(self.verdicts, self.campaign.ranked_by)
        unjudged = [run for run in self.campaign.runs if run not in ranking]
        self.campaign.end(reason, ranking=[*ranking, *unjudged])
        self.log.save(self.campaign)

    def _resume(self) -> Attempt | None:
        following = None
        for run_id in tuple(self.campaign.runs):
            run = recorded_run(self.log, run_id)
            if run is not None and run.end_reason in OWN_ENDS:
                self._check_data(run)
                following = self._settle(run)
                continue
            if run is not None and run.end_reason is None:
                raise ProctorError(f"run {run_id} of this campaign is going on elsewhere")
            self._abandon(run_id, run)
        return following

    def _abandon(self, run_id: str, run: Run | None) -> None:
        how = "never began" if run is None else f"ended as {run.end_reason}"
        self.campaign.abandon_attempt(run_id, f"its run {how}")
        self.log.save(self.campaign)

    def _check_data(self, run: Run) -> None:
        recorded, here = run.data.get("fingerprints", {}), self.splits.fingerprints
        if changed := [split for split in here if recorded.get(split) != here[split]]:
            raise ProctorError(
                f"the data has changed since run {run.id}: its {', '.join(changed)} set is another "
                "one here. Attempts at one task share their data; put it back, or give --name"
            )

    def _make(self, this: Attempt) -> Run:
        campaign = self.campaign
        number = campaign.number + 1
        if campaign.feedback and self.verdicts and number not in campaign.told:
            campaign.give_feedback(make_feedback(self.verdicts))
            self.log.save(campaign)
        if self.tuning is not None and number not in campaign.advised:
            self._tune()
            advice, version = self.tuning.champion()
            campaign.advise(advice, version=version)
            self.log.save(campaign)
        spent = read_spent(self.log, campaign)
        so_far = f"; so far {spent}" if spent.calls else ""
        self.watching.say(f"attempt {number} of at most {campaign.attempts}{so_far}")
        job = Job(
            self.home.path,
            str(uuid4()),
            this.config,
            self.choice,
            spec=this.spec,
            parent=this.parent,
            campaign=str(campaign.id),
            told=told_to(campaign, number),
            spent=spent,
        )
        try:
            (job,) = trained(self.executor, [job], self._again, what="an attempt")
        finally:
            self.campaign = self.log.repository.get(campaign.id)  # it has the attempt now
        run: Run = self.log.repository.get(UUID(job.run))
        return run

    def _again(self, job: Job) -> Job:
        """Abandon an attempt whose worker was lost, and return the one in its place."""
        self.campaign = self.log.repository.get(self.campaign.id)
        if is_done(self.log, job.run):  # it was lost behind the end of the run
            return job
        if job.run in self.campaign.runs:
            self._abandon(job.run, recorded_run(self.log, job.run))
        return replace(job, run=str(uuid4()))

    def _tune(self) -> None:
        if self.tuning is not None and self.verdicts:
            number = len(self.verdicts)
            self.tuning.after_attempt(str(self.campaign.id), number, self.verdicts[-1])

    def _settle(self, run: Run) -> Attempt | None:
        """Judge a run, unless that was done, and return what follows its restart.

        An audit that somebody else asked for is none of the campaign's.
        """
        campaign, run_id = self.campaign, str(run.id)
        if run_id not in campaign.audits:
            audit = self.judge_run(run.id).audit_id
            if audit is None:
                raise ProctorError("the ledger does not hold: see `proctor verify`")
            campaign.judge_attempt(run_id, audit)
            self.log.save(campaign)
        verdict = read_verdict(self.log, campaign.audits[run_id])  # as it is recorded
        self.verdicts.append(verdict)
        scores = verdict.scores
        failed = [f"; hard fail: {s.summary}" for s in verdict.steps if s.status == "failed"]
        self.watching.say(
            f"judged: process {scores.process_score:.3f}, "
            f"accuracy {told_score(scores.accuracy_score)}, "
            f"{counted(verdict.found, 'violation')}" + "".join(failed)
        )
        return following_attempt(run)


def told_to(campaign: Campaign, number: int) -> Told:
    """Return what the policy of an attempt is told."""
    return Told(campaign.told.get(number), campaign.advised.get(number, ""))


def read_spent(log: LedgerApplication, campaign: Campaign) -> Tally:
    """Return what all calls of a campaign have come to: for its runs, and to tune the advice."""
    runs = (*campaign.runs, *campaign.abandoned)
    return read_tally(log, runs).added(read_tuning(log, campaign))


def read_tuning(log: LedgerApplication, campaign: Campaign) -> Tally:
    """Return what the calls that wrote and tested advice for a campaign have come to."""
    advice = log.find(Advice.id_of(str(campaign.policy.get("model"))), Advice)
    if advice is None:
        return Tally()
    rounds = [each for each in (*advice.tried, advice.open) if each is not None]
    own = [each.round for each in rounds if each.campaign == str(campaign.id)]
    asked = [advice.transcript_of(each, who) for each in own for who in TRANSCRIPTS]
    return read_tally(log, map(str, asked))


def rank_runs(verdicts: list[AuditReport], by: str) -> list[str]:
    """Return the judged runs, the best first; `by`: which of the two axes is compared first."""
    return [verdict.run_id for verdict in rank(verdicts, by)]
