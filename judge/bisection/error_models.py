"""What verdicts say when neither their error rate nor the independence of their errors is certain.

An error model has a rate and a pattern. The rate is the share of wrong verdicts; the given rate
only says around which value it is expected. The pattern says how errors of one checkpoint
depend on each other: a share of the checkpoints are sticky, and a sticky one repeats its first
verdict in a share of its probes. So the probability that a verdict is wrong differs between
checkpoints, and probes of one checkpoint tell less than as many of several.

Rates are averaged over, since the verdicts tell them. Patterns are told by few verdicts, so each
pattern that the verdicts do not refute has to agree: what is stated is the least of their
probabilities. docs/explanation/bisection-errors.md gives the error rates.

Source: J. Berger, "An overview of robust Bayesian analysis", Test 3 (1994); on greedy choice by
information, B. Jedynak, P. Frazier, R. Sznitman, "Twenty questions with noise" (2012).
I/O: none.  Units: information in bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["PATTERNS", "RATES", "Weighed", "least_of", "shortest", "weigh"]

Array = NDArray[np.float64]
RATES = (0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
# Share of sticky checkpoints, and share of a sticky one's probes that repeat its first verdict. The
# first pattern is that of independent errors.
PATTERNS = ((0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (1.0, 1.0), (0.5, 0.5), (1.0, 0.5))
_SPREAD = 1.0  # of the rate around the given one: standard deviation of its log odds
_LOWEST = 0.02  # a smaller given rate says no more than this one
_KEPT = 2.0  # times 1 - confidence: the share of the best evidence below which a pattern is refuted
_TINY = 1e-9  # the least probability of a wrong verdict, and of a right one


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What the verdicts come to."""

    probabilities: Array  # (patterns that are not refuted, hypotheses); each row sums to 1
    information: Array  # of the next verdict on each number from 0
    error: float  # estimated share of wrong verdicts
    independent: bool  # independent errors are not refuted

    @property
    def least(self) -> Array:
        """The probability of each hypothesis, at least."""
        return np.asarray(self.probabilities.min(axis=0), dtype=np.float64)


@lru_cache(maxsize=8)
def weigh(
    *,
    error: float,
    confidence: float,
    hypotheses: range,
    bad: tuple[int, ...],
    good: tuple[int, ...],
) -> Weighed:
    """Return what the verdicts come to; `bad` and `good` count them for each number from 0.

    A hypothesis h says that number i is bad if and only if i >= h.
    """
    counts = np.array([bad, good])  # (2, numbers)
    distinct, place = np.unique(counts, axis=1, return_inverse=True)
    if_bad, next_if_bad = _likelihood(wrong=distinct[1], right=distinct[0])
    if_good, next_if_good = _likelihood(wrong=distinct[0], right=distinct[1])
    place = place.reshape(-1)
    logs = _along(if_good[:, place], if_bad[:, place], hypotheses)  # (models, hypotheses)
    joint = logs + _prior(error)[:, None]
    joint = np.exp(joint - joint.max())
    joint /= joint.sum()

    by_pattern = joint.reshape(len(PATTERNS), len(RATES), -1)
    evidence = by_pattern.sum(axis=(1, 2))  # patterns are equally likely beforehand
    kept = evidence >= _KEPT * (1.0 - confidence) * evidence.max()
    rates = by_pattern.sum(axis=(0, 2))
    # Patterns that are not refuted count alike in the choice of the next probe.
    flat = by_pattern[kept] / (evidence[kept, None, None] * kept.sum())
    models = np.repeat(kept, len(RATES))
    information = _information(
        flat.reshape(int(models.sum()), -1),
        said_bad=(1.0 - next_if_bad[models][:, place], next_if_good[models][:, place]),
        hypotheses=hypotheses,
    )
    probabilities = by_pattern[kept].sum(axis=1) / evidence[kept, None]
    for array in (probabilities, information):
        array.flags.writeable = False  # it is kept for the next call
    return Weighed(
        probabilities=probabilities,
        information=information,
        error=float(rates @ np.array(RATES)),
        independent=bool(kept[0]),
    )


def _models() -> tuple[Array, Array]:
    """Return weights and error rates of the kinds of checkpoints in each model: (models, 3).

    A checkpoint is not sticky, sticky with a right first verdict, or sticky with a wrong one.
    """
    sticky, repeats = np.repeat(np.array(PATTERNS), len(RATES), axis=0).T
    rate = np.tile(RATES, len(PATTERNS))
    weights = np.stack([1.0 - sticky, sticky * (1.0 - rate), sticky * rate], axis=1)
    wrong = np.stack([rate, (1.0 - repeats) * rate, repeats + (1.0 - repeats) * rate], axis=1)
    return weights, np.clip(wrong, _TINY, 1.0 - _TINY)


_WEIGHTS, _WRONG = _models()
with np.errstate(divide="ignore"):
    _LOG_WEIGHTS = np.log(_WEIGHTS)
_LOG_WRONG, _LOG_RIGHT = np.log(_WRONG), np.log1p(-_WRONG)


def _likelihood(*, wrong: NDArray[np.int64], right: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return the log likelihood of a checkpoint's verdicts, and that its next one is wrong.

    Both are (models, columns).
    """
    kinds = (
        _LOG_WEIGHTS[:, :, None] + _LOG_WRONG[:, :, None] * wrong + _LOG_RIGHT[:, :, None] * right
    )  # (models, kinds, columns)
    most = kinds.max(axis=1, keepdims=True)
    shares = np.exp(kinds - most)
    total = shares.sum(axis=1)
    following = (shares * _WRONG[:, :, None]).sum(axis=1) / total
    return most[:, 0] + np.log(total), following


def _along(if_good: Array, if_bad: Array, hypotheses: range) -> Array:
    """Return the log likelihood of each hypothesis: good ones before it, bad ones from it on."""
    models = len(if_good)
    before = np.concatenate([np.zeros((models, 1)), np.cumsum(if_good, axis=1)], axis=1)
    after = np.concatenate(
        [np.cumsum(if_bad[:, ::-1], axis=1)[:, ::-1], np.zeros((models, 1))], axis=1
    )
    return np.asarray((before + after)[:, hypotheses.start : hypotheses.stop], dtype=np.float64)


def _prior(error: float) -> Array:
    """Return the log weight of each model: of its rate, around the given one."""
    odds = np.log(np.array(RATES)) - np.log1p(-np.array(RATES))
    given = max(error, _LOWEST)
    distance = (odds - (np.log(given) - np.log1p(-given))) / _SPREAD
    weights = np.exp(-0.5 * distance**2)
    return np.tile(np.log(weights / weights.sum()), len(PATTERNS))


def _information(flat: Array, *, said_bad: tuple[Array, Array], hypotheses: range) -> Array:
    """Return what the next verdict on each number tells about whether the number is bad."""
    numbers = said_bad[0].shape[1]
    sums = np.cumsum(flat, axis=1)  # (models, hypotheses)
    # Number i is bad if the hypothesis is at most i.
    last = np.clip(np.arange(numbers) - hypotheses.start, -1, len(hypotheses) - 1)
    if_bad = np.where(last >= 0, sums[:, last], 0.0)  # (models, numbers)
    if_good = np.clip(sums[:, -1:] - if_bad, 0.0, None)
    bad, good = if_bad.sum(axis=0), if_good.sum(axis=0)
    said_if_bad = (if_bad * said_bad[0]).sum(axis=0)
    said_if_good = (if_good * said_bad[1]).sum(axis=0)
    found = (
        _entropy(said_if_bad + said_if_good)
        - bad * _entropy(said_if_bad / np.maximum(bad, _TINY))
        - good * _entropy(said_if_good / np.maximum(good, _TINY))
    )
    return np.asarray(np.clip(found, 0.0, None), dtype=np.float64)


def _entropy(share: Array) -> Array:
    share = np.clip(share, 1e-300, 1.0)
    rest = np.clip(1.0 - share, 1e-300, 1.0)
    return np.asarray(-share * np.log2(share) - rest * np.log2(rest), dtype=np.float64)


def shortest(probabilities: Array, confidence: float) -> tuple[range, float]:
    """Return the shortest range of places that has the confidence in every row, and its least."""
    rows, count = probabilities.shape
    sums = np.concatenate([np.zeros((rows, 1)), np.cumsum(probabilities, axis=1)], axis=1)
    for length in range(1, count):
        least = (sums[:, length:] - sums[:, :-length]).min(axis=0)
        first = int(least.argmax())
        if least[first] >= confidence:
            return range(first, first + length), float(least[first])
    return range(count), 1.0


def least_of(probabilities: Array, places: Sequence[int]) -> float:
    """Return the probability of some hypotheses together, at least."""
    return float(min(probabilities[:, list(places)].sum(axis=1).min(), 1.0))
