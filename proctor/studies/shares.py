"""Shares of counted things, with their intervals.

Source: Clopper and Pearson 1934, The Use of Confidence or Fiducial Limits Illustrated in the Case
of the Binomial.  I/O: none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.stats import beta


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

    @property
    def value(self) -> float:
        """The share from 0 to 1; NaN of nothing."""
        return self.count / self.of if self.of else float("nan")

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the exact (Clopper-Pearson) interval; all shares are possible of nothing."""
        tail = (1 - level) / 2
        low = float(beta.ppf(tail, self.count, self.of - self.count + 1)) if self.count else 0.0
        left = self.of - self.count
        return low, float(beta.ppf(1 - tail, self.count + 1, left)) if left else 1.0

    def __str__(self) -> str:
        if not self.of:
            return "-"
        low, high = self.interval()
        return f"{self.count} of {self.of} ({self.value:.1%}; {low:.1%} to {high:.1%})"
