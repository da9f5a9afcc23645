"""What verdicts say when neither their error rates nor the independence of their errors is certain.

An error model has two rates and a pattern. The rates are the share of good checkpoints' verdicts
that are false alarms, and the share of bad checkpoints' that miss the fault. The ordinary flaky
fault has no false alarms, and is missed in most probes. The pattern says how errors of one
checkpoint depend on each other: a share of the checkpoints are sticky, and a sticky one repeats its
first verdict in a share of its probes. So probes of one checkpoint tell less than as many of
several.

By the third rules all models count, and patterns are equally likely. A probe is worth what it
tells of culprit and model together: several checkpoints whose verdicts differ refute that errors
repeat. By the second, rates are averaged over, and the least probability by a pattern that is not
refuted is stated. docs/studies/gate.md gives the error rates.

Source: J. Berger, "An overview of robust Bayesian analysis", Test 3 (1994); on greedy choice by
information, B. Jedynak, P. Frazier, R. Sznitman, "Twenty questions with noise" (2012).
I/O: none.  Units: information in bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_KEPT = 2.0  # times 1 - confidence: the share of the best evidence below which a pattern is refuted
_LEAST = 1e-300  # divisor
_TINY = 1e-9  # the least probability of a wrong verdict, and of a right one
# Of the second rules, which recorded searches were made by: both rates are one, around a given one.
_ONE_RATE = (0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
_SPREAD = 1.0  # of the rate around the given one: standard deviation of its log odds
_LOWEST = 0.02  # a smaller given rate says no more than this one
# Of the third: false alarms are absent in half of all searches, and all else is equally likely, as
# long as bad checkpoints fail more often than good ones.
_FALSE = (0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4)
_MISSED = (0.005, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_MOST_WRONG = 0.9  # of both rates together
# Share of sticky checkpoints, and share of a sticky one's probes that repeat its first verdict. The
# first pattern is that of independent errors.
_PATTERNS = {
    2: ((0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (1.0, 1.0), (0.5, 0.5), (1.0, 0.5)),
    3: ((0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.0, 0.5)),
}


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What the verdicts come to."""

    probabilities: Array  # (explanations that have to agree, hypotheses); each row sums to 1
    of_ranges: Array  # the same, of ranges
    plain: Array  # (hypotheses,), if errors are independent
    information: Array  # of the next verdict on each number from 0
    plain_information: Array  # the same, if errors are independent
    false_alarms: float  # estimated share of good checkpoints' verdicts
    missed: float  # and of bad ones'
    repeating: bool  # a pattern of repeated errors is at least twice as likely as none
    independent: bool  # independent errors are not refuted

    @property
    def least(self) -> Array:
        """The probability of each hypothesis, at least."""
        return np.asarray(self.probabilities.min(axis=0), dtype=np.float64)


class _Kinds:
    """Kinds of checkpoints in each model: not sticky, sticky and first right, sticky and wrong."""

    def __init__(self, rate: Array, sticky: Array, repeats: Array) -> None:
        weights = np.stack([1.0 - sticky, sticky * (1.0 - rate), sticky * rate], axis=1)
        wrong = np.stack([rate, (1.0 - repeats) * rate, repeats + (1.0 - repeats) * rate], axis=1)
        self.wrong = np.clip(wrong, _TINY, 1.0 - _TINY)  # (models, kinds)
        with np.errstate(divide="ignore"):
            self._logs = np.log(weights), np.log(self.wrong), np.log1p(-self.wrong)

    def likelihood(
        self, *, wrong: NDArray[np.int64], right: NDArray[np.int64]
    ) -> tuple[Array, Array]:
        """Return the log likelihood of a checkpoint's verdicts, and that its next one is wrong.

        Both are (models, columns).
        """
        weights, if_wrong, if_right = self._logs
        kinds = weights[:, :, None] + if_wrong[:, :, None] * wrong + if_right[:, :, None] * right
        most = kinds.max(axis=1, keepdims=True)
        shares = np.exp(kinds - most)
        total = shares.sum(axis=1)
        following = (shares * self.wrong[:, :, None]).sum(axis=1) / total
        return most[:, 0] + np.log(total), following


class _Models:
    """The models of some rules: each pattern with each pair of rates."""

    def __init__(self, rules: int) -> None:
        pairs = [(rate, rate) for rate in _ONE_RATE]
        if rules != 2:
            pairs = [(a, m) for a in _FALSE for m in _MISSED if a + m <= _MOST_WRONG]
        self.patterns, self.rates = _PATTERNS[rules], np.array(pairs)  # (rates, 2)
        self._one_rate = rules == 2
        sticky, repeats = np.repeat(np.array(self.patterns), len(pairs), axis=0).T
        false, missed = np.tile(self.rates, (len(self.patterns), 1)).T
        self.good, self.bad = _Kinds(false, sticky, repeats), _Kinds(missed, sticky, repeats)

    def prior(self, error: float) -> Array:
        """Return the log weight of each model."""
        rates = self.rates[:, 0]
        if self._one_rate:
            given = max(error, _LOWEST)
            odds = np.log(rates) - np.log1p(-rates) - (np.log(given) - np.log1p(-given))
            weights = np.exp(-0.5 * (odds / _SPREAD) ** 2)
        else:
            absent = rates == _FALSE[0]
            weights = np.where(absent, 1.0 / absent.sum(), 1.0 / (~absent).sum())
        return np.tile(np.log(weights / weights.sum()), len(self.patterns))


_models = lru_cache(_Models)


@lru_cache(maxsize=64)
def weigh(
    *,
    rules: int,
    error: float,
    confidence: float,
    hypotheses: range,
    bad: tuple[int, ...],
    good: tuple[int, ...],
) -> Weighed:
    """Return what the verdicts come to; `bad` and `good` count them for each number from 0.

    A hypothesis h says that number i is bad if and only if i >= h.
    """
    models = _models(rules)
    counts = np.array([bad, good])  # (2, numbers)
    distinct, place = np.unique(counts, axis=1, return_inverse=True)
    if_bad, next_if_bad = models.bad.likelihood(wrong=distinct[1], right=distinct[0])
    if_good, next_if_good = models.good.likelihood(wrong=distinct[0], right=distinct[1])
    place = place.reshape(-1)
    logs = _along(if_good[:, place], if_bad[:, place], hypotheses)  # (models, hypotheses)
    joint = logs + models.prior(error)[:, None]
    joint = np.exp(joint - joint.max())
    joint /= joint.sum()

    by_pattern = joint.reshape(len(models.patterns), len(models.rates), -1)
    evidence = by_pattern.sum(axis=(1, 2))  # patterns are equally likely beforehand
    kept = evidence >= _KEPT * (1.0 - confidence) * evidence.max()
    plain = by_pattern[0].sum(axis=0) / max(evidence[0], _LEAST)
    said_bad = (1.0 - next_if_bad)[:, place], next_if_good[:, place]
    repeating = bool(evidence[0] < 0.5 * evidence.max())
    # Where errors repeat, their rates are badly known: a range has to hold in each case, with false
    # alarms and without, that is not refuted.
    absent = models.rates[:, 0] == (-1.0 if rules == 2 else _FALSE[0])
    cases = np.concatenate([by_pattern[:, each].sum(axis=1) for each in (absent, ~absent)])
    weights = cases.sum(axis=1, keepdims=True)
    open_cases = (weights >= _KEPT * (1.0 - confidence) * weights.max())[:, 0]
    of_ranges = cases[open_cases] / weights[open_cases]
    if rules == 2:
        probabilities = of_ranges
        # Patterns that are not refuted count alike in the choice of the next probe.
        flat = by_pattern[kept] / (evidence[kept, None, None] * kept.sum())
        rows = np.repeat(kept, len(models.rates))
        flat, said = flat.reshape(int(rows.sum()), -1), [each[rows] for each in said_bad]
        information = plain_information = _information(flat, said, hypotheses, of_models=False)
    else:
        probabilities = joint.sum(axis=0, keepdims=True)
        of_ranges = of_ranges if repeating else probabilities
        # Which model is true is worth knowing: it says what verdicts to come will be worth.
        information = _information(joint, said_bad, hypotheses)
        given = by_pattern[0] / np.maximum(by_pattern[0].sum(axis=0), _LEAST)
        said = [given.T @ each[: len(models.rates)] for each in said_bad]
        plain_information = _information(np.diag(plain), said, hypotheses)
    rates = by_pattern.sum(axis=(0, 2)) @ models.rates
    found = Weighed(
        probabilities=probabilities,
        of_ranges=of_ranges,
        plain=plain,
        information=information,
        plain_information=plain_information,
        false_alarms=float(rates[0]),
        missed=float(rates[1]),
        repeating=repeating,
        independent=bool(kept[0]),
    )
    for array in vars(found).values():
        if isinstance(array, np.ndarray):
            array.flags.writeable = False  # it is kept for the next call
    return found


def _along(if_good: Array, if_bad: Array, hypotheses: range) -> Array:
    """Return the log likelihood of each hypothesis: good ones before it, bad ones from it on."""
    models = len(if_good)
    before = np.concatenate([np.zeros((models, 1)), np.cumsum(if_good, axis=1)], axis=1)
    after = np.concatenate(
        [np.cumsum(if_bad[:, ::-1], axis=1)[:, ::-1], np.zeros((models, 1))], axis=1
    )
    return np.asarray((before + after)[:, hypotheses.start : hypotheses.stop], dtype=np.float64)


def _information(
    flat: Array, said_bad: Sequence[Array], hypotheses: range, *, of_models: bool = True
) -> Array:
    """Return what the next verdict on each number tells about whether the number is bad.

    With `of_models` also about which model is true. `flat` is (models, hypotheses); `said_bad` are
    the probabilities of the verdict "bad" on bad and on good ones, each (models, numbers).
    """
    if_bad, if_good = said_bad
    sums = np.cumsum(flat, axis=1)
    # Number i is bad if the hypothesis is at most i.
    last = np.clip(np.arange(if_bad.shape[1]) - hypotheses.start, -1, len(hypotheses) - 1)
    bad = np.where(last >= 0, sums[:, last], 0.0)  # (models, numbers)
    good = np.clip(sums[:, -1:] - bad, 0.0, None)
    said = (bad * if_bad).sum(axis=0), (good * if_good).sum(axis=0)
    if of_models:
        unknown = (bad * _entropy(if_bad) + good * _entropy(if_good)).sum(axis=0)
    else:
        shares = bad.sum(axis=0), good.sum(axis=0)
        unknown = shares[0] * _entropy(said[0] / np.maximum(shares[0], _TINY))
        unknown = unknown + shares[1] * _entropy(said[1] / np.maximum(shares[1], _TINY))
    found = _entropy(said[0] + said[1]) - unknown
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
