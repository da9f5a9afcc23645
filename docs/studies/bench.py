"""How fast a ledger is on this machine, and what the monitor costs: `python docs/studies bench`."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer

from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import report, require_extra
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import verify_target, write_output
from proctor.pages.charts.drawing import on_white
from studies.speed import before as earlier
from studies.speed import cookbook as questions
from studies.speed import long_runs as many_epochs
from studies.speed import notary as producing
from studies.speed import projections as tables
from studies.speed import reading, whole
from studies.statistics import Table

app = CommandGroup("bench", "Benchmark the ledger and the monitor on this machine.")
_FEW_LAYERS = 2  # of the run that a growing ledger repeats: ten million events take 8 GB


class Form(StrEnum):
    """How the tables are printed."""

    TABLE = "table"
    MARKDOWN = "markdown"


class Measured(Protocol):
    """What every measurement returns: figures, and the tables that show them."""

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""


FolderOption = Annotated[
    Path, typer.Option("--folder", help="Measure on the disk that holds this folder.")
]
FormOption = Annotated[
    Form, typer.Option("--format", help="Output format; markdown is for a page.")
]
RoundsOption = Annotated[
    int,
    typer.Option(
        "--rounds", min=1, max=1_000, help="Number of interleaved rounds; the median is shown."
    ),
]
EpochsOption = Annotated[
    int, typer.Option("--epochs", min=10, max=many_epochs.MOST, help="Epochs of the long run.")
]


def _output(found: Measured, form: Form) -> Output:
    def tell() -> None:
        for table in found.tables():
            table.show(markdown=form is Form.MARKDOWN)

    return Output(found, tell)


@app.command("all")
def everything(
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=500,
            max=10_000_000,
            help="Events of the largest ledger; by default 100,000, with --growth a million.",
        ),
    ] = None,
    rounds: RoundsOption = 5,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help=f"Only this part, repeatable: {', '.join(whole.PARTS)}."),
    ] = None,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Show costs from 10,000 events on, by default to a million."),
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            metavar="LEDGER",
            help="With --growth: repeat the events of this ledger, not those of a made-up run.",
        ),
    ] = None,
    homes: Annotated[
        Path | None,
        typer.Option(
            "--homes",
            metavar="DIR",
            help="With --growth: keep ledgers and tables here, and ask those that are here again.",
        ),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", help="With --growth: draw the costs, as SVG."),
    ] = None,
    form: FormOption = Form.TABLE,
    folder: FolderOption = Path(),
) -> Output:
    """Benchmark the ledger and the monitor, each beside what you would otherwise have.

    Without a subcommand, `bench` prints one table; the subcommands measure a part each.
    """
    if unknown := set(part or ()) - {*whole.PARTS}:
        raise ProctorError(f"no part {min(unknown)!r}; the parts are {', '.join(whole.PARTS)}")
    if not growth and (like, homes, chart) != (None, None, None):
        raise ProctorError("--like, --homes and --chart belong to --growth; add it")
    if not growth:
        return _output(
            whole.measure(
                folder, events=events or 100_000, rounds=rounds, parts=part or whole.PARTS
            ),
            form,
        )
    if chart is not None:
        verify_target(chart)
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        if like is None:
            whole.write_runs(Path(name), layers=_FEW_LAYERS)
        most = max(events or 1_000_000, 10_000)
        asked = reading.measure(folder, like or Path(name), events=most, rounds=rounds, homes=homes)
    if chart is not None:
        write_output(chart, on_white(reading.growth_chart(asked)))
    return _output(asked, form)


@app.command()
def before(
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="Commit, tag or branch of this repository.")
    ],
    entries: Annotated[
        list[int] | None,
        typer.Option(
            "--entries",
            min=100,
            help="Entries of a ledger, repeatable; by default 100,000 and 300,000.",
        ),
    ] = None,
    epochs: EpochsOption = many_epochs.MOST,
    rounds: RoundsOption = 5,
    question: Annotated[
        str, typer.Option("--question", help="Only the questions that contain this text.")
    ] = "",
    form: FormOption = Form.TABLE,
    folder: FolderOption = Path(),
) -> Output:
    """Time the same questions to an earlier revision and to this checkout, in turns."""
    found = earlier.measure(
        folder,
        revision,
        entries=entries or (100_000, 300_000),
        epochs=epochs,
        rounds=rounds,
        about=question,
    )
    return _output(found, form)


@app.command()
def notary(
    events: Annotated[
        int, typer.Option("--events", min=100, max=1_000_000, help="Events of each round.")
    ] = 2_000,
    rounds: RoundsOption = 5,
    form: FormOption = Form.TABLE,
    folder: FolderOption = Path(),
) -> Output:
    """Time appends through a notary, by the number of producers."""
    return _output(producing.measure(folder, events=events, rounds=rounds), form)


@app.command()
def monitor(
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, max=1_000, help="Number of epochs of each model.")
    ] = 12,
    form: FormOption = Form.TABLE,
) -> Output:
    """Time watched training, compared with the same training without a monitor."""
    require_extra("train")
    from studies.speed.monitor import measure  # noqa: PLC0415 - torch

    return _output(measure(epochs=epochs), form)


@app.command()
def projections(
    home: Home,
    events: Annotated[
        int, typer.Option("--events", min=20_000, max=100_000_000, help="Entries of the ledger.")
    ] = 1_000_000,
    rounds: RoundsOption = 3,
    cookbook: Annotated[
        bool,
        typer.Option(
            "--cookbook", help="Time the cookbook's queries on a file of ten million rows."
        ),
    ] = False,
    form: FormOption = Form.TABLE,
    folder: FolderOption = Path(),
) -> Output:
    """Time building the tables from events like this home's, and reading the events alone."""
    if not cookbook:
        return _output(tables.measure(folder, home.ledger, events=events, rounds=rounds), form)
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        return _output(questions.measure(Path(name)), form)


@app.command("long-runs")
def long_runs(
    epochs: EpochsOption = many_epochs.MOST,
    rounds: RoundsOption = 3,
    form: FormOption = Form.TABLE,
    folder: FolderOption = Path(),
) -> Output:
    """Time a made-up run of many epochs: recording it, judging it untrained, asking about it."""
    return _output(many_epochs.measure(folder, epochs=epochs, rounds=rounds), form)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the tables."""
    try:
        code = typer.main.get_command(app).main(
            [*arguments],
            prog_name="python docs/studies bench",
            standalone_mode=False,
            help_option_names=["-h", "--help"],
        )
    except Exception as error:
        code = report(error, command="bench", as_json="--json" in arguments)
    sys.exit(code)
