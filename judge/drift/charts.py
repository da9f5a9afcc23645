"""Charts of one measurement along a chain of checkpoints, against the original baseline.

The reference is fixed: a chart that takes its reference from the last checkpoint, or lets it fade,
follows a slow loss down and never sees it.

Source: Page (1954), "Continuous inspection schemes", for the sum; docs/explanation/drift.md for
how the limits were calibrated, all together; Kendall (1954) for the bias of an estimated
autocorrelation.
I/O: none.  Units: shares; limits in standard deviations of one evaluation where nothing else is
said.  Shapes: values are (..., checkpoints), the original's first successor first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judge.errors import DriftError

# Where alarms begin.
SLACK = 0.5  # of the sum: how far below the reference a checkpoint may be
RATCHET = 8.0  # of the sum
SIGMAS = 3.0  # below the reference; a second evaluation has to say so, too
AFTER = 5  # checkpoints before that counts
DECLINES = 3  # in a row
FALL = 5.0  # that they add up to
BREAKER_SHARE = 0.2  # share of the best-known checkpoint's value that may be lost
BREAKER_SIGMAS = 8.0  # of the likely deviation, that lie between the two at least
CONFIRMATIONS = 2  # later evaluations that have to be as low before anything is undone
PAUSE = 600.0  # s between an evaluation and the one that confirms it
PRODUCTION_ERROR = 2e-5  # of error, each checkpoint
DEFICIT = 8  # by which failed runs outnumber successes; as in projections/drift.sql
GROWTH = 0.25  # of complexity beyond that of the value
WINDOW = 5  # checkpoints over which gains are looked at
_MOST_CORRELATED = 0.95
_ENOUGH = 0.008  # sd of a measurement with which alarms see a ratchet of 0.1% in 40 checkpoints
Array = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The original checkpoint's evaluations; (...) each."""

    mean: Array
    reference: Array  # what later ones are measured against: the mean, less its standard error
    sd: Array  # of one evaluation, at most; widened for what one shares with the next
    likely: Array  # of one evaluation, as likely above as below; widened, too
    correlation: Array  # of one evaluation with the next, at most


def baseline_of(values: Array | Sequence[float], *, resolution: float) -> Baseline:
    """Return what repeats (..., repeats) say; `resolution` is what one answer more is worth.

    Of the deviation the upper 95% bound is taken, for that of few repeats is often too small.
    Repeats that all agree do not prove that there is no noise, only that it is rarer than three in
    as many (again with 95%): that is added. The likely deviation has the medians instead.

    Repeats are taken for a first-order autoregression in their order. Its correlation is estimated,
    corrected for bias, and raised by one standard error: few repeats widen the deviation by more.
    """
    values = np.asarray(values, dtype=float)
    repeats = values.shape[-1]
    if repeats < 2:
        raise DriftError(
            f"a baseline of {repeats} evaluations is too small to estimate a standard deviation"
        )
    from scipy.stats import chi2  # noqa: PLC0415 - in an extra

    mean = values.mean(axis=-1)
    squares = np.sum((values - mean[..., None]) ** 2, axis=-1)
    correlation = _correlation(values, squares)
    inflation = (1.0 + correlation) / (1.0 - correlation)  # of the variance of long sums
    # Values that hang together lie closer together than values of another time would.
    hidden = np.maximum(1.0 - (np.minimum(inflation, repeats / 2) - 1.0) / (repeats - 1), 0.3)
    wide = squares * inflation / hidden
    sd, likely = (
        np.sqrt(wide / chi2.ppf(chance, repeats - 1) - resolution**2 * np.log(chance) / repeats)
        for chance in (0.05, 0.5)
    )
    return Baseline(
        mean=mean,
        reference=mean - sd / sqrt(repeats),
        sd=sd,
        likely=likely,
        correlation=correlation,
    )


def _correlation(values: Array, squares: Array) -> Array:
    """Return the most that successive values are likely to be correlated; shape (...)."""
    count = values.shape[-1]
    apart = values - values.mean(axis=-1, keepdims=True)
    products = np.sum(apart[..., 1:] * apart[..., :-1], axis=-1)
    found = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 1e-18)
    found = np.clip(found + (1.0 + 3.0 * found) / count, 0.0, _MOST_CORRELATED)
    return np.asarray(np.minimum(found + np.sqrt((1.0 - found**2) / count), _MOST_CORRELATED))


def ratchet(values: Array, base: Baseline, *, restarts: Flags | None = None) -> Array:
    """Return the sums of what lies below the reference, less the slack; none is below 0.

    Where `restarts` is true the sum begins again, for an operator has answered.
    """
    below = (np.expand_dims(base.reference, -1) - values) / np.expand_dims(base.sd, -1)
    sums = np.zeros(values.shape)
    so_far = np.zeros(values.shape[:-1])
    for number in range(values.shape[-1]):
        if restarts is not None:
            so_far = np.where(restarts[..., number], 0.0, so_far)
        so_far = np.maximum(0.0, so_far + below[..., number] - SLACK)
        sums[..., number] = so_far
    return sums


def beyond(values: Array, base: Baseline, *, again: Array) -> Flags:
    """Tell which checkpoints lie too far below the reference to be chance; not the first ones.

    `again` is what second evaluations said, which have to lie as far below.
    """
    low = is_far(values, base) & is_far(again, base)
    return np.asarray(low & (_numbers(values) > AFTER))


def is_far(values: Array, base: Baseline) -> Flags:
    """Tell which values lie so far below the reference that a second evaluation is asked."""
    return np.asarray(values < _floor(base))


def counted(values: Array, base: Baseline, *, again: Array) -> Array:
    """Return what counts in sums: of an evaluation far below, the higher of it and the second.

    Where there is no second one (infinite), and neither neighbour is far below, no more than SIGMAS
    counts: it may be a disturbance.
    """
    far, sure = is_far(values, base), np.isfinite(again)
    beside = np.zeros(values.shape, dtype=bool)
    beside[..., 1:] |= far[..., :-1]
    beside[..., :-1] |= far[..., 1:]
    found = np.where(far & sure, np.maximum(values, again), values)
    return np.asarray(np.where(far & ~sure & ~beside, _floor(base), found))


def declined(values: Array, base: Baseline) -> Flags:
    """Tell where evaluations fell several times in a row, by more than chance makes of it."""
    flags = np.zeros(values.shape, dtype=bool)
    falls, total = np.zeros(values.shape[:-1], dtype=int), np.zeros(values.shape[:-1])
    before = base.reference
    for number in range(values.shape[-1]):
        now = values[..., number]
        fell = now < before
        falls, total = np.where(fell, falls + 1, 0), np.where(fell, total + before - now, 0.0)
        flags[..., number] = (falls >= DECLINES) & (total > FALL * base.sd)
        before = now
    return flags


def broken(values: Array, base: Baseline, *, again: Array) -> Flags:
    """Tell which checkpoints lost so much of the best-known value that nothing is asked first.

    `again` has the highest of the later evaluations that confirm it, as beyond() has.
    """
    floor = breaker_floor(best_known(values, base), base)
    return np.asarray((values < floor) & (again < floor))


def breaker_floor(best: Array, base: Baseline) -> Array:
    """Return below what a checkpoint is broken, given the best values (..., checkpoints) before it.

    It is 0 or less where the deviation is so large that no checkpoint can be.
    """
    room = BREAKER_SIGMAS * np.expand_dims(base.likely, -1)
    return np.asarray(best - np.maximum(BREAKER_SHARE * best, room))


def best_known(values: Array, base: Baseline) -> Array:
    """Return the best value before each checkpoint; the reference is the first."""
    whole = _with_reference(values, base)
    return np.asarray(np.maximum.accumulate(whole, axis=-1)[..., :-1])


def unproductive(right: Array, runs: Array) -> Flags:
    """Tell which checkpoints' production runs went worse than those of all before them.

    Both (..., checkpoints), the original's bucket first. Fisher's exact test, one-sided.
    """
    from scipy.stats import hypergeom  # noqa: PLC0415 - in an extra

    all_right, all_runs = np.cumsum(right, axis=-1), np.cumsum(runs, axis=-1)
    tail = hypergeom.cdf(right, all_runs, all_right, runs)  # NaN where there is no run at all
    return np.asarray(tail < PRODUCTION_ERROR)


def grown(complexity: Array, values: Array, base: Baseline) -> Flags:
    """Tell where the code grew by more than what it is worth, chance allowed for.

    `complexity` is relative to the original's, (..., checkpoints).
    """
    first = np.expand_dims(base.reference, -1)
    mean, count = _running_mean(values)
    worth = (mean + SIGMAS * np.expand_dims(base.sd, -1) / np.sqrt(count)) / first
    return complexity - np.maximum(worth, 1.0) > GROWTH


def evaluations_needed(sd: float) -> int:
    """Return how many evaluations each measurement has to consist of, for the ratchet's sake."""
    return max(1, int(np.ceil((sd / _ENOUGH) ** 2)))


def velocity(values: Array, base: Baseline) -> Array:
    """Return the gain per checkpoint over the window (least squares); NaN before there is one."""
    whole = _with_reference(values, base)
    steps = np.arange(WINDOW + 1) - WINDOW / 2
    found = np.full(values.shape, np.nan)
    for number in range(WINDOW, whole.shape[-1]):
        part = whole[..., number - WINDOW : number + 1]
        found[..., number - 1] = part @ steps / (steps @ steps)
    return found


def stalled(values: Array, base: Baseline) -> Flags:
    """Tell where no gain is to be told from chance; no alarm, but a word to the operator."""
    steps = np.arange(WINDOW + 1) - WINDOW / 2
    noise = np.expand_dims(base.sd, -1) / sqrt(steps @ steps)
    return velocity(values, base) <= noise


def _floor(base: Baseline) -> Array:
    return np.expand_dims(base.reference - SIGMAS * base.sd, -1)


def _with_reference(values: Array, base: Baseline) -> Array:
    """Return the values behind the reference; (..., 1 + checkpoints)."""
    first = np.broadcast_to(np.expand_dims(base.reference, -1), (*values.shape[:-1], 1))
    return np.concatenate([first, values], axis=-1)


def _running_mean(values: Array) -> tuple[Array, Array]:
    sums = np.cumsum(values, axis=-1)
    sums = np.concatenate([sums[..., :WINDOW], sums[..., WINDOW:] - sums[..., :-WINDOW]], axis=-1)
    count = np.minimum(_numbers(values), WINDOW)
    return sums / count, count


def _numbers(values: Array) -> NDArray[np.int_]:
    """Return the checkpoints' numbers: the original's first successor is 1."""
    return np.arange(1, values.shape[-1] + 1)
