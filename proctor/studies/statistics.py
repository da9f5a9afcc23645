"""Paired comparisons.

Source: Student 1908 (paired t interval); Bonferroni (a family of intervals).  I/O: none.
"""

import math
from collections.abc import Sequence

from scipy.stats import t as student


def paired_interval(
    differences: Sequence[float], level: float = 0.95, *, comparisons: int = 1
) -> tuple[float, float]:
    """Return Student's confidence interval for the mean of paired differences.

    With `comparisons` intervals made like this, all of them cover their means with a probability
    of at least `level` (Bonferroni's correction, whatever the dependence between them). Two or
    more differences are needed: a spread cannot be estimated from one.
    """
    count = len(differences)
    mean = sum(differences) / count
    variance = sum((each - mean) ** 2 for each in differences) / (count - 1)
    tail = (1 - level) / comparisons / 2
    half = float(student.ppf(1 - tail, count - 1)) * math.sqrt(variance / count)
    return mean - half, mean + half
