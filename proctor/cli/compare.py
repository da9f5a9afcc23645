"""`proctor compare`: policies on the same conditions and seeds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from monitor.config import RunConfig, TaskConfig
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import (
    ConfigOption,
    ExecutorOption,
    SetOption,
    SettingsArgument,
    Takes,
    WorkersOption,
)
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.process import start_for
from proctor.runs.run_settings import read_config

app = CommandGroup()
AnyTraining = RunConfig | TaskConfig


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is compared."""

    settings: SettingsArgument = None
    config: ConfigOption = None
    policies: Annotated[
        list[str] | None,
        "A policy to compare, as for `run`; give it several times. The first is what the "
        "others are compared with.  [default: nothing, rescue; with --sweep, nothing]",
        Takes(option="--policy"),
    ] = None
    sweeps: Annotated[
        list[str] | None,
        "A setting and its values; several make each combination a condition.",
        Takes("KEY=V1,V2,...", option="--sweep"),
    ] = None
    metric: Annotated[
        str | None,
        "Compare by this metric of the task, as in f1; of another one than METRIC, say which "
        "values are better, as in f1:higher.",
        Takes("NAME"),
    ] = None
    sets: SetOption = None
    seeds: Annotated[int, "Number of seeds, from 0.", Takes(least=1, most=10_000)] = 5
    conditions: Annotated[
        Path | None, "A TOML file with a table of settings for each condition."
    ] = None
    workers: WorkersOption = None
    executor: ExecutorOption = "local"
    name: Annotated[str, "Name that distinguishes comparisons with the same settings."] = ""
    task: Annotated[
        Path | None, "Compare on the model and data of this Python file.", Takes("FILE")
    ] = None


@app.command(prints="runs.Comparison", continues="always")
def compare(home: Home, asked: CompareOptions) -> Output:
    """Compare policies, or settings, on the same seeds; the same command continues it."""
    if asked.task is not None and asked.config is not None:
        raise ProctorError("--task excludes --config: give KEY=VALUE settings")
    chosen = start_for(lambda: _configure(asked.task, asked.config, asked.settings or []))
    from proctor.cli import compare_jobs  # noqa: PLC0415 - torch takes seconds to import

    return compare_jobs.compare(home, chosen, asked)


def _configure(task: Path | None, file: Path | None, settings: list[str]) -> AnyTraining:
    if task is None:
        told = any(setting.startswith("threads=") for setting in settings)
        return read_config(file, settings if told else ["threads=1", *settings])
    from proctor.runs.tasks import configure_task, read_task_file  # noqa: PLC0415 - loads torch

    return configure_task(read_task_file(task), settings)
