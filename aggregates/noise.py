"""The gradient's signal-to-noise ratio from probes: an estimate and a 90% interval.

A probe is two gradients g and h of independent batches of one size at the same weights. It records
the product g.h and the mean square (|g|^2 + |h|^2) / 2. The half sum of the two gradients has the
expected square |G|^2 + T/2, their difference has 2T: G is the expected gradient, T the expected
square of one gradient's noise. The signal-to-noise ratio is |G|^2 / T, which equals the batch size
over the noise scale B_simple.

Source: docs/reference/diagnostics.md, "Gradient noise"; McCandlish et al. 2018, An Empirical Model
of Large-Batch Training; Wilson and Hilferty 1931 for the cube root of a chi-square variable.
I/O: none.  Only additions, multiplications, divisions and square roots: every machine computes the
same bits.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from aggregates.sums import added

# What measures the noise of a loop that somebody else owns: the halves of a step that is made of
# several batches, a loss of other examples that the loop gives, or nothing.
HALVES, PROBE, NOTHING = SOURCES = ("halves", "probe", "none")
_Z = 1.6448536269514722  # 95% quantile of the normal distribution: of a 90% interval
_MIN_PAIRS = 3  # pairs of successive steps below which the shape is unknown
_LARGEST = 1e6  # a ratio that no interval reaches: the search ends here
_TINY = 1e-200  # squares of squared norms below this are lost in rounding
_HALVINGS = 40
_PRIOR = 3  # probes that the scatter of the steps' squares counts for


@dataclass(frozen=True)
class NoiseProbes:
    """What an epoch's probes and steps say of the gradient's noise."""

    probes: tuple[tuple[float, float], ...]  # product and mean square of each
    spread: float | None  # of successive squared norms, see spread_of()
    pairs: int  # successive steps that the spread comes from
    share: float = 1.0  # of a step's examples that each gradient of a probe is of


@dataclass(frozen=True)
class SignalToNoise:
    """A median-unbiased estimate of |G|^2 / T, and the ends of its 90% interval."""

    estimate: float
    low: float
    high: float


def pool_noise(epochs: Iterable[NoiseProbes]) -> SignalToNoise | None:
    """Return what the probes of one epoch, or of several, say together; None if they say nothing.

    The ratio is that of the mean |G|^2 to the mean T over all probes, T that of a step's gradient.
    Epochs whose probes are of another share of a step than the latest's are left out.
    """
    found = _evidence_of(epochs)
    if found is None:
        return None
    evidence, limit = found
    estimate, low, high = (evidence.solve(z) / evidence.share for z in (0.0, limit, -limit))
    return SignalToNoise(estimate, low, high)


def _evidence_of(epochs: Iterable[NoiseProbes]) -> tuple["_Evidence", float] | None:
    """Return what pool_noise() solves, and the deviate of its interval, or None."""
    known = list(epochs)
    known = [epoch for epoch in known if epoch.share == known[-1].share]
    probes = [probe for epoch in known for probe in epoch.probes]
    spreads = [(epoch.spread, epoch.pairs) for epoch in known if epoch.spread is not None]
    pairs = sum(count for _, count in spreads)
    if not probes or pairs < _MIN_PAIRS:
        return None
    spread = added(value * count for value, count in spreads) / pairs
    noises = [square - product for product, square in probes]
    total = added(noises)
    weight = added(noise * noise for noise in noises)
    if not (1e-12 < spread < 1 and 0 < total < math.inf and _TINY < weight < math.inf):
        return None
    quotient = added(product for product, _ in probes) / total
    if not -0.5 <= quotient < _LARGEST:  # no two gradients have such a product
        return None
    shape, count = (1 / spread - 1) / 2, total * total / weight
    evidence = _Evidence(quotient, count, shape, known[-1].share)
    if len(probes) > 1:  # the probes' own scatter corrects the one that the steps predict
        errors = [product - quotient * (square - product) for product, square in probes]
        scatter = added(error * error for error in errors) / (weight * evidence.scatter)
        factor = (_PRIOR + scatter * len(probes)) / (_PRIOR + len(probes) - 1)
        if not factor < _LARGEST:  # the probes contradict the steps altogether
            return None
        evidence = replace(evidence, shape=shape / factor)
    return evidence, student_quantile(pairs / 2 + len(probes) - 1)


@dataclass(frozen=True)
class _Evidence:
    """Sums of probes, and the distribution of their quotient for any true ratio of a probe."""

    quotient: float  # products over half the squares of differences
    count: float  # probes, less where a few of them outweigh the others
    shape: float  # of the square of a step's gradient: its mean squared over its variance
    share: float  # as in NoiseProbes

    @property
    def scatter(self) -> float:
        """Return the expected square of product - quotient * noise, over the noise squared."""
        ratio = max(self.quotient, 0.0)
        half = ratio + 0.5
        return (0.5 + 2 * ratio + 2 * half * half) / self.directions(ratio)

    def directions(self, ratio: float) -> float:
        """Return how many independent directions the noise has if `ratio` is true."""
        ratio /= self.share  # that of a step
        return self.shape * (2 + 4 * ratio) / ((1 + ratio) * (1 + ratio))

    def solve(self, score: float) -> float:
        """Return the true ratio at which the quotient found lies `score` deviations high."""
        low, high = 0.0, 1.0
        if self._score(low) <= score:
            return 0.0
        while high < _LARGEST and self._score(high) > score:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._score(middle) > score:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def _score(self, ratio: float) -> float:
        """Return the quotient as a normal deviate if `ratio` is true; it falls with the ratio.

        A gradient's square has the mean T (1 + ratio) and the variance T^2 (2 + 4 ratio) / d, where
        d counts the independent directions of the noise. So d follows from the shape.
        """
        directions = self.directions(ratio) * self.count
        half = ratio + 0.5
        above = 2 / 9 * (0.5 + 2 * ratio) / (2 * directions * half * half)
        below = 2 / 9 / directions
        root = cube_root((self.quotient + 0.5) / half)
        return ((1 - below) * root - (1 - above)) / math.sqrt(below * root * root + above)


def student_quantile(degrees: float) -> float:
    """Return the 95% quantile of Student's distribution (Cornish-Fisher; 1% off at 2 degrees).

    Not scipy's: readers compute it too, without scipy, and its digits are part of what is compared.
    """
    z, n = _Z, degrees
    z2 = z * z
    return z * (
        1
        + (z2 + 1) / (4 * n)
        + ((5 * z2 + 16) * z2 + 3) / (96 * n * n)
        + (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n)
    )


def cube_root(value: float) -> float:
    """Return the cube root of a number from 0 by Newton's method, without libm's powers."""
    if value == 0:
        return 0.0
    mantissa, exponent = math.frexp(value)  # mantissa from 0.5 to 1
    thirds, rest = divmod(exponent, 3)
    mantissa = math.ldexp(mantissa, rest)  # from 0.5 to 4
    root = 1.0
    for _ in range(8):
        root = (2 * root + mantissa / (root * root)) / 3
    return math.ldexp(root, thirds)


def spread_of(squares: Sequence[float], losses: Sequence[float]) -> tuple[float, int] | None:
    """Return the spread of an epoch's squared norms and its pairs; None if there is none.

    A batch that is hard has a large loss and a large gradient. Heavy tails of this kind widen the
    squares and hardly the products of two batches, so what the losses explain is left out where
    there are pairs enough to tell.
    """
    pairs = [
        (contrast(a, b), contrast(c, d))
        for (a, b), (c, d) in zip(pairwise(squares), pairwise(losses), strict=True)
        if 0 < a + b < math.inf and 0 < c + d < math.inf
    ]
    if not pairs:
        return None
    square = math.fsum(x * x for x, _ in pairs)
    if len(pairs) < _MIN_PAIRS:  # of an epoch of two or three steps, to be pooled with others
        return square / len(pairs), len(pairs)
    both = math.fsum(x * y for x, y in pairs)
    loss = math.fsum(y * y for _, y in pairs)
    explained = both * both / loss if loss > 0 else 0.0
    return max(square - explained, 0.0) / (len(pairs) - 1), len(pairs)


def contrast(a: float, b: float) -> float:
    """Return the difference over the sum, from -1 to 1 for numbers from 0."""
    return (a - b) / (a + b)
