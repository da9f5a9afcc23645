"""The sum that every Python computes alike: since 3.12, sum() adds what rounding has lost.

I/O: none.
"""

from collections.abc import Iterable
from functools import reduce
from operator import add


def added(numbers: Iterable[float], start: float = 0.0) -> float:
    """Return the sum of numbers, added one after the other to `start`, as ledgers have it.

    math.fsum() is as steady, but has other digits.
    """
    return reduce(add, numbers, start)
