"""How fast a ledger is on this machine, and what the monitor costs: `python docs/studies bench`."""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import verify_target, write_output
from proctor.output.terminal import console, print_table
from proctor.pages.charts.drawing import on_white
from studies.speed.cookbook import CookbookTimes
from studies.speed.cookbook import measure as ask_cookbook
from studies.speed.ledger import BATCH, CORES, measure
from studies.speed.notary import measure_producers, tabled
from studies.speed.projections import NEW, TABLES, ProjectionBench
from studies.speed.projections import measure as project_events
from studies.speed.reading import ReadingBench, growth_chart
from studies.speed.reading import measure as measure_reading
from studies.speed.timing import machine
from studies.speed.whole import PARTS, WholeBench, write_runs
from studies.speed.whole import measure as measure_whole
from studies.statistics import print_markdown

app = CommandGroup("bench", "Benchmark the ledger and the monitor on this machine.")
_FEW_LAYERS = 2  # of the run that a growing ledger repeats: ten million events take 8 GB


class Form(StrEnum):
    """How the tables are printed."""

    TABLE = "table"
    MARKDOWN = "markdown"


FolderOption = Annotated[
    Path, typer.Option("--folder", help="Measure on the disk that holds this folder.")
]
FormOption = Annotated[
    Form, typer.Option("--format", help="Output format; markdown is for a page.")
]
_TARGETS = {f"batches of {BATCH:,}": 0.9, "single events": 0.7}
_TARGET_VERIFY = 5.0


def whole(
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=500,
            max=10_000_000,
            help="Events of the largest ledger; by default 100,000, with --growth a million.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1_000, help="Number of interleaved rounds.")
    ] = 5,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help=f"Only this part, repeatable: {', '.join(PARTS)}."),
    ] = None,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Show costs from 10,000 events on, by default to a million."),
    ] = False,
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
    if unknown := set(part or ()) - {*PARTS}:
        raise ProctorError(f"no part {min(unknown)!r}; the parts are {', '.join(PARTS)}")
    if not growth and (homes, chart) != (None, None):
        raise ProctorError("--homes and --chart belong to --growth; add it")
    if chart is not None:
        verify_target(chart)
    show = print_table if form is Form.TABLE else print_markdown
    if growth:
        with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
            write_runs(Path(name), layers=_FEW_LAYERS)
            most = max(events or 1_000_000, 10_000)
            asked = measure_reading(folder, Path(name), events=most, rounds=rounds, homes=homes)
        if chart is not None:
            write_output(chart, on_white(growth_chart(asked)))
        return Output(asked, lambda: _print_reading(asked, show))
    found = measure_whole(folder, events=events or 100_000, rounds=rounds, parts=part or PARTS)

    def tell() -> None:
        show(
            ("what", "beside", "clock", "\u00b5s", "other, \u00b5s", "times as fast"),
            [
                (
                    row.what,
                    row.beside,
                    row.clock,
                    _short(1e6 * row.own),
                    _short(1e6 * row.other),
                    f"{row.ratio:.2f} ({row.least:.2f} to {row.most:.2f})",
                )
                for row in found.rows
            ],
            title=f"{found.events:,} events, {_conditions(found)}",
        )
        if found.limits:
            show(
                ("limits of the hardware", "a second"),
                [(name, f"{rate:,.0f}") for name, rate in found.limits.items()],
            )
        for what, why in found.left_out.items():
            console.print(f"left out: {what}: {why}")

    return Output(found, tell)


app.alone(whole)
app.command("all")(whole)


@app.command()
def ledger(
    events: Annotated[
        int,
        typer.Option(
            "--events", min=5_000, max=100_000_000, help="Number of entries to append and verify."
        ),
    ] = 200_000,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=1, max=1_000, help="Number of rounds; the median is shown."),
    ] = 5,
    folder: FolderOption = Path(),
) -> Output:
    """Time appending and verifying, compared with the library and with a chain of JSON lines."""
    found = measure(folder, events=events, rounds=rounds)
    fastest = f"newest signature, {CORES} processes"

    def tell() -> None:
        console.print(
            f"{events:,} events with bodies of 400 bytes, median of {rounds} interleaved rounds; "
            f"unless stated otherwise, verified in batches of {BATCH:,}"
        )
        print_table(
            ("appending, sync FULL", "events/s", "of the library's", "wanted"),
            [
                (name, f"{rate:,.0f}", *_against(found.append_ratios, name))
                for name, rate in found.append.items()
            ],
        )
        print_table(*tabled(found.notary))
        print_table(
            ("verifying", "entries/s", "of the chain's", "wanted"),
            [
                (
                    name,
                    f"{rate:,.0f}",
                    f"{found.verify_ratios[name]:.2f}",
                    f"{_TARGET_VERIFY:.1f}" if name == fastest else "",
                )
                for name, rate in found.verify.items()
            ],
        )
        whole = found.remembered["all, s"]
        print_table(
            ("from a remembered head", "s", "of the whole"),
            [
                (name.removesuffix(", s"), f"{seconds:.3f}", f"{seconds / whole:.1%}")
                for name, seconds in found.remembered.items()
            ],
        )
        print_table(
            ("bare limits", "a second"),
            [(name, f"{rate:,.0f}") for name, rate in found.limits.items()],
        )
        print_table(
            ("of what the bare operations allow", "reached"),
            [(name, f"{part:.0%}") for name, part in found.reached.items()],
        )

    return Output(found, tell)


@app.command()
def notary(
    events: Annotated[
        int, typer.Option("--events", min=100, max=1_000_000, help="Events of each round.")
    ] = 2_000,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1_000, help="Number of interleaved rounds.")
    ] = 5,
    form: FormOption = Form.TABLE,
    folder: FolderOption = Path(),
) -> Output:
    """Time appends through a notary, by the number of producers."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        found = measure_producers(Path(name), bytes(400), events=events, rounds=rounds)
    title = (
        f"{events:,} events, interleaved rounds: {rounds}, median; {machine()}; load {before:.1f} "
        f"before and {os.getloadavg()[0]:.1f} after"
    )
    show = print_table if form is Form.TABLE else print_markdown
    return Output(found, lambda: show(*tabled(found), title=title))


@app.command()
def monitor(
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, max=1_000, help="Number of epochs of each model.")
    ] = 12,
) -> Output:
    """Time watched training, compared with the same training without a monitor."""
    require_extra("train")
    from studies.speed.monitor import measure as measure_monitor  # noqa: PLC0415 - torch

    found = measure_monitor(epochs=epochs)

    def tell() -> None:
        console.print(f"processor time, one thread, median of {epochs} epochs (least to most)")
        print_table(
            ("model", "parameters", "ms a step", "watched / bare", "bare / bare (A/A)"),
            [
                (
                    each.model,
                    f"{each.parameters:,}",
                    f"{each.step_ms:.1f}",
                    _spread(each.watched),
                    _spread(each.bare),
                )
                for each in found
            ],
        )

    return Output(found, tell)


def _spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def _against(ratios: dict[str, float], name: str) -> tuple[str, str]:
    who, _, how = name.partition(", ")
    if who != "ledger":
        return "", ""
    return f"{ratios[how]:.2f}", f"{_TARGETS[how]:.1f}"


@app.command()
def projections(
    home: Home,
    events: Annotated[
        int, typer.Option("--events", min=20_000, max=100_000_000, help="Entries of the ledger.")
    ] = 1_000_000,
    folder: FolderOption = Path(),
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1_000, help="Rounds; the median is shown.")
    ] = 3,
    cookbook: Annotated[
        bool,
        typer.Option(
            "--cookbook", help="Time the cookbook's queries on a file of ten million rows."
        ),
    ] = False,
) -> Output:
    """Time building the tables from events like this home's, and reading the events alone."""
    found: ProjectionBench | CookbookTimes
    if cookbook:
        with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
            found = ask_cookbook(Path(name))
    else:
        found = project_events(folder, home.ledger, events=events, rounds=rounds)

    def tell() -> None:
        if isinstance(found, ProjectionBench):
            _print_projections(found)
        else:
            print_table(
                ("question", "s", "s of processors"),
                [(q, f"{s:.2f}", f"{found.processor[q]:.2f}") for q, s in found.seconds.items()],
                title=f"{found.rows:,} rows",
            )

    return Output(found, tell)


def _print_projections(found: ProjectionBench) -> None:
    mix = ", ".join(f"{kind} {share:.0%}" for kind, share in found.mix.items())
    console.print(f"{found.events:,} events of {found.entry_bytes:.0f} bytes: {mix}")
    console.print(
        f"median of {found.rounds} interleaved rounds; appended at {found.append:,.0f} events/s"
    )
    print_table(
        ("", "events/s", "\u00b5s of processors an event"),
        [
            (what, f"{rate:,.0f}", f"{1e6 * found.processor[what]:.1f}")
            for what, rate in found.rates.items()
        ],
    )
    most = 2 / found.processor[TABLES]
    console.print(
        f"the tables take {found.start:.2f} s of processors to start, then "
        f"{1e6 * found.beyond_start:.1f} \u00b5s an event; on two processors that is at most "
        f"{most:,.0f} events/s, start included; decoding alone takes {found.ratio:.0%} of it"
    )
    for events, peak in found.peak_mib.items():
        console.print(
            f"behind {events} events: peak of writer and reader {peak:.0f} MiB; "
            f"{NEW:,} more were caught up in {found.catch_up_seconds[events]:.2f} s"
        )


@app.command()
def reading(
    home: Home,
    events: Annotated[
        int,
        typer.Option(
            "--events", min=10_000, max=100_000_000, help="Entries of the largest ledger."
        ),
    ] = 100_000,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1_000, help="Rounds; the median is shown.")
    ] = 3,
    folder: FolderOption = Path(),
) -> Output:
    """Time questions about growing ledgers, whose events are like those of this home."""
    found = measure_reading(folder, home.ledger, events=events, rounds=rounds)

    return Output(found, lambda: _print_reading(found, print_table))


def _print_reading(found: ReadingBench, show: Callable[..., None]) -> None:
    told = _conditions(found)
    for unit, by_question in (
        ("s of processors", found.seconds),
        ("peak, MiB", found.peak_mib),
        ("on the disk, MiB", found.disk_mib),
    ):
        sizes = list(found.disk_mib["ledger"])
        show(
            (unit, *(f"{size} entries" for size in sizes)),
            [
                (question, *(_short(by[size]) if size in by else "-" for size in sizes))
                for question, by in by_question.items()
            ],
            title=told,
        )
        told = ""


def _conditions(found: WholeBench | ReadingBench) -> str:
    before, after = found.load
    return (
        f"interleaved rounds: {found.rounds}, median; {found.machine}; load {before:.1f} before "
        f"and {after:.1f} after"
    )


def _short(number: float) -> str:
    """Return a number in about three digits."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the table."""
    code = typer.main.get_command(app).main(
        [*arguments], prog_name="python docs/studies bench", standalone_mode=False
    )
    sys.exit(code)
