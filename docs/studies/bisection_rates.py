"""Simulated searches: how often they are right, what they state, and how many probes they take.

Source: docs/studies/gate.md.
I/O: none.  Units: probes.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from judge.bisection.search import Probe, Search, next_probe, standing
from studies.statistics import Table, percent

__all__ = ["ROWS", "Errors", "Scale", "Simulated", "simulate", "simulate_one", "tables"]


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How verdicts go wrong: a sticky checkpoint repeats its first verdict in so many probes."""

    rate: float = 0.0  # of false alarms; of missed faults, too, where that is not given
    missed: float | None = None
    sticky: float = 0.0  # share of the checkpoints
    repeats: float = 1.0  # share of a sticky one's probes

    def of(self, bad: bool) -> float:
        """Return the rate of wrong verdicts on a bad or a good checkpoint."""
        return self.missed if bad and self.missed is not None else self.rate

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

    trials: int = 60
    suspects: tuple[int, ...] = (20, 100)
    seed: int = 0


FLAKY = tuple(Errors(missed=missed) for missed in (0.1, 0.3, 0.5, 0.7))
"""Faults that show in 90, 70, 50 and 30% of probes; good checkpoints never fail."""
SYMMETRIC = tuple(Errors(rate=rate) for rate in (0.1, 0.2, 0.3))
STICKY = (
    Errors(rate=0.2, sticky=0.5),
    Errors(rate=0.2, sticky=1.0),
    Errors(rate=0.2, sticky=1.0, repeats=0.5),
)
MIXED = (
    Errors(rate=0.1, missed=0.4),
    Errors(rate=0.1, missed=0.4, sticky=0.25),
    Errors(missed=0.1, sticky=0.5),
    Errors(missed=0.5, sticky=0.25),
    Errors(missed=0.5, sticky=0.5),
    Errors(missed=0.7, sticky=0.5),
)
ROWS = FLAKY + SYMMETRIC + STICKY + MIXED


def tables(scale: Scale | None = None) -> Iterator[Table]:
    """Yield one table for each number of suspects; each row has random numbers of its own."""
    scale = scale or Scale()
    for suspects in scale.suspects:
        rows = []
        search = Search(suspects=suspects, error=0.2)
        for number, errors in enumerate(ROWS):
            seed = scale.seed * 1_000_003 + number
            found = simulate(search, errors, trials=scale.trials, seed=seed)
            rows.append(
                {
                    "fault shown": f"{1.0 - errors.of(True):.0%}",
                    "false alarms": f"{errors.of(False):.0%}",
                    "errors": str(errors),
                    "right": percent(found.right),
                    "stated": percent(found.claimed),
                    "one suspect named": f"{found.single:.0%}",
                    "of these right": f"{found.single_right:.0%}" if found.single else "-",
                    "suspects named": f"{found.named:.1f}",
                    "probes (mean, most)": f"{found.probes:.0f}, {found.most_probes}",
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
    first = [rng.random() < errors.of(number >= culprit) for number in range(len(sticky))]
    probes: list[Probe] = []
    while (number := next_probe(search, probes)) is not None:
        if standing(search, probes).over:
            break
        if number in untestable:
            probes.append((number, "skip"))
            continue
        repeats = sticky[number] and rng.random() < errors.repeats
        wrong = first[number] if repeats else rng.random() < errors.of(number >= culprit)
        probes.append((number, "bad" if (number >= culprit) != wrong else "good"))
    return probes
