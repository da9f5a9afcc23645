"""A run to be trained from its configuration, alone or as one of a comparison or a campaign.

I/O: appends to the log; reads and writes the home.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.spec import ModelSpec
from ledger.application import LedgerApplication
from monitor.config import RunConfig
from monitor.datasets import Splits
from monitor.loop import prepare
from monitor.tasks import TaskText
from proctor.home import Home
from proctor.runs import executors
from proctor.runs.policies import PolicyChoice, make_policy
from proctor.runs.tasks import run_task
from proctor.runs.training import Attempt, Told, Watching, train_run
from proctor.runs.transcript_log import Tally

_prepare = lru_cache(1)(prepare)


def data_of(config: RunConfig) -> Splits:
    """Return the data of a configuration, as prepare() does; that of the last one is kept."""
    return _prepare(replace(config, seed=0))  # on which no data depends


@dataclass(frozen=True)
class Job(executors.Job):
    """A run to be trained from its configuration."""

    choice: PolicyChoice
    task: TaskText | None = None  # whose model and data it has; None: the built-in network
    spec: ModelSpec | None = None  # of the model that it starts from, where no configuration says
    parent: str | None = None  # the run that ended for this one
    campaign: str | None = None  # of which it is an attempt
    told: Told = field(default_factory=Told)
    spent: Tally | None = None  # by earlier calls; for the progress

    def allot(self, log: LedgerApplication) -> None:
        """Record an attempt, unless that was done before."""
        if self.campaign is not None:
            campaign: Campaign = log.repository.get(UUID(self.campaign))
            if self.run not in campaign.runs:
                campaign.start_attempt(self.run, parent_run=self.parent)
                log.save(campaign)

    def _train(self, home: Home, log: LedgerApplication, run_id: UUID, watching: Watching) -> None:
        prepare = partial(make_policy, self.choice, log, home.blobs, run_id, self.told)
        if isinstance(self.config, RunConfig):
            train_run(
                home,
                log,
                Attempt(self.config, self.spec, self.parent),
                splits=data_of(self.config),
                run_id=run_id,
                prepared=prepare(),
                watching=watching,
                begin=lambda: self.allot(log),
                campaign=self.campaign,
                spent=self.spent,
            )
        elif self.task is not None:
            run_task(
                home,
                log,
                self.task,
                self.config,
                run_id=run_id,
                prepare=prepare,
                watching=watching,
            )
