"""What the studies compute and print: intervals, shares, Markdown tables.

Source: Clopper and Pearson 1934 (the exact interval of a share).
I/O: print_table() writes standard output.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest

from proctor.output import terminal
from proctor.output.terminal import cell, on_one_line


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    count: int
    of: int

    @classmethod
    def true(cls, found: Iterable[bool]) -> "Share":
        """Count what is true."""
        known = list(found)
        return cls(sum(known), len(known))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the exact (Clopper-Pearson) interval; all shares are possible of nothing."""
        if not self.of:
            return 0.0, 1.0
        found = binomtest(self.count, self.of).proportion_ci(level, method="exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        if not self.of:
            return "-"
        low, high = self.interval()
        return f"{self.count} of {self.of} ({self.count / self.of:.1%}; {low:.1%} to {high:.1%})"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Figures under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, str]]) -> "Table":
        """Return the table of rows that have the same columns."""
        return cls(
            title=title, columns=tuple(rows[0]), rows=tuple(tuple(row.values()) for row in rows)
        )

    def to_markdown(self) -> str:
        """Return the table as the documentation shows it."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(
            [f"{self.title}:", "", *("| " + " | ".join(line) + " |" for line in lines)]
        )

    def show(self, *, markdown: bool) -> None:
        """Print the table for a page, or for a terminal."""
        shown = print_markdown if markdown else terminal.print_table
        shown(self.columns, self.rows, title=self.title)


def short(number: float) -> str:
    """Return a number in about three digits."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"


def percent(share: float) -> str:
    """Return a share as tables show it."""
    return f"{100 * share:.1f}%"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table; floats get three places."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row]
        print("| " + " | ".join(cells) + " |", flush=True)


def print_markdown(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = ""
) -> None:
    """Print rows as a table for a page of documentation."""
    if title:
        print(f"{on_one_line(title)}\n")
    for row in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(cell(value).replace('|', chr(92) + '|') for value in row)} |")
    print()
