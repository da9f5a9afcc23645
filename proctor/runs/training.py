"""The harness of one run: its policy, its lock, its training, and what follows a restart.

I/O: appends to the log; reads and writes the home.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from aggregates.run import Run
from aggregates.spec import ModelSpec
from ledger.application import LedgerApplication
from monitor.answering import Policy
from monitor.config import RunConfig, TaskConfig
from monitor.loop import OnEpoch
from proctor.home import Home
from proctor.runs.labels import Label, find_label, record_installed
from proctor.runs.transcript_log import Tally, TranscriptLog


@dataclass(frozen=True)
class Watching:
    """Who is told while runs go on."""

    on_start: Callable[[UUID, RunConfig | TaskConfig], None] = lambda _run, _config: None
    on_epoch: OnEpoch = lambda _run, _measured: None
    say: Callable[[str], None] = lambda _text: None  # anything else that is worth a line

    def begun(self, run_id: UUID, config: RunConfig | TaskConfig, label: Label) -> None:
        """Tell that a run begins, and what is to be said about its label."""
        self.on_start(run_id, config)
        if label.remark is not None:
            self.say(label.remark)


SILENT = Watching()


@dataclass(frozen=True)
class Attempt:
    """What a run is started from."""

    config: RunConfig
    spec: ModelSpec | None = None
    parent: str | None = None


@dataclass(frozen=True)
class Prepared:
    """A policy that can be asked, and where its calls are recorded, if it makes any."""

    policy: Policy
    transcript: TranscriptLog | None = None


@dataclass(frozen=True)
class Told:
    """What a policy is told beside the situations."""

    feedback: Mapping[str, Any] | None = None  # on earlier attempts
    advice: str = ""  # the advice block of its model


@contextmanager
def recording(
    home: Home,
    log: LedgerApplication,
    run_id: UUID,
    prepared: Prepared | None,
    *,
    begin: Callable[[], None] = lambda: None,
) -> Iterator[Label]:
    """Hold a run's lock, with its transcript begun; yield its label.

    Nothing is recorded before the policy is ready to be asked; `begin` records what comes before
    the run.
    """
    record_installed(log, may=home.may_append)
    with home.running(run_id):
        begin()
        if prepared is not None and prepared.transcript is not None:
            prepared.transcript.open({"name": prepared.policy.name, **prepared.policy.describe()})
        yield find_label(log)


def train_run(
    home: Home,
    log: LedgerApplication,
    train: Callable[..., Run],
    config: RunConfig | TaskConfig,
    *,
    run_id: UUID,
    prepared: Prepared,
    watching: Watching,
    begin: Callable[[], None] = lambda: None,
    spent: Tally | None = None,
) -> Run:
    """Train one run to its end and return it; `train` does so with the configuration's data.

    `begin` records what comes before the run. `spent` is what earlier calls have come to, for the
    progress.
    """
    transcript = prepared.transcript
    counted = Tally()

    def on_epoch(run: Run, measured: dict[str, Any]) -> None:
        nonlocal counted
        watching.on_epoch(run, measured)
        if transcript is not None and transcript.tally != counted:
            counted = transcript.tally
            watching.say(f"so far {counted.added(spent or Tally())}")

    with recording(home, log, run_id, prepared, begin=begin) as label:
        watching.begun(run_id, config, label)
        return train(
            config,
            policy=prepared.policy,
            log=log,
            blobs=home.blobs,
            checkpoint=label.checkpoint,
            run_id=run_id,
            submission_dir=home.submission(run_id),
            on_epoch=on_epoch,
        )


def following_attempt(run: Run) -> Attempt | None:
    """Return what follows a run that ended for a restart: it is not provoked anew.

    Its configuration describes the model that it starts from, as far as a configuration can.
    """
    if not isinstance(run.restart_spec, ModelSpec):
        return None
    carried = ("lr", "batch_size", "accumulation", "clip_norm")
    now = {key: run.settings[key] for key in carried if key in run.settings}
    unprovoked = replace(RunConfig.from_dict(run.config), provocation=None, provocation_seed=0)
    config = replace(unprovoked, **now, **_model_fields(run.restart_spec))
    return Attempt(config, spec=run.restart_spec, parent=str(run.id))


def _model_fields(spec: ModelSpec) -> dict[str, Any]:
    """Return the fields of a configuration that describe `spec`, without those that cannot.

    A configuration has one value for all blocks, and one of norm and activation for the head too.
    """
    values: dict[str, set[Any]] = {
        "width": {block.width for block in spec.blocks},
        "residual": {block.residual for block in spec.blocks},
        "norm": {spec.norm, *(block.norm for block in spec.blocks)},
        "activation": {spec.activation, *(block.activation for block in spec.blocks)},
    }
    alike = {name: next(iter(found)) for name, found in values.items() if len(found) == 1}
    return {
        "channels": spec.channels,
        "stem_stride": spec.stem_stride,
        "blocks": len(spec.blocks),
        **alike,
    }
