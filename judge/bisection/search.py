"""Which checkpoint made a line worse, given the verdicts, and which checkpoint to test next.

Suspects are numbered from 1 in the order of the chain; 0 is the good checkpoint before them. A
hypothesis is the number of the first bad one. Verdicts are wrong with one known probability, each
by itself, so that a hypothesis is as likely as the number of verdicts against it says; asked next
is the checkpoint whose verdict tells most. With sure verdicts this is binary search.

Source: M. Horstein, "Sequential transmission using noiseless feedback", IEEE Trans. Inf. Theory 9
(1963); M. Burnashev, K. Zigangirov, "An interval estimation problem for controlled observations"
(1974); M. Ben-Or, A. Hassidim, "The Bayesian learner is optimal for noisy binary search" (2008).
I/O: none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

__all__ = ["Probe", "Search", "SearchState", "luck", "next_probe", "posterior", "standing"]

Verdict = Literal["bad", "good", "skip"]
Probe = tuple[int, Verdict]  # a checkpoint's number, and what was said of it


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is asked, of how many, and how sure the answer has to be."""

    suspects: int
    error: float = 0.0  # share of wrong verdicts, below 0.5; 0: verdicts are sure
    confidence: float = 0.95
    ends_believed: bool = True  # number 0 is good and the last is bad, without being asked

    @property
    def hypotheses(self) -> range:
        """Numbers of the first bad one; 0: it lies before the chain; one too many: none is bad."""
        if self.ends_believed:
            return range(1, self.suspects + 1)
        return range(self.suspects + 2)


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """What the verdicts come to."""

    likely: range  # hypotheses that no probe can tell apart, together the likeliest
    probability: float  # of these together; 0 where the verdicts contradict each other
    over: bool  # there is nothing more to ask


def posterior(search: Search, probes: Sequence[Probe]) -> list[float]:
    """Return the probability of each of search.hypotheses; all 0 where sure verdicts contradict.

    A hypothesis h says that number i is bad if and only if i >= h.
    """
    against = _against(search, probes)
    if search.error == 0.0:
        weights = [float(count == 0) for count in against]
    else:
        odds = search.error / (1.0 - search.error)
        least = min(against)
        weights = [odds ** (count - least) for count in against]
    total = math.fsum(weights)
    return [weight / total for weight in weights] if total else weights


def next_probe(search: Search, probes: Sequence[Probe]) -> int | None:
    """Return the number whose verdict tells most, as far as it can be expected to have one.

    Beside those that could not be tested, others often cannot be, either: a neighbour counts half,
    the next one three quarters. None where no verdict would tell anything.
    """
    skipped = _skipped(probes)
    best, most = None, 0.0
    for number, bad in _shares(search, probes).items():
        if number not in skipped:
            distance = min((abs(number - other) for other in skipped), default=64)
            worth = _information(bad, search.error) * (1.0 - 0.5**distance)
            if worth > most + 1e-12:
                best, most = number, worth
    return best


def standing(search: Search, probes: Sequence[Probe]) -> SearchState:
    """Return what the verdicts say, and whether that is enough."""
    found, hypotheses, skipped = posterior(search, probes), search.hypotheses, _skipped(probes)
    groups: list[list[int]] = []
    for place, hypothesis in enumerate(hypotheses):
        # Between h-1 and h only a verdict on number h-1 decides.
        if not groups or hypothesis - 1 not in skipped:
            groups.append([])
        groups[-1].append(place)
    masses = [math.fsum(found[place] for place in group) for group in groups]
    mass = max(masses)
    likely = groups[masses.index(mass)]
    sure = search.error > 0.0 and mass >= search.confidence
    return SearchState(
        likely=hypotheses[likely[0] : likely[-1] + 1],
        probability=mass,
        over=sure or next_probe(search, probes) is None,
    )


def luck(search: Search, probes: Sequence[Probe], culprit: int) -> tuple[int, float]:
    """Return how many verdicts are wrong if this is the first bad one, and how likely so many are.

    A small probability says that the verdicts are wrong more often than was believed.
    """
    said = [(number, verdict) for number, verdict in probes if verdict != "skip"]
    wrong = sum((verdict == "bad") != (number >= culprit) for number, verdict in said)
    if search.error == 0.0:
        return wrong, float(wrong == 0)
    from scipy.stats import binom  # noqa: PLC0415 - in an extra

    return wrong, float(binom.sf(wrong - 1, len(said), search.error))


def _against(search: Search, probes: Sequence[Probe]) -> list[int]:
    """Return how many verdicts speak against each hypothesis."""
    hypotheses = search.hypotheses
    # A good one speaks against all up to its number, a bad one against all beyond it.
    steps = [0] * (len(hypotheses) + 1)
    for number, verdict in probes:
        upto = min(max(number + 1 - hypotheses.start, 0), len(hypotheses))
        if verdict == "good":
            steps[0] += 1
            steps[upto] -= 1
        elif verdict == "bad":
            steps[upto] += 1
    return list(accumulate(steps[:-1]))


def _shares(search: Search, probes: Sequence[Probe]) -> dict[int, float]:
    """Return of each number with what probability it is bad."""
    sums = accumulate(posterior(search, probes))
    bad = dict(zip(search.hypotheses, sums, strict=True))
    return {number: bad[number] for number in range(search.suspects + 1) if number in bad}


def _skipped(probes: Sequence[Probe]) -> set[int]:
    return {number for number, verdict in probes if verdict == "skip"}


def _information(share: float, error: float) -> float:
    """Return what a verdict tells of something that is so with this probability, in bits."""
    said = share * (1.0 - error) + (1.0 - share) * error
    return max(_entropy(said) - _entropy(error), 0.0)


def _entropy(share: float) -> float:
    if not 0.0 < share < 1.0:
        return 0.0
    return -share * math.log2(share) - (1.0 - share) * math.log2(1.0 - share)
