"""What the studies compute and print of many runs: intervals, shares, Markdown tables.

Source: Clopper and Pearson 1934 (the exact interval of a share).
I/O: print_table() writes standard output.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest


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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table; floats get three places."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row]
        print("| " + " | ".join(cells) + " |", flush=True)
