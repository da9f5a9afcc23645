"""`proctor campaign`: attempts at one task, each told what the judge said of the earlier ones."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import ExecutorOption, LimitOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.process import start_for
from proctor.runs.run_settings import provoked, read_config

app = CommandGroup()

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Configuration, as in lr=0.3 epochs=8 dataset=imagefolder:DIR.",
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with configuration.")
]
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        help="playbook, nothing, random, openai, mixed, human, MODULE:CLASS or exec:COMMAND.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the policy, as in model=NAME."),
]

ProvokeOption = Annotated[
    str | None,
    typer.Option(
        "--provoke", metavar="NAME", help="Provoke this fault of the catalogue in the run."
    ),
]
ProvokeSeedOption = Annotated[
    int, typer.Option("--provoke-seed", min=0, help="Seed of the fault's severity and place.")
]

WriterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--writer",
        metavar="KEY=VALUE",
        help="A setting of the model that writes advice; without it, templates are used.",
    ),
]


@app.command(prints="runs.Campaign", continues="always")
def campaign(
    home: Home,
    settings: SettingsArgument = None,
    config: ConfigOption = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, max=1_000, help="Number of runs to train and judge.")
    ] = 3,
    policy: PolicyOption = "openai",
    sets: SetOption = None,
    provoke: ProvokeOption = None,
    provoke_seed: ProvokeSeedOption = 0,
    feedback: Annotated[
        bool,
        typer.Option(
            "--feedback/--no-feedback", help="Give each attempt the verdicts on earlier ones."
        ),
    ] = True,
    name: Annotated[
        str,
        typer.Option("--name", help="Name that distinguishes campaigns with the same settings."),
    ] = "",
    limits: LimitOption = None,
    tune: Annotated[
        bool,
        typer.Option("--tune/--no-tune", help="Tune the model's advice block between attempts."),
    ] = False,
    writer: WriterOption = None,
    executor: ExecutorOption = "local",
    task: Annotated[Path | None, typer.Option("--task", hidden=True)] = None,
) -> Output:
    """Attempt a task several times; the same command continues or shows the result."""
    if task is not None:
        raise ProctorError(
            "a campaign trains the built-in network: its attempts may restart with another model, "
            "and a task's file has one. Use `proctor run --task FILE` or `proctor compare --task "
            "FILE`"
        )
    chosen = start_for(lambda: provoked(read_config(config, settings or []), provoke, provoke_seed))
    from proctor.cli import campaign_jobs  # noqa: PLC0415 - torch takes seconds to import

    return campaign_jobs.campaign(
        home,
        chosen,
        policy,
        sets or [],
        attempts=attempts,
        feedback=feedback,
        name=name,
        limits=limits,
        tune=tune,
        writer=writer or [],
        executor=executor,
    )
