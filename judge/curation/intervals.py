"""Intervals of measured credit: paired differences, one for each order of the examples.

I/O: none.
"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from aggregates.credit import Interval

LEVEL = 0.95  # of each interval by itself


def level_of(looks: int) -> float:
    """Return the level of an interval that is one of several of the same: Bonferroni's correction.

    Whoever measures with more orders, or with another policy afterwards, until the answer pleases
    would otherwise find one that is due to chance.
    """
    return 1 - (1 - LEVEL) / max(1, looks)


def interval(differences: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean with Student's interval; without ends where there is no spread to be seen."""
    if not all(map(math.isfinite, differences)):
        return Interval(None, None, None)
    number, mean = len(differences), fmean(differences)
    if number < 2 or (any(differences) and len(set(differences)) == 1):
        return Interval(mean, None, None)
    from scipy.stats import t  # noqa: PLC0415 - in an extra

    half = float(t.ppf((1 + level) / 2, number - 1)) * stdev(differences) / math.sqrt(number)
    return Interval(mean, mean - half, mean + half)
