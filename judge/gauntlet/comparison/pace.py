"""Whether answers take longer: the times of both arms, where both succeed or both fail.

Each pair counts as log2(ratio) - log2(limit), clipped to -1 and 1: its mean at the limit is 0,
whatever disturbs both arms alike. Tasks count alike: of each, as many pairs
as there are of the one with the fewest.

Source: docs/reference/gauntlet.md, "The calibrated gate".
I/O: none.  Units: seconds; e-values as natural logarithms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from judge.gauntlet.comparison.claims import Pair
from judge.gauntlet.comparison.e_values import ComparisonSettings, log_e_of
from judge.gauntlet.tasks.benchmark import TaskResult

PACES: Mapping[str, Callable[[TaskResult], float | None]] = {
    "time": attrgetter("seconds"),  # a thread that waits takes no processor
    "processor time": attrgetter("cpu_seconds"),
}


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What the pairs say of one of PACES."""

    counts: Mapping[str, int]  # task -> pairs that count; tasks without any are left out
    ratio: float  # geometric mean of the candidate's time over the base's
    slower: float  # log e-value, that the tasks together are above the limit
    kept: float  # log e-value, that they are below
    slow: tuple[str, ...]  # tasks that are shown to be above it, each by itself

    @property
    def rounds(self) -> int:
        """How many pairs of each task count."""
        return min(self.counts.values(), default=0)


def pace_of(
    pairs: Mapping[str, Sequence[Pair]],
    seconds: Callable[[TaskResult], float | None],
    *,
    settings: ComparisonSettings,
) -> Pace:
    """Weigh the times of all tasks."""
    limit = float(np.log2(1.0 + settings.slower))
    ratios = {task: found for task, each in pairs.items() if (found := _ratios(each, seconds))}
    beyond = {
        task: [max(-1.0, min(1.0, each - limit)) for each in found]
        for task, found in ratios.items()
    }
    counts = {task: len(each) for task, each in beyond.items()}
    rounds = min(counts.values(), default=0)
    together = [one for each in beyond.values() for one in each[:rounds]]
    alone = -np.log(settings.worse / len(PACES) / max(1, len(beyond)))
    return Pace(
        counts=counts,
        ratio=float(2.0 ** np.mean([np.mean(each) for each in ratios.values()])) if ratios else 1.0,
        slower=log_e_of(together),
        kept=log_e_of([-each for each in together]),
        slow=tuple(task for task, each in beyond.items() if log_e_of(each) >= alone),
    )


def _ratios(pairs: Sequence[Pair], seconds: Callable[[TaskResult], float | None]) -> list[float]:
    """Return the logarithms; who gives up early is not faster, so both succeed or both fail."""
    times = [
        (seconds(pair.base), seconds(pair.candidate))
        for pair in pairs
        if pair.base.success == pair.candidate.success
    ]
    return [float(np.log2(c / b)) for b, c in times if b and c]
