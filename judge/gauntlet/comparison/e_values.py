"""Evidence about means, as the winnings of a gambler for whom the game is fair or worse.

A difference d lies in [-1, 1]. Whoever doubts that its mean is at most -margin bets a stake s on
each: wealth times 1 + s (d + margin). If the doubted is true, wealth has no drift upwards however
long one plays and whenever one stops: its expectation stays at most one, and it is above 1/level
with a chance of at most `level`. Three gamblers, with a small, a middle and a large stake, share
the money; their mean is an e-process as well, and it does not depend on the differences' order.

Source: Waudby-Smith & Ramdas 2023, "Estimating means of bounded random variables by betting"
(JRSS B 86); Ramdas, Grünwald, Vovk & Shafer 2023, "Game-theoretic statistics and safe
anytime-valid inference" (Statistical Science 38). For a bounded mean there is nothing else:
Clerico 2024, "On the optimality of coin-betting for mean estimation".
I/O: none.  Units: natural logarithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
STAKES = (0.25, 0.6, 0.95)  # of the largest at which nobody can owe; 1 would end in ruin
SUCCESS_SHARE = 0.75  # of the money is on successes, the rest on metrics


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """What counts as harm, and how many pairs a task may take."""

    confirmed: int = 5  # pairs that show one difference of a deterministic task before it counts
    margin: float = 0.10  # of success, or of a metric: less than that is not told from no harm
    first: int = 20  # pairs of repeats of every stochastic task, to begin with
    growth: float = 1.25  # from one look at the evidence to the next
    most: int = 1_500  # pairs of one task
    worse: float = 0.05  # chance of calling a harmless change worse; it would not be promoted
    futile: float = 0.05  # chance of giving a task up that was improved by the margin
    slower: float = 0.25  # share of either time: more than that is slower
    paced: int = 12  # pairs of each task, at least, that show that a refactoring is not
    paced_most: int = 60  # and at most


DEFAULTS = ComparisonSettings()


def log_e(differences: npt.ArrayLike, counts: npt.ArrayLike, *, margin: float) -> Floats:
    """Return log evidence against "the mean is at most -margin".

    `differences` has shape (V,); `counts`, how often each was seen, has shape (..., V).
    """
    stakes = np.asarray(STAKES) / (1.0 - margin)
    seen = np.asarray(differences, dtype=np.float64)
    wins = np.log1p(np.multiply.outer(seen + margin, stakes))  # (V, stakes)
    wealth = np.asarray(counts, dtype=np.float64) @ wins  # (..., stakes)
    return log_mean(wealth)


def log_e_of(differences: Sequence[float], *, margin: float = 0.0) -> float:
    """Return log evidence against it of differences that were each seen once."""
    return float(log_e(differences, [1.0] * len(differences), margin=margin))


def log_mean(logs: Floats, *, weights: Floats | None = None) -> Floats:
    """Return the log of the (weighted) mean along the last axis, of what is given as logs."""
    shares = 1.0 / logs.shape[-1] if weights is None else weights
    return np.asarray(np.logaddexp.reduce(logs + np.log(shares), axis=-1))


def schedule(settings: ComparisonSettings) -> tuple[int, ...]:
    """Return at how many pairs of a task the evidence is looked at."""
    looks = [min(settings.first, settings.most)]
    while looks[-1] < settings.most:
        looks.append(min(settings.most, int(np.ceil(looks[-1] * settings.growth))))
    return tuple(looks)


@dataclass(frozen=True, kw_only=True)
class LogEValues:
    """What is known of one change, or of many (...), whose K stochastic tasks make C claims.

    All of it as log e-values against what is to be refuted.
    """

    improved: Floats  # (..., C), "this is no better than it was"
    weights: Floats  # (C,), fixed before any result is seen; their sum is one
    unharmed: Floats  # (..., K), "this task is worse by the margin or more"
    harmed: Floats  # (..., H), "this is no worse than it was"
    hopeless: Floats  # (..., K), "something about this task is better by the margin or more"
    spent: Bools  # (..., K), no more repeats may be taken
    level: npt.ArrayLike  # (...), of error, for this proposal
    exact: npt.ArrayLike  # (...), deterministic tasks show an improvement


@dataclass(frozen=True, kw_only=True)
class SequentialState:
    """What follows, and of which tasks more pairs are wanted."""

    better: Bools  # (...)
    worse: Bools  # (...)
    wanted: Bools  # (..., K)
    value: Floats  # (...), log e-value of the whole


def standing(evidence: LogEValues, *, settings: ComparisonSettings) -> SequentialState:
    """Weigh it all: one e-value against "this change improves nothing, or harms something".

    It is the smallest of the evidence for some improvement (a mean over claims) and of that for
    the harmlessness to each task: if the change improves nothing, its expectation is at most that
    of the first, and if it harms a task, at most that of this task's. So is a minimum's.
    An improvement is sought first, in the tasks where there is still hope; harmlessness is shown
    only for a change that has one to offer. Giving up is free of error: nothing is promoted by it.
    """
    level = np.asarray(evidence.level, dtype=np.float64)
    needed = -np.log(level)
    gain = log_mean(evidence.improved, weights=evidence.weights)
    gain = np.where(np.asarray(evidence.exact, dtype=np.bool_), np.inf, gain)
    value = np.minimum(gain, evidence.unharmed.min(axis=-1))
    worse = log_mean(evidence.harmed) >= -np.log(settings.worse)
    better = (value >= needed) & ~worse
    found = gain >= needed
    open_ = evidence.unharmed < needed[..., None]
    stuck = (open_ & evidence.spent).any(axis=-1)
    hope = evidence.hopeless < -np.log(settings.futile)
    wanted = np.where(found[..., None], open_, hope) & ~evidence.spent
    return SequentialState(
        better=better,
        worse=worse,
        wanted=wanted & ~(better | worse | (found & stuck))[..., None],
        value=value,
    )
