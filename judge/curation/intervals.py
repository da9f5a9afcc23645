"""Intervals of measured credit: paired differences, one for each order of the examples.

Source: Abramowitz and Stegun, 26.7.3 and 26.7.4 (Student's distribution as a finite sum), without
scipy, which pages do without.
I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
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
    half = student_quantile(level, number - 1) * stdev(differences) / math.sqrt(number)
    return Interval(mean, mean - half, mean + half)


def chance(differences: Sequence[float]) -> float:
    """Return how probable a mean at least as far from zero is by chance alone (Student's t)."""
    found = interval(differences)
    if found.difference is None or found.low is None or found.high is None:
        return 1.0
    error = (found.high - found.low) / 2 / student_quantile(LEVEL, len(differences) - 1)
    return 1 - _student(abs(found.difference) / error, len(differences) - 1) if error else 1.0


def false_discovery_rates(chances: Mapping[str, float], number: int) -> dict[str, float]:
    """Return, for each of some findings out of `number` questions, the least rate that keeps it.

    The rate is the expected share of findings that are due to chance.

    Source: Benjamini and Hochberg, 1995, "Controlling the false discovery rate".
    """
    ranked = sorted(chances, key=lambda name: chances[name], reverse=True)
    rates, least = dict[str, float](), 1.0
    for place, name in enumerate(ranked):
        least = rates[name] = min(least, chances[name] * number / (len(ranked) - place))
    return rates


@cache
def student_quantile(inside: float, degrees: int) -> float:
    """Return how far from zero Student's t lies at most, with a probability."""
    low, high = 0.0, 1.0
    while _student(high, degrees) < inside:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, degrees) < inside else (low, middle)
    return high


def _student(size: float, degrees: int) -> float:
    """Return the probability that Student's t lies within `size` of zero."""
    angle = math.atan2(size, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term = total = (math.cos(angle) if odd else 1.0) * (degrees > 1)
    for number in range(2 + odd, degrees - 1, 2):
        term *= square * (number - 1) / number
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
