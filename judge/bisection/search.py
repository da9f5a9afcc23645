"""Which checkpoint made a line worse, given the verdicts, and which checkpoint to test next.

Suspects are numbered from 1 in the order of the chain; 0 is the good checkpoint before them. A
hypothesis is the number of the first bad one. Asked next is the checkpoint whose verdict tells
most. With sure verdicts this is binary search.

Searches are recorded with the number of their rules, and are replayed by the same rules:

1. The given error rate is the true one, and errors are independent. A hypothesis is as likely as
   the number of verdicts against it says.
2. The given error rate is a guess, and errors of one checkpoint may depend on each other: see
   error_models.py. A search also ends where no verdict tells enough, with a range of suspects.
3. Two rates that nobody has to guess: of false alarms, and of missed faults. All models count. The
   search goes as if errors were independent until that would make it sure. At most 0.75 times as
   many further probes also tell whether errors are independent, and how frequent they are.

Source: M. Horstein, "Sequential transmission using noiseless feedback", IEEE Trans. Inf. Theory 9
(1963); M. Burnashev, K. Zigangirov, "An interval estimation problem for controlled observations"
(1974); M. Ben-Or, A. Hassidim, "The Bayesian learner is optimal for noisy binary search" (2008).
I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

from judge.bisection.error_models import Weighed, least_of, shortest, weigh

RULES = 3  # of new searches
_LEAST = 1e-3  # bits that a probe has to tell, on average
_MOST = {2: 256, 3: 192}  # probes of a search whose verdicts are not sure, by its rules
_OTHER = 0.5  # of the most: what another checkpoint has to tell to be asked first
_LONGER = 1.75  # times the probes after which independent errors would make it sure
_SHORTER = 1.4  # the same, where the verdicts speak against independent errors

Verdict = Literal["bad", "good", "skip"]
Probe = tuple[int, Verdict]  # a checkpoint's number, and what was said of it


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is asked, of how many, and how sure the answer has to be."""

    suspects: int
    error: float = 0.0  # share of wrong verdicts, below 0.5; 0: verdicts are sure
    confidence: float = 0.95
    ends_believed: bool = True  # number 0 is good and the last is bad, without being asked
    rules: int = RULES

    @property
    def estimates(self) -> bool:
        """Whether error rates are estimated from the verdicts."""
        return self.error > 0.0 and self.rules != 1

    @property
    def states_least(self) -> bool:
        """Whether probabilities are the least of several, and do not sum to 1."""
        return self.estimates and self.rules == 2

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
    probability: float  # of these together (rules 2: at least); 0: verdicts contradict
    over: bool  # there is nothing more to ask


def posterior(search: Search, probes: Sequence[Probe]) -> list[float]:
    """Return the probability of each of search.hypotheses; all 0 where sure verdicts contradict.

    By rules 2 these are the least probabilities, and sum to less than 1. A hypothesis h says that
    number i is bad if and only if i >= h.
    """
    if search.estimates:
        return [float(each) for each in _weighed(search, probes).least]
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
    the next one three quarters. None where no verdict would tell anything. Where errors may depend
    on each other, probes of one checkpoint lie apart in time if another tells half as much.
    """
    told = _told(search, probes)
    if search.estimates and (
        len(probes) >= _MOST[search.rules] or max(told.values(), default=0.0) < _LEAST
    ):
        return None
    # It has had its share of probes beyond those of a plain search.
    settled = _settled_at(search, tuple(probes))
    if settled is not None:
        repeating = _weighed(search, probes).repeating
        if len(probes) >= (_SHORTER if repeating else _LONGER) * settled:
            return None
    skipped = _skipped(probes)
    worths = {
        number: bits * (1.0 - 0.5 ** min((abs(number - each) for each in skipped), default=64))
        for number, bits in told.items()
    }
    best, most = _best(worths)
    if search.estimates and probes and best == probes[-1][0]:
        other, worth = _best({each: bits for each, bits in worths.items() if each != best})
        return other if worth >= _OTHER * most else best
    return best


def standing(search: Search, probes: Sequence[Probe]) -> SearchState:
    """Return what the verdicts say, and whether that is enough."""
    found, hypotheses = posterior(search, probes), search.hypotheses
    groups = _groups(search, probes)
    if search.estimates:
        rows = _weighed(search, probes).probabilities
        masses = [least_of(rows, group) for group in groups]
    else:
        masses = [math.fsum(found[place] for place in group) for group in groups]
    mass = max(masses)
    likely = range(groups[masses.index(mass)][0], groups[masses.index(mass)][-1] + 1)
    sure = search.error > 0.0 and mass >= search.confidence
    over = sure or next_probe(search, probes) is None
    if search.estimates and over and not sure:
        likely, mass = shortest(_weighed(search, probes).of_ranges, search.confidence)
    return SearchState(
        likely=hypotheses[likely.start : likely.stop],
        probability=mass,
        over=over,
    )


def estimated(search: Search, probes: Sequence[Probe]) -> tuple[float, float, bool] | None:
    """Return the estimated shares of false alarms and of missed faults.

    Then, whether errors may be independent. None where the given error rate is taken as it is.
    """
    if not search.estimates:
        return None
    found = _weighed(search, probes)
    return found.false_alarms, found.missed, found.independent


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


def _groups(search: Search, probes: Sequence[Probe]) -> list[list[int]]:
    """Return the places of hypotheses that no probe can tell apart."""
    groups: list[list[int]] = []
    skipped = _skipped(probes)
    for place, hypothesis in enumerate(search.hypotheses):
        # Between h-1 and h only a verdict on number h-1 decides.
        if not groups or hypothesis - 1 not in skipped:
            groups.append([])
        groups[-1].append(place)
    return groups


@lru_cache(maxsize=1_024)
def _settled_at(search: Search, probes: tuple[Probe, ...]) -> int | None:
    """Return after how many probes independent errors would make the search sure, if they do."""
    if not search.estimates or search.states_least or not probes:
        return None
    if (before := _settled_at(search, probes[:-1])) is not None:
        return before
    plain = _weighed(search, probes).plain
    masses = (math.fsum(plain[place] for place in group) for group in _groups(search, probes))
    return len(probes) if max(masses) >= search.confidence else None


def _weighed(search: Search, probes: Sequence[Probe]) -> Weighed:
    bad, good = ([0] * (search.suspects + 1) for _ in range(2))
    for number, verdict in probes:
        if verdict != "skip":
            (bad if verdict == "bad" else good)[number] += 1
    return weigh(
        rules=search.rules,
        error=search.error if search.rules == 2 else 0.0,
        confidence=search.confidence,
        hypotheses=search.hypotheses,
        bad=tuple(bad),
        good=tuple(good),
    )


def _told(search: Search, probes: Sequence[Probe]) -> dict[int, float]:
    """Return what the next verdict tells, in bits, of each number that can be tested."""
    skipped = _skipped(probes)
    if search.estimates:
        weighed, settled = _weighed(search, probes), _settled_at(search, tuple(probes))
        bits = weighed.plain_information if settled is None else weighed.information
        # Tie-breaking must not hang on the last bits of a sum.
        return {at: round(float(each), 9) for at, each in enumerate(bits) if at not in skipped}
    sums = accumulate(posterior(search, probes))  # with what probability each number is bad
    return {
        number: _information(bad, search.error)
        for number, bad in zip(search.hypotheses, sums, strict=True)
        if number <= search.suspects and number not in skipped
    }


def _best(worths: Mapping[int, float]) -> tuple[int | None, float]:
    """Return the number that is worth most, the first of several, and what it is worth."""
    best, most = None, 0.0
    for number, worth in worths.items():
        if worth > most + 1e-12:
            best, most = number, worth
    return best, most


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
