"""A run to be trained, alone, as one of a comparison or a campaign, or as a fork.

I/O: appends to the log; reads and writes the home.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.decisions import Decision, Observation, Said
from aggregates.forks import Fork, shared_digest, shared_events
from aggregates.run import OWN_ENDS, Run
from aggregates.spec import ModelSpec
from ledger.application import LedgerApplication
from monitor.answering import Policy
from monitor.config import RunConfig, TaskConfig
from monitor.datasets import Splits
from monitor.errors import TaskError
from monitor.loop import prepare
from monitor.loop import train as train_model
from monitor.snapshots import Start
from monitor.tasks import TaskText
from policies.deciding.recorded import RecordedPolicy
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.policies import PolicyChoice, make_policy
from proctor.runs.replay import folded
from proctor.runs.tasks import task_training
from proctor.runs.training import SILENT, Prepared, Told, Watching, train_run
from proctor.runs.transcript_log import Tally

_prepare = lru_cache(1)(prepare)


def data_of(config: RunConfig) -> Splits:
    """Return the data of a configuration, as prepare() does; that of the last one is kept."""
    return _prepare(replace(config, seed=0))  # on which no data depends


def recorded_run(log: LedgerApplication, run_id: str) -> Run | None:
    """Return a run as far as it has come, None if it never began."""
    return log.find(UUID(run_id), Run)


def is_done(log: LedgerApplication, run_id: str) -> bool:
    """Return whether a run ended by itself."""
    run = recorded_run(log, run_id)
    return run is not None and run.end_reason in OWN_ENDS


@dataclass(frozen=True)
class Job:
    """A run to be trained, with what that needs."""

    home: Path  # of the ledger's owner
    run: str  # its id
    config: RunConfig | TaskConfig  # what it is to record as its configuration
    choice: PolicyChoice | None  # None: decisions are those that the parent of a fork records
    task: TaskText | None = None  # whose model and data it has; None: the built-in network
    spec: ModelSpec | None = None  # of the model that it starts from, where no configuration says
    parent: str | None = None  # the run that ended for this one
    campaign: str | None = None  # of which it is an attempt
    told: Told = field(default_factory=Told)
    spent: Tally | None = None  # by earlier calls; for the progress
    fork: Fork | None = None  # whose state is a blob
    said: tuple[Said, ...] = ()  # on the epoch that a fork starts at

    def allot(self, log: LedgerApplication) -> None:
        """Record an attempt, unless that was done before."""
        if self.campaign is not None:
            campaign: Campaign = log.repository.get(UUID(self.campaign))
            if self.run not in campaign.runs:
                campaign.start_attempt(self.run, parent_run=self.parent)
                log.save(campaign)

    def train(self, home: Home, log: LedgerApplication, watching: Watching = SILENT) -> None:
        """Train the run in this process, unless that was done before."""
        if is_done(log, self.run):
            return
        config, parent = self.config, None
        if isinstance(config, TaskConfig):
            assert self.task is not None, "whoever configures one has read it"
            if self.task.sha256 != config.task:
                raise TaskError(
                    f"{self.task.name} was changed while the command started; run it again"
                )
            train = task_training(home, self.task.source, config)
            if self.task.compiles:
                watching.say(
                    "torch.compile() does nothing in a task: its compiler would start programs and "
                    "write files, which a confined process cannot"
                )
        else:
            start: dict[str, Any] = {"spec": self.spec, "parent_run": self.parent}
            if self.fork is not None:
                start, parent = _forked(home, log, self.fork)
            splits = data_of(config)
            train = partial(train_model, splits=splits, campaign=self.campaign, **start)
        train_run(
            home,
            log,
            train,
            config,
            run_id=UUID(self.run),
            prepared=self._prepared(home, log, parent),
            watching=watching,
            begin=lambda: self.allot(log),
            spent=self.spent,
        )

    def _prepared(self, home: Home, log: LedgerApplication, parent: Run | None) -> Prepared:
        """Return who decides; `parent` is the run that a fork goes on from."""
        if self.choice is not None:
            prepared = make_policy(self.choice, log, home.blobs, UUID(self.run), self.told)
        else:
            assert parent is not None, "only forks are decided by a record"
            prepared = Prepared(RecordedPolicy(parent.decisions, parent.policy))
        if self.fork is not None and self.said:
            given = GivenPolicy(self.fork.epoch, self.said, prepared.policy)
            prepared = replace(prepared, policy=given)
        return prepared


def _forked(home: Home, log: LedgerApplication, fork: Fork) -> tuple[dict[str, Any], Run]:
    """Return what a fork is started from, and its parent."""
    events = list(log.events.get(UUID(fork.parent)))
    if shared_digest(events, fork.epoch) != fork.digest:
        raise ProctorError(f"run {fork.parent} is not what it was when its fork was planned")
    parent: Run = folded(events)
    spec = parent.initial_spec
    assert isinstance(spec, ModelSpec), "only such runs are rebuilt"
    start = Start(tuple(shared_events(events, fork.epoch)), home.blobs.get(fork.state))
    return {"spec": spec, "parent_run": parent.parent_run, "fork": fork, "start": start}, parent


@dataclass(frozen=True)
class GivenPolicy:
    """Answers one epoch with given decisions, and asks another policy from then on."""

    epoch: int
    decisions: Sequence[Said]
    then: Policy
    name = "given"

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        then = {"name": self.then.name, **self.then.describe()}
        return {"name": self.name, "epoch": self.epoch, "then": then}

    def decide(self, observation: Observation) -> list[Decision | Said]:
        """Return the given decisions in their epoch, else what the other policy says."""
        chosen = observation.epoch == self.epoch
        return list(self.decisions if chosen else self.then.decide(observation))
