"""A run as its replay has rebuilt it: settings, specification, weights and the problems found.

I/O: none.  Units: epochs from 0.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aggregates.decisions import Observation, Settings
from aggregates.rules import VERSIONS, version_of
from aggregates.run import REPEATABLE, Run
from aggregates.spec import ModelSpec, Spec
from monitor.config import AnyConfig, RunConfig, TaskConfig


@dataclass(frozen=True)
class SavedWeights:
    """Weights that the run has saved, with the specification that the replay has reached there."""

    kind: str
    epoch: int
    sha256: str
    size: int  # bytes
    spec: Spec
    probe: Mapping[str, Any]
    measured: Mapping[str, Any]  # of the epoch

    @property
    def model_spec(self) -> ModelSpec:
        """The specification of a model of ours."""
        assert isinstance(self.spec, ModelSpec), "a task's model is its own"
        return self.spec


@dataclass
class Replay:
    """A rebuilt run, with the problems found while rebuilding it.

    Of a measured part, which is most of what a run records, it keeps what later steps read.
    """

    run: Run
    events: Sequence[Any]  # that were replayed, each decoded when it is asked for
    started: Any  # the first of them
    config: AnyConfig
    settings: Settings  # in force after the last event
    spec: Spec  # by the edits that were decided on
    epochs: int = 0  # that were measured
    newest: Mapping[str, Any] = field(default_factory=dict)  # the measured part of the latest
    newest_dead: Mapping[str, int] = field(default_factory=dict)  # units by activation
    # Likewise, of each epoch in which a change of the architecture was decided on.
    dead: dict[int, Mapping[str, int]] = field(default_factory=dict)
    lengths: "array[float]" = field(default_factory=lambda: array("d"))  # of the gradient, by epoch
    overridden: "array[int]" = field(  # steps with another learning rate than decided, by epoch
        default_factory=lambda: array("q")
    )
    without_probes: int | None = None  # the first epoch that has no noise probes
    in_force: list[tuple[Settings, Spec]] = field(default_factory=list)  # by epoch
    settings_at: list[Settings] = field(default_factory=list)  # in force at each decision
    weights: dict[str, SavedWeights] = field(default_factory=dict)  # the newest of each kind
    best_loss: float = math.inf  # of the validation, so far; of a task, the best metric
    best_due: bool = False  # whether the epoch's weights are the best and not saved yet
    superseded: list[tuple[int, int]] = field(default_factory=list)  # see replay_follow.py
    deliverables: Mapping[str, str] = field(default_factory=dict)
    spec_problems: list[str] = field(default_factory=list)
    settings_problems: list[str] = field(default_factory=list)

    @property
    def run_config(self) -> RunConfig:
        """The configuration of a run that can be repeated."""
        assert isinstance(self.config, RunConfig), "a watched run has no other steps"
        return self.config

    @property
    def task_config(self) -> TaskConfig:
        """The configuration of a task's run."""
        assert isinstance(self.config, TaskConfig), "the caller has looked"
        return self.config

    @property
    def is_task(self) -> bool:
        """Whether model and data are those of a task (monitor/tasks.py)."""
        return isinstance(self.config, TaskConfig)

    def keeps_state(self, epoch: int) -> bool:
        """Whether the training state after an epoch is saved."""
        return isinstance(self.config, RunConfig) and self.config.keeps_state(epoch)

    @property
    def watched(self) -> bool:
        """Whether the run was watched in a loop of its owner, so that nobody can repeat it."""
        return self.run.level != REPEATABLE

    @property
    def rules(self) -> dict[str, Any]:
        """The version of the profile that the run recorded and is judged by, and the newest."""
        profile = self.config.profile
        version, newest = version_of(self.run.rules), len(VERSIONS[profile])
        return {"profile": profile, "version": version, "newest": newest}

    @property
    def submitted(self) -> SavedWeights | None:
        """The weights that a submission must hold: the best, or else the last."""
        return self.weights.get("best") or self.weights.get("last")

    def observation(self, epoch: int) -> Observation:
        """Return what the policy was asked after an epoch, as the record gives it."""
        run = self.run
        settings, spec = self.in_force[epoch]
        return Observation(
            run_id=str(run.id),
            epoch=epoch,
            due=tuple(rule for rule in run.fired(epoch) if rule not in run.waived),
            evaluations=dict(run.evaluations[epoch]),
            settings=settings,
            max_batch_size=self.config.max_batch_size,
            train_examples=self.started.data["sizes"]["train"],
            spec=spec,
            history=tuple(run.history[: epoch + 1]),
            decisions=tuple(past for past in run.decisions if past.epoch < epoch),
            waived=run.waived,
            rules=run.rules,
            edits=self.config.edits,
            fired=tuple(run.fired_rules[:epoch]),
            back=run.back(epoch),
            tries=run.tries(epoch),
            left=run.left(epoch),
        )
