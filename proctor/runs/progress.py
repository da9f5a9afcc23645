"""Progress of a training in the terminal: a bar for the steps, a line for each epoch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aggregates.run import Run
from monitor.config import RunConfig, TaskConfig
from proctor.output.terminal import error_console, words
from proctor.runs.training import Watching


@contextmanager
def watching(*, bars: bool = True) -> Iterator[Watching]:
    """Show progress on standard error; standard output stays the command's answer.

    Without `bars` nothing moves: somebody may be typing there.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=error_console, transient=True, disable=not bars) as progress:
        task = progress.add_task("loading data", total=None)
        epochs = 0

        def start(run_id: UUID, config: RunConfig | TaskConfig) -> None:
            nonlocal epochs
            epochs = config.epochs
            what = config.name if isinstance(config, TaskConfig) else config.dataset
            error_console.print(f"run {run_id}: {words(what)}, {config.epochs} epochs")

        def step(epoch: int, done: int, steps: int) -> None:
            progress.update(
                task, description=f"epoch {epoch + 1} of {epochs}", completed=done, total=steps
            )

        def epoch(run: Run, measured: dict[str, Any]) -> None:
            error_console.print(words(_epoch_line(run, measured)))

        def say(text: str) -> None:
            error_console.print(words(text))

        yield Watching(on_start=start, on_epoch=epoch, on_step=step, say=say)


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
    fired = " ".join(run.fired())
    return line + (f"  fired {fired}" if fired else "") + (f"  [{'; '.join(said)}]" if said else "")


def _metrics(train: dict[str, Any], validation: dict[str, Any]) -> str:
    """Return accuracies, or the metrics that a task has on its validation part."""
    if train["accuracy"] is None:
        return " ".join(f"{name} {value:.3f}" for name, value in validation["metrics"].items())
    return f"accuracy {train['accuracy']:.3f}/{validation['accuracy']:.3f}"
