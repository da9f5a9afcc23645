"""The tables of a comparison: means, paired differences with intervals, wins; what is won back.

What a fault costs is measured under the policy `nothing`, beside its healthy twin: the condition
`healthy` with the same seed. recovered = (policy - nothing) / (healthy - nothing), of means over
seeds.

Source: Student 1908 (paired t interval); Bonferroni (a family of intervals); Cochran 1977, Sampling
Techniques, 6.4 (the variance of a ratio of means).
I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any

from aggregates.campaign import PROCESS
from judge.curation.intervals import student_quantile
from ledger.wording import counted
from policies.deciding.nothing import NothingPolicy
from proctor.output.columns import Column, field, figure

HEALTHY = "healthy"  # the condition without a fault
_NOTHING = NothingPolicy.name


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
    applied: int = 0  # answers that were carried out
    refused: int = 0  # answers that could not be
    unusable: int = 0  # firings without a usable answer: each was deferred in its place


def standings(rows: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> list[Standing]:
    """Return a row for each policy, from the view comparison_cells.

    Intervals are 95% for all policies together (Bonferroni), over pairs of the same condition and
    seed. With fewer than two pairs there is none. A policy without cells has no row. A cell that
    does not fit its run is left out.
    """
    by_cell = {(row["policy"], row["condition"], row["seed"]): row for row in fitting(rows)}
    first = policies[0]
    return [
        _standing(policy, first, by_cell, comparisons=max(1, len(policies) - 1))
        for policy in policies
        if any(key[0] == policy for key in by_cell)
    ]


def fitting(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells that figures are made of: their runs are what the comparison says."""
    return [row for row in rows if row["fits"]]


def told_difference(
    mean: float | None, low: float | None, high: float | None, *, digits: int = 3
) -> str | None:
    """Return a mean difference with its interval, as far as there are any."""
    if mean is None or low is None or high is None:
        return None if mean is None else f"{mean:+.{digits}f}"
    return f"{mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def standing_columns(*, answers: bool) -> list[Column]:
    """Return the columns of a table of standings; with what became of `answers`, or without."""

    def difference(*ends: str) -> Column:
        values = attrgetter(*ends)
        return figure("difference", lambda row: told_difference(*values(row)))

    return [
        field("policy"),
        figure("runs", "cells"),
        figure("failed"),
        *([field("applied", _applied)] if answers else []),
        figure("test accuracy", "accuracy"),
        difference("gain", "low", "high"),
        figure("wins/ties", _won),
        figure("process score", "process"),
        difference("process_gain", "process_low", "process_high"),
        field("exercised", lambda row: f"{row.exercised} of {row.cells}"),
    ]


def _applied(row: Standing) -> str:
    return f"{row.applied} of {row.applied + row.refused + row.unusable}"


def _won(row: Standing) -> str | None:
    return None if row.wins is None else f"{row.wins}/{row.ties}"


def told_draws(draws: Sequence[Mapping[str, Any]], comparison: str) -> str:
    """Return a sentence on further runs that asked the same as the cells, from comparison_draws."""
    further = [row for row in draws if not row["counted"]]
    own = {row["run_id"] for row in further if row["made_by"] == comparison}
    others = {row["run_id"] for row in further if row["made_by"] not in (comparison, None)}
    alone = {row["run_id"] for row in further if row["made_by"] is None}
    told = []
    if own:
        told.append(f"{counted(len(own), 'run')} of this comparison, cut off or under way")
    if others:
        made = len({row["made_by"] for row in further} - {comparison, None})
        told.append(f"{counted(len(others), 'run')} of {counted(made, 'other comparison')}")
    if alone:
        told.append(f"{counted(len(alone), 'run')} outside comparisons")
    if not told:
        return "The ledger has no other run with the same policy, condition and seed."
    return (
        "The ledger has further runs with the same policy, condition and seed, which are in no "
        f"figure here: {'; '.join(told)}."
    )


def told_attempts(draws: Sequence[Mapping[str, Any]], campaign: str) -> str:
    """Return a sentence on further runs that ask the same as a campaign, from campaign_draws."""
    others = [row for row in draws if row["made_by"] not in (campaign, None)]
    claims = [row for row in draws if row["made_by"] is None and row["says_so"]]
    alone = [row for row in draws if row["made_by"] is None and not row["says_so"]]
    told = []
    if others:
        made = len({row["made_by"] for row in others})
        told.append(f"{counted(len(others), 'run')} of {counted(made, 'other campaign')}")
    if alone:
        told.append(f"{counted(len(alone), 'run')} outside campaigns")
    if claims:
        told.append(
            f"{counted(len(claims), 'run')} recorded as of this campaign, which names "
            f"{'it' if len(claims) == 1 else 'them'} as no attempt"
        )
    if not told:
        return "The ledger has no other run with the same policy, configuration and seed."
    return (
        "The ledger has further runs with the same policy, configuration and seed, which have no "
        f"place here: {'; '.join(told)}."
    )


def told_ranking(by: str, rests: str = "") -> str:
    """Return in which order the two axes decide; `rests` says what the accuracy rests on."""
    axes = ["process score", f"validation accuracy{rests}"]
    first, then = axes if by == PROCESS else reversed(axes)
    return f"{first}, then by {then}"


def told_axes(table: Sequence[Standing]) -> str:
    """Return which policies of a comparison are the best on each axis, without an order of both."""
    told = []
    for name, value in (("test accuracy", "accuracy"), ("process score", "process")):
        best = max(getattr(each, value) for each in table)
        policies = [each.policy for each in table if getattr(each, value) == best]
        told.append(f"best {name}: {', '.join(policies)} ({best:.3f})")
    return f"Policies are in the order given, and neither axis goes first; {'; '.join(told)}."


def told_winner(table: Sequence[Standing]) -> str:
    """Return which policy of a comparison won on test accuracy, by how much, and how sure it is."""
    if len(table) < 2 or any(each.gain is None for each in table[1:]):
        return "Too few pairs of runs are finished to say which policy won."
    first, *others = table
    best = max(others, key=lambda each: each.gain or 0.0)
    gain, low, high = best.gain or 0.0, best.low, best.high
    by = told_difference(gain, low, high)
    pairs = counted((best.wins or 0) + (best.ties or 0) + _losses(best), "pair")
    won = f"it was better in {best.wins} of {pairs}"
    if low is None or high is None:
        return (
            f"Nobody has won yet: “{best.policy}” differs from “{first.policy}” by {by} in test "
            "accuracy, and one pair says nothing of chance."
        )
    sure = "with 95% confidence" if len(others) == 1 else "with 95% confidence for all policies"
    if low > 0:
        told = f"“{best.policy}” won against “{first.policy}” {sure}: test accuracy {by}; {won}."
    elif all(each.high is not None and each.high < 0 for each in others):
        told = (
            f"“{first.policy}” won {sure}: the next, “{best.policy}”, has a test accuracy that "
            f"differs by {by}."
        )
    else:
        told = (
            f"Nobody won: no policy is shown to be better than “{first.policy}”; the nearest, "
            f"“{best.policy}”, differs by {by} in test accuracy, and {won}."
        )
    return told


def _losses(row: Standing) -> int:
    return row.cells - (row.wins or 0) - (row.ties or 0)


def told_better(ranked: Sequence[tuple[int, float | None, float | None]], by: str) -> str:
    """Return which attempt is better than the best one on the axis that decides later, or ''.

    Attempts are in the order of their places: number, process score, validation accuracy.
    """
    name, axis = ("validation accuracy", 2) if by == PROCESS else ("process score", 1)
    if not ranked:
        return ""
    values = [math.nan if each[axis] is None else float(each[axis] or 0) for each in ranked]
    best = max(range(len(ranked)), key=lambda place: (values[place] > values[0], values[place]))
    if not values[best] > values[0]:
        return ""
    return (
        f"Attempt {ranked[best][0]} has a higher {name} ({values[best]:.3f}) than attempt "
        f"{ranked[0][0]} in the first place ({values[0]:.3f})."
    )


def told_code(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence if the cells were made by several versions of the program, else ''."""
    versions = len({row["code"] for row in fitting(rows)} - {None})
    if versions < 2:
        return ""
    return f"The runs were made with {versions} versions of the program; `code` in SQL tells which."


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
    gains = [accuracy_of(mine) - accuracy_of(theirs) for mine, theirs in pairs]
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
        accuracy=fmean(map(accuracy_of, own.values())),
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
        applied=sum(row.get("applied") or 0 for row in own.values()),
        refused=sum(row.get("refused") or 0 for row in own.values()),
        unusable=sum(row.get("unusable") or 0 for row in own.values()),
    )


def accuracy_of(row: Mapping[str, Any]) -> float:
    """Return a cell's test accuracy; 0 for one that failed."""
    return 0.0 if row["problem"] is not None else float(row["test_accuracy"] or 0.0)


def _process(row: Mapping[str, Any]) -> float:
    return 0.0 if row["problem"] is not None else float(row["process_score"] or 0.0)


def paired_interval(
    differences: Sequence[float], level: float = 0.95, *, comparisons: int = 1
) -> tuple[float, float]:
    """Return Student's confidence interval for the mean of paired differences.

    With `comparisons` intervals made like this, all of them cover their means with a probability
    of at least `level` (Bonferroni's correction, whatever the dependence between them). Two or
    more differences are needed: a spread cannot be estimated from one.
    """
    inside = 1 - (1 - level) / comparisons
    spread = stdev(differences) / math.sqrt(len(differences))
    half = student_quantile(inside, len(differences) - 1) * spread
    return fmean(differences) - half, fmean(differences) + half


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
