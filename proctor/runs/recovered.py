"""How much of what a fault costs a policy wins back, in a comparison with a healthy twin.

The twin is the condition `healthy`, and what a fault costs is measured under the policy `nothing`,
both with the same seed. recovered = (policy - nothing) / (healthy - nothing), of means over seeds.

Source: Cochran 1977, Sampling Techniques, 6.4 (the variance of a ratio of means).
I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from policies.deciding.nothing import NothingPolicy
from proctor.runs.standings import accuracy_of, fitting, paired_interval

HEALTHY = "healthy"  # the condition without a fault
_NOTHING = NothingPolicy.name


@dataclass(frozen=True)
class Recovered:
    """A policy's row for one condition; 1 means as good as the healthy twin."""

    condition: str
    policy: str
    seeds: int
    lost: float  # mean test accuracy that the fault costs where nothing is done
    share: float | None  # of it that is won back; None unless the interval of `lost` is above 0
    low: float | None  # ends of its 95% interval
    high: float | None


def recovered(
    rows: Sequence[Mapping[str, Any]], policies: Sequence[str], conditions: Sequence[str]
) -> list[Recovered]:
    """Return the rows of the view comparison_cells as shares that were won back.

    It is empty unless the comparison has the policy `nothing` and the condition `healthy`. A
    condition has no shares unless the 95% interval of its cost is above 0. A seed whose
    run under `nothing` failed is left out; a policy's own failed run counts as accuracy 0.
    """
    cells = {
        (row["policy"], row["condition"], row["seed"]): accuracy_of(row)
        for row in fitting(rows)
        if row["problem"] is None or row["policy"] != _NOTHING
    }
    found = []
    for condition in conditions:
        for policy in policies:
            if policy == _NOTHING or condition == HEALTHY:
                continue
            triples = [
                (cells[policy, condition, seed], nothing, cells[_NOTHING, HEALTHY, seed])
                for (who, where, seed), nothing in cells.items()
                if (who, where) == (_NOTHING, condition)
                if (policy, condition, seed) in cells and (_NOTHING, HEALTHY, seed) in cells
            ]
            if len(triples) > 1:
                found.append(_recovered(condition, policy, triples))
    return found


def _recovered(
    condition: str, policy: str, triples: Sequence[tuple[float, float, float]]
) -> Recovered:
    gains = [own - nothing for own, nothing, _ in triples]
    losses = [healthy - nothing for _, nothing, healthy in triples]
    lost = fmean(losses)
    if paired_interval(losses)[0] <= 0.0:
        return Recovered(condition, policy, len(triples), lost, None, None, None)
    share = fmean(gains) / lost
    rest = [gain - share * loss for gain, loss in zip(gains, losses, strict=True)]
    low, high = (share + end / lost for end in paired_interval(rest))
    return Recovered(condition, policy, len(triples), lost, share, low, high)
