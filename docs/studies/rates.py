"""Simulated error rates: `python docs/studies rates gate|drift|bisection`.

Source: docs/studies/gate.md, drift.md and bisection-errors.md have the tables.
I/O: prints Markdown tables.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import nan

from studies import bisection_rates, drift_rates
from studies.gate import simulation
from studies.statistics import Table

__all__ = ["SMALL", "main"]

SMALL = simulation.Scale(
    trials=100, sequences=5, proposals=100, mixed=20, disturbed=20, following=12, exact=10, timed=10
)


def _gate(options: argparse.Namespace) -> Iterable[Table]:
    scale = SMALL if options.small else simulation.Scale()
    return simulation.simulate(replace(scale, seed=options.seed))


def _drift(options: argparse.Namespace) -> Iterable[Table]:
    return drift_rates.simulate(
        drift_rates.DriftSimulation(
            sd=options.sd,
            mean=options.mean,
            tasks=options.tasks,
            repeats=options.repeats,
            streams=options.streams,
            seed=options.seed,
        )
    )


def _bisection(options: argparse.Namespace) -> Iterable[Table]:
    scale = bisection_rates.Scale(seed=options.seed)
    return bisection_rates.tables(
        replace(scale, trials=10, suspects=(20,)) if options.small else scale
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python docs/studies rates", description="Simulate error rates, and print the tables."
    )
    commands = parser.add_subparsers(metavar="WHAT", required=True)

    def add(
        name: str, told: str, tables: Callable[[argparse.Namespace], Iterable[Table]]
    ) -> Callable[..., argparse.Action]:
        command = commands.add_parser(name, help=told, description=told)
        command.set_defaults(tables=tables)
        command.add_argument("--seed", type=_number(int, 0, 2**63 - 1), default=0, metavar="N")
        return command.add_argument

    gate = add("gate", "The gate, and a plain rule.", _gate)
    gate("--small", action="store_true", help="Simulate a tenth or less, in seconds.")
    bisection = add("bisection", "How often a bisection is right, and what it states.", _bisection)
    bisection("--small", action="store_true", help="Simulate a sixth, over 20 suspects only.")
    drift = add("drift", "False alarms and delays of all charts together.", _drift)
    drift(
        "--sd",
        type=_number(float, 0.0001, 0.5),
        required=True,
        help="Standard deviation of one evaluation; `sd_at_most` of a line's baseline.",
    )
    drift("--mean", type=_number(float, 0.3, 1.0), default=0.94, help="Mean share right.")
    drift("--tasks", type=_number(int, 5, 10**6), default=52, help="Tasks in one evaluation.")
    drift("--repeats", type=_number(int, 2, 1_000), default=20, help="Repeats of the baseline.")
    drift("--streams", type=_number(int, 100, 100_000), default=1_000, help="Histories.")
    return parser


def _number(kind: Callable[[str], float], least: float, most: float) -> Callable[[str], float]:
    """Return what reads a number within bounds; argparse makes a message of ValueError."""

    def read(text: str) -> float:
        try:
            found = kind(text)
        except ValueError:
            found = nan
        if not least <= found <= most:
            raise argparse.ArgumentTypeError(f"must be between {least} and {most}, not {text}")
        return found

    return read


def main(arguments: Sequence[str]) -> None:
    """Print the tables as soon as each is simulated."""
    options = _parser().parse_args(arguments)
    for table in options.tables(options):
        sys.stdout.write(table.to_markdown() + "\n\n")
        sys.stdout.flush()
