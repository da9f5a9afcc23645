"""`proctor show`, `replay` and `log`: what a ledger tells of its runs."""

from typing import Annotated

import typer

from proctor.cli import commands
from proctor.cli.options import (
    HOME,
    MOST,
    DataDirOption,
    HomeOption,
    JsonOption,
    LimitOption,
    RunArgument,
)
from proctor.home import Home
from proctor.runs.process import start_as_recorded

app = typer.Typer()


@app.command()
def show(run: RunArgument = "latest", home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """Show a run: curves, rules, decisions, verdict."""
    raise typer.Exit(commands.show(Home(home), run, as_json=as_json))


@app.command()
def replay(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The id of a run or of a campaign, the beginning of one, or `latest`: the newest "
            "run, or where there is none yet, the newest campaign.",
        ),
    ] = "latest",
    at: Annotated[
        int | None, typer.Option("--at", help="Show the run's state after its N-th event.")
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Train again and compare every value, bit for bit."),
    ] = False,
    data_dir: DataDirOption = None,
    limits: LimitOption = None,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Print the events of a run or a campaign, or execute it again from its events."""
    if not execute:
        raise typer.Exit(commands.replay(Home(home), run, at=at, as_json=as_json))
    run = start_as_recorded(Home(home), run)
    from proctor.cli import jobs  # noqa: PLC0415 - torch takes seconds to import

    config = jobs.judge_config(limits, data_dir)
    raise typer.Exit(jobs.execute(Home(home), run, config=config, as_json=as_json))


@app.command()
def log(
    start: Annotated[int, typer.Option("--start", min=0, max=MOST, help="First index.")] = 0,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MOST, help="Maximum number of entries.")
    ] = 1_000_000,
    entry: Annotated[
        int | None, typer.Option("--entry", min=0, max=MOST, help="Show this entry with its body.")
    ] = None,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """List the ledger's entries, or show one entry in full."""
    raise typer.Exit(
        commands.log(Home(home), start=start, limit=limit, entry=entry, as_json=as_json)
    )
