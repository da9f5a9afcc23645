"""The table of a comparison: means, paired differences with intervals, wins.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from proctor.studies.statistics import paired_interval


@dataclass(frozen=True)
class Standing:
    """A policy's row: means over its cells, and its differences from the first policy's cells."""

    policy: str
    cells: int
    failed: int  # counted with an accuracy and a process score of 0
    accuracy: float  # mean test accuracy
    process: float  # mean process score
    firings: float  # mean number
    exercised: int  # runs whose process score was put to the test
    gain: float | None  # mean difference in test accuracy; None for the first policy
    low: float | None  # ends of its interval
    high: float | None
    process_gain: float | None
    process_low: float | None
    process_high: float | None
    wins: int | None  # cells with a higher test accuracy than the first policy's
    ties: int | None


def standings(rows: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> list[Standing]:
    """Return a row for each policy, from the view comparison_cells.

    Intervals are 95% for all policies together (Bonferroni), over pairs of the same condition and
    seed. With fewer than two pairs there is none.
    """
    by_cell = {(row["policy"], row["condition"], row["seed"]): row for row in rows}
    first = policies[0]
    return [
        _standing(policy, first, by_cell, comparisons=max(1, len(policies) - 1))
        for policy in policies
    ]


def _standing(
    policy: str,
    first: str,
    by_cell: Mapping[tuple[str, str, int], Mapping[str, Any]],
    *,
    comparisons: int,
) -> Standing:
    own = {key[1:]: row for key, row in by_cell.items() if key[0] == policy}
    base = {key[1:]: row for key, row in by_cell.items() if key[0] == first}
    pairs = [(own[key], base[key]) for key in own if key in base]
    gains = [_accuracy(mine) - _accuracy(theirs) for mine, theirs in pairs]
    process = [_process(mine) - _process(theirs) for mine, theirs in pairs]
    compared = policy != first
    spread = len(gains) > 1 and compared
    low, high = paired_interval(gains, comparisons=comparisons) if spread else (None, None)
    process_low, process_high = (
        paired_interval(process, comparisons=comparisons) if spread else (None, None)
    )
    return Standing(
        policy=policy,
        cells=len(own),
        failed=sum(row["problem"] is not None for row in own.values()),
        accuracy=fmean(map(_accuracy, own.values())),
        process=fmean(map(_process, own.values())),
        firings=fmean(row["firings"] or 0 for row in own.values()),
        exercised=sum(bool(row["exercised"]) for row in own.values()),
        gain=fmean(gains) if compared and gains else None,
        low=low,
        high=high,
        process_gain=fmean(process) if compared and process else None,
        process_low=process_low,
        process_high=process_high,
        wins=sum(gain > 0 for gain in gains) if compared else None,
        ties=sum(gain == 0 for gain in gains) if compared else None,
    )


def _accuracy(row: Mapping[str, Any]) -> float:
    return 0.0 if row["problem"] is not None else float(row["test_accuracy"] or 0.0)


def _process(row: Mapping[str, Any]) -> float:
    return 0.0 if row["problem"] is not None else float(row["process_score"] or 0.0)
