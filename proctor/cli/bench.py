"""`proctor bench`: how fast a ledger is on this machine, and what the monitor costs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from proctor.benchmarks.cookbook import CookbookTimes
from proctor.benchmarks.cookbook import measure as ask_cookbook
from proctor.benchmarks.ledger import BATCH, CORES, measure
from proctor.benchmarks.projections import NEW, ProjectionBench
from proctor.benchmarks.projections import measure as project_events
from proctor.benchmarks.reading import NEW as ADDED
from proctor.benchmarks.reading import ReadingBench
from proctor.benchmarks.reading import measure as measure_reading
from proctor.benchmarks.whole import PARTS, write_runs
from proctor.benchmarks.whole import measure as measure_whole
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import console, print_table

app = CommandGroup("bench", "Benchmark the ledger and the monitor on this machine.")
_TARGETS = {f"batches of {BATCH:,}": 0.5, "single events": 0.6}
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
    folder: Annotated[
        Path, typer.Option("--folder", help="Measure on the disk that holds this folder.")
    ] = Path(),
) -> Output:
    """Benchmark the ledger and the monitor, each beside what you would otherwise have.

    Without a subcommand, `proctor bench` prints one table; the subcommands measure a part each.
    """
    if unknown := set(part or ()) - {*PARTS}:
        raise ProctorError(f"no part {min(unknown)!r}; the parts are {', '.join(PARTS)}")
    if growth:
        with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
            write_runs(Path(name))
            most = max(events or 1_000_000, 10_000)
            asked = measure_reading(folder, Path(name), events=most, rounds=rounds)
        return Output(asked, lambda: _print_reading(asked))
    found = measure_whole(folder, events=events or 100_000, rounds=rounds, parts=part or PARTS)

    def tell() -> None:
        before, after = found.load
        console.print(
            f"{found.events:,} events, median of {rounds} interleaved rounds (least to most); load "
            f"{before:.1f} before and {after:.1f} after: figures of a busy machine are not "
            "comparable"
        )
        print_table(
            ("what", "beside", "clock", "\u00b5s", "other, \u00b5s", "times as fast"),
            [
                (
                    row.what,
                    row.beside,
                    row.clock,
                    f"{1e6 * row.own:,.2f}",
                    f"{1e6 * row.other:,.2f}",
                    f"{row.ratio:.2f} ({row.least:.2f} to {row.most:.2f})",
                )
                for row in found.rows
            ],
        )
        print_table(
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
    folder: Annotated[
        Path, typer.Option("--folder", help="Measure on the disk that holds this folder.")
    ] = Path(),
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
def monitor(
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, max=1_000, help="Number of epochs of each model.")
    ] = 12,
) -> Output:
    """Time watched training, compared with the same training without a monitor."""
    require_extra("train")
    from proctor.benchmarks.monitor import measure as measure_monitor  # noqa: PLC0415 - torch

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
    folder: Annotated[
        Path, typer.Option("--folder", help="Measure on the disk that holds this folder.")
    ] = Path(),
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
        found = project_events(folder, home.ledger, events=events)

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
    print_table(
        ("", "events/s", "s of processors"),
        [
            ("appended", f"{found.append:,.0f}", ""),
            ("read and decoded", f"{found.bare:,.0f}", f"{found.bare_seconds:.1f}"),
            ("projected", f"{found.rebuild:,.0f}", f"{found.rebuild_seconds:.1f}"),
        ],
    )
    console.print(f"projected to read and decoded, in rate: {found.ratio:.2f}")
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
    folder: Annotated[
        Path, typer.Option("--folder", help="Measure on the disk that holds this folder.")
    ] = Path(),
) -> Output:
    """Time questions about ledgers of 10,000 entries and more, in small batches like this home's.

    A million entries take about ten minutes to write, and 4 GB of disk.
    """
    found = measure_reading(folder, home.ledger, events=events, rounds=rounds)

    return Output(found, lambda: _print_reading(found))


def _print_reading(found: ReadingBench) -> None:
    sizes = list(found.whole_seconds)
    once = {"first sql, makes the tables": found.tables_seconds, "verify": found.whole_seconds}
    added = {f"{q}, {ADDED:,} new": by for q, by in found.new_seconds.items()}
    appended = {f"append {ADDED:,} events": found.append_seconds}
    print_table(
        ("s of processors", *(f"{size} entries" for size in sizes)),
        [
            (question, *(f"{by[size]:.2f}" for size in sizes))
            for question, by in (found.seconds | added | appended | once).items()
        ],
    )
