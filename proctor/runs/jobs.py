"""A run to be trained from its configuration, alone or as one of a comparison or a campaign.

I/O: appends to the log; reads and writes the home.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.spec import ModelSpec
from ledger.application import LedgerApplication
from monitor.config import RunConfig, TaskConfig, WatchConfig, config_of
from monitor.datasets import Splits
from monitor.loop import prepare
from monitor.tasks import TaskText, read_task
from proctor.home import Home
from proctor.runs.executors import choice_of, is_done
from proctor.runs.policies import PolicyChoice, make_policies
from proctor.runs.tasks import run_task
from proctor.runs.training import SILENT, Attempt, Told, Watching, train_run
from proctor.runs.transcript_log import Tally

_data: dict[str, Splits] = {}  # the last one that was loaded, by the configuration without a seed


def data_of(config: RunConfig) -> Splits:
    """Return the data of a configuration, as prepare() does; that of the last one is kept."""
    key = config.hash
    if key not in _data:
        found = prepare(config)
        _data.clear()
        _data[key] = found
    return _data[key]


@dataclass(frozen=True)
class Job:
    """A run to be trained, with what that needs."""

    home: Path
    run: str
    config: RunConfig | TaskConfig
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

    def train(self, home: Home, log: LedgerApplication, watching: Watching = SILENT) -> None:
        """Train the run in this process, unless that was done before."""
        if is_done(log, self.run):
            return
        policy, run_id = make_policies(self.choice, log, home.blobs), UUID(self.run)
        if isinstance(self.config, RunConfig):
            train_run(
                home,
                log,
                Attempt(self.config, self.spec, self.parent),
                make_policy=policy,
                splits=data_of(self.config),
                watching=watching,
                begin=lambda: self.allot(log),
                campaign=self.campaign,
                told=self.told,
                spent=self.spent,
                run_id=run_id,
            )
        elif self.task is not None:
            run_task(
                home,
                log,
                self.task,
                self.config,
                make_policy=policy,
                watching=watching,
                run_id=run_id,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all but the home and the progress in plain values."""
        task = self.task
        return {
            **{name: getattr(self, name) for name in ("run", "parent", "campaign")},
            "config": self.config.to_dict(),
            "choice": self.choice.to_dict(),
            "task": None if task is None else {"name": task.name, "source": task.source.decode()},
            "spec": None if self.spec is None else self.spec.to_dict(),
            "told": asdict(self.told),
        }

    @classmethod
    def from_dict(cls, home: Path, value: Mapping[str, Any]) -> "Job":
        """Return the job that these describe, in another home."""
        task, spec, config = value["task"], value["spec"], config_of(value["config"])
        assert not isinstance(config, WatchConfig), "watched loops are trained by their owners"
        given = {
            "config": config,
            "choice": choice_of(value["choice"]),
            "task": None if task is None else read_task(task["source"].encode(), task["name"]),
            "spec": None if spec is None else ModelSpec.from_dict(spec),
            "told": Told(**value["told"]),
        }
        return cls(home, **{**value, **given})
