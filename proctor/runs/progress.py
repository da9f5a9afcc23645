"""A line for each epoch of a training, on standard error."""

from typing import Any
from uuid import UUID

from aggregates.run import Run
from ledger.wording import counted
from monitor.config import RunConfig, TaskConfig
from proctor.output.firings import named
from proctor.output.terminal import warn
from proctor.runs.training import Watching


def watching() -> Watching:
    """Return what tells of runs on standard error; standard output stays the command's answer."""
    return Watching(
        on_start=_tell_start,
        on_epoch=lambda run, measured: warn(_epoch_line(run, measured)),
        say=warn,
    )


def _tell_start(run_id: UUID, config: RunConfig | TaskConfig) -> None:
    what = config.name if isinstance(config, TaskConfig) else config.dataset
    warn(f"run {run_id}: {what}, {counted(config.epochs, 'epoch')}")


def _epoch_line(run: Run, measured: dict[str, Any]) -> str:
    train, validation = measured["train"], measured["validation"]
    line = (
        f"epoch {run.epoch:>3}  train/val loss {train['loss']:.3f}/{validation['loss']:.3f}"
        f"  {_metrics(train, validation)}"
        f"  lr {measured['settings']['lr']:.3g}"
    )
    said = [
        f"{', '.join(past.decision.cites)}: {past.decision.direction} {past.outcome}"
        for past in run.decisions
        if past.epoch == run.epoch and past.decision.acts
    ]
    sides = run.evaluations.get(run.epoch, {})
    fired = ", ".join(named(rule, sides[rule].side) for rule in run.fired())
    return line + (f"  fired {fired}" if fired else "") + (f"  [{'; '.join(said)}]" if said else "")


def _metrics(train: dict[str, Any], validation: dict[str, Any]) -> str:
    """Return accuracies, or the metrics that a task has on its validation part."""
    if train["accuracy"] is None:
        return " ".join(f"{name} {value:.3f}" for name, value in validation["metrics"].items())
    return f"accuracy {train['accuracy']:.3f}/{validation['accuracy']:.3f}"
