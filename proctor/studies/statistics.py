"""What the studies compute and print of many runs: intervals, shares, Markdown tables.

Source: Student 1908 (paired t interval); Bonferroni (a family of intervals); Clopper and Pearson
1934 (the exact interval of a share).  I/O: print_table() writes standard output.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from scipy.stats import binomtest, sem
from scipy.stats import t as student


def paired_interval(
    differences: Sequence[float], level: float = 0.95, *, comparisons: int = 1
) -> tuple[float, float]:
    """Return Student's confidence interval for the mean of paired differences.

    With `comparisons` intervals made like this, all of them cover their means with a probability
    of at least `level` (Bonferroni's correction, whatever the dependence between them). Two or
    more differences are needed: a spread cannot be estimated from one.
    """
    tail = (1 - level) / comparisons / 2
    half = float(student.ppf(1 - tail, len(differences) - 1) * sem(differences))
    return fmean(differences) - half, fmean(differences) + half


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
