"""Simulated searches: how often they find the right checkpoint, and how many probes they take.

I/O: none.  Units: probes.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass

from judge.bisection.search import Probe, Search, next_probe, standing

__all__ = ["Simulated", "simulate", "simulate_one"]


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What came of many searches."""

    trials: int
    right: float  # share that named the culprit, and it alone
    probes: float  # on average
    most_probes: int
    claimed: float  # mean probability at which they ended


def simulate(search: Search, *, error: float, trials: int, seed: int) -> Simulated:
    """Search for culprits drawn evenly, where verdicts are wrong with a probability of `error`."""
    rng = random.Random(seed)
    right, claimed, counts = 0, 0.0, []
    for _ in range(trials):
        culprit = rng.randint(1, search.suspects)
        probes = simulate_one(search, culprit, error=error, rng=rng)
        found = standing(search, probes)
        right += found.likely == range(culprit, culprit + 1)
        claimed += found.probability
        counts.append(len(probes))
    return Simulated(
        trials=trials,
        right=right / trials,
        probes=sum(counts) / trials,
        most_probes=max(counts),
        claimed=claimed / trials,
    )


def simulate_one(
    search: Search,
    culprit: int,
    *,
    error: float = 0.0,
    rng: random.Random | None = None,
    untestable: Collection[int] = (),
) -> list[Probe]:
    """Return the probes of one search, to its end."""
    rng = rng or random.Random(0)
    probes: list[Probe] = []
    while not standing(search, probes).over:
        number = next_probe(search, probes)
        assert number is not None  # or it would be over
        if number in untestable:
            probes.append((number, "skip"))
            continue
        wrong = rng.random() < error
        probes.append((number, "bad" if (number >= culprit) != wrong else "good"))
    return probes
