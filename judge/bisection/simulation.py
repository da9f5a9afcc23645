"""Simulated searches: how often they are right, what they state, and how many probes they take.

Source: docs/explanation/bisection-errors.md.
I/O: none.  Units: probes.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from judge.bisection.search import Probe, Search, next_probe, standing
from judge.gauntlet.comparison.simulation import Table, percent

__all__ = ["Errors", "Scale", "Simulated", "simulate", "simulate_one", "tables"]


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How verdicts go wrong: a sticky checkpoint repeats its first verdict in so many probes."""

    rate: float = 0.0
    sticky: float = 0.0  # share of the checkpoints
    repeats: float = 1.0  # share of a sticky one's probes

    def __str__(self) -> str:
        if self.sticky == 0.0:
            return "independent"
        probes = "" if self.repeats == 1.0 else f", in {self.repeats:.0%} of their probes"
        return f"{self.sticky:.0%} of checkpoints repeat theirs{probes}"


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What came of many searches."""

    trials: int
    right: float  # share in which the culprit was among the suspects that were named
    claimed: float  # mean of the probability that was stated of them
    single: float  # share that named one suspect
    single_right: float  # of these, the share that was right
    named: float  # suspects named, on average
    probes: float  # on average
    most_probes: int


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is simulated."""

    trials: int = 200
    suspects: tuple[int, ...] = (32, 200)
    seed: int = 0


GIVEN = (
    (0.05, Errors(rate=0.05)),
    (0.1, Errors(rate=0.1)),
    (0.2, Errors(rate=0.2)),
    (0.3, Errors(rate=0.3)),
    (0.05, Errors(rate=0.2)),
    (0.1, Errors(rate=0.2)),
    (0.1, Errors(rate=0.3)),
    (0.2, Errors(rate=0.05)),
    (0.2, Errors(rate=0.2, sticky=0.25)),
    (0.2, Errors(rate=0.2, sticky=0.5)),
    (0.2, Errors(rate=0.2, sticky=1.0)),
    (0.2, Errors(rate=0.2, sticky=1.0, repeats=0.5)),
    (0.1, Errors(rate=0.2, sticky=0.5)),
    (0.1, Errors(rate=0.2, sticky=1.0)),
    (0.1, Errors(rate=0.2, sticky=0.5, repeats=0.5)),
)
"""The rate that a search is given, and the errors of its verdicts."""


def tables(scale: Scale | None = None) -> Iterator[Table]:
    """Yield one table for each number of suspects; each row has random numbers of its own."""
    scale = scale or Scale()
    for suspects in scale.suspects:
        rows = []
        for number, (given, errors) in enumerate(GIVEN):
            found, before = (
                simulate(
                    Search(suspects=suspects, error=given, rules=rules),
                    errors,
                    trials=scale.trials,
                    seed=scale.seed * 1_000_003 + number,
                )
                for rules in (2, 1)
            )
            rows.append(
                {
                    "rate given": f"{given:.0%}",
                    "true rate": f"{errors.rate:.0%}",
                    "errors": str(errors),
                    "right": percent(found.right),
                    "stated": percent(found.claimed),
                    "one suspect named": f"{found.single:.0%}",
                    "suspects named": f"{found.named:.1f}",
                    "probes (mean, most)": f"{found.probes:.0f}, {found.most_probes}",
                    "rules 1: right": percent(before.right),
                    "rules 1: stated": percent(before.claimed),
                    "rules 1: probes": f"{before.probes:.0f}",
                }
            )
        yield Table.of(f"{scale.trials} searches over {suspects} suspects, confidence 0.95", rows)


def simulate(search: Search, errors: Errors, *, trials: int, seed: int) -> Simulated:
    """Search for culprits drawn evenly."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    right, claimed, single, single_right = 0, 0.0, 0, 0
    counts, named = [], 0
    for _ in range(trials):
        culprit = rng.randint(1, search.suspects)
        probes = simulate_one(search, culprit, errors, rng=rng)
        found = standing(search, probes)
        is_right = culprit in found.likely
        right += is_right
        claimed += found.probability
        single += len(found.likely) == 1
        single_right += is_right and len(found.likely) == 1
        named += len(found.likely)
        counts.append(len(probes))
    return Simulated(
        trials=trials,
        right=right / trials,
        claimed=claimed / trials,
        single=single / trials,
        single_right=single_right / single if single else 1.0,
        named=named / trials,
        probes=sum(counts) / trials,
        most_probes=max(counts),
    )


def simulate_one(
    search: Search,
    culprit: int,
    errors: Errors | None = None,
    *,
    rng: random.Random | None = None,
    untestable: Collection[int] = (),
) -> list[Probe]:
    """Return the probes of one search, to its end."""
    errors, rng = errors or Errors(), rng or random.Random(0)  # noqa: S311 - a simulation
    sticky = [rng.random() < errors.sticky for _ in range(search.suspects + 1)]
    first = [rng.random() < errors.rate for _ in sticky]
    probes: list[Probe] = []
    while (number := next_probe(search, probes)) is not None:
        if standing(search, probes).over:
            break
        if number in untestable:
            probes.append((number, "skip"))
            continue
        repeats = sticky[number] and rng.random() < errors.repeats
        wrong = first[number] if repeats else rng.random() < errors.rate
        probes.append((number, "bad" if (number >= culprit) != wrong else "good"))
    return probes
