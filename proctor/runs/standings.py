"""The tables of a comparison: means, paired differences with intervals, wins; what is won back.

Rows are policies; where one policy decided, they are the conditions of a sweep.

What a fault costs is measured under the policy `nothing`, beside its healthy twin: the condition
`healthy` with the same seed. recovered = (policy - nothing) / (healthy - nothing), of means over
seeds.

Source: Student 1908 (paired t interval); Bonferroni (a family of intervals); Cochran 1977, Sampling
Techniques, 6.4 (the variance of a ratio of means).
I/O: none.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from aggregates.campaign import PROCESS
from judge.curation.intervals import student_quantile
from ledger.wording import counted
from policies.deciding.nothing import NothingPolicy
from proctor.output.columns import Column, Shows, field, figure

HEALTHY = "healthy"  # the condition without a fault
_NOTHING = NothingPolicy.name
By = Literal["policy", "condition"]  # what the rows of a table are


class Metric(NamedTuple):
    """What the runs of a comparison are compared by, on the part that only the judge reads."""

    name: str = "accuracy"
    better: str = "higher"

    def of(self, row: Mapping[str, Any]) -> float | None:
        """Return its value in a cell; a failed run has an accuracy of 0, and no other metric."""
        found = (row.get("test_metrics") or {}).get(self.name)
        if self == ACCURACY:
            found = row["test_accuracy"] if found is None else found
            return 0.0 if row["problem"] is not None else float(found or 0.0)
        known = row["problem"] is None and isinstance(found, float) and math.isfinite(found)
        return found if known else None

    def best(self, values: Iterable[float]) -> float:
        """Return the best of these values."""
        return min(values) if self.better == "lower" else max(values)

    def shown(self, value: float, *, sign: str = "") -> str:
        """Return a value of it, or a difference, for people."""
        return format(value, f"{sign}.3f" if self.name == "accuracy" else f"{sign}.4g")


ACCURACY = Metric()


@dataclass(frozen=True)
class Standing:
    """A row: means over its cells, and its differences from the first row's cells."""

    policy: str
    cells: int
    failed: int  # without a result: accuracy and process score of 0, and no other metric
    accuracy: float | None  # mean test accuracy; None: the runs are compared by another metric
    process: float  # mean process score
    firings: float  # mean number
    exercised: int  # runs whose process score was put to the test
    gain: float | None  # mean difference in the metric; None for the first row
    low: float | None  # ends of its interval
    high: float | None
    process_gain: float | None
    process_low: float | None
    process_high: float | None
    wins: int | None  # cells with a better value than the first row's
    ties: int | None
    applied: int = 0  # answers that were carried out
    refused: int = 0  # answers that could not be
    unusable: int = 0  # firings without a usable answer: each was deferred in its place
    condition: str | None = None  # of a sweep; None: all of them
    mean: float | None = None  # of the metric; None: no run has a value
    mean_low: float | None = None  # ends of its 95% interval, for this row alone
    mean_high: float | None = None
    best: float | None = None  # best value
    best_seed: int | None = None  # its seed


def standings(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    *,
    by: By = "policy",
    metric: Metric = ACCURACY,
) -> list[Standing]:
    """Return a row for each policy or condition, from the view comparison_cells.

    Intervals of differences are 95% for all rows together (Bonferroni), over pairs with the same
    seed and, of policies, condition. With fewer than two pairs there is none. A name without cells
    has no row. A cell that does not fit its run is left out.
    """
    other = "condition" if by == "policy" else "policy"
    by_cell = {(row[by], row[other], row["seed"]): row for row in fitting(rows)}
    return [
        _standing(name, names, by_cell, by=by, metric=metric)
        for name in names
        if any(key[0] == name for key in by_cell)
    ]


def fitting(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells that figures are made of: their runs are what the comparison says."""
    return [row for row in rows if row["fits"]]


def told_difference(
    mean: float | None,
    low: float | None,
    high: float | None,
    *,
    digits: int = 3,
    metric: Metric | None = None,
) -> str | None:
    """Return a mean difference with its interval, as far as there are any."""
    if mean is None:
        return None
    told, *ends = (
        f"{value:+.{digits}f}" if metric is None else metric.shown(value, sign="+")
        for value in (mean, low, high)
        if value is not None
    )
    return f"{told} ({ends[0]} to {ends[1]})" if len(ends) == 2 else told


def standing_columns(
    *, answers: bool, by: By = "policy", metric: Metric = ACCURACY
) -> list[Column]:
    """Return the columns of a table of standings; with what became of `answers`, or without."""

    def told(value: str) -> Shows:
        values = attrgetter(value)
        return lambda row: None if values(row) is None else metric.shown(values(row))

    def difference(*ends: str, of: Metric = metric) -> Column:
        values = attrgetter(*ends)
        return figure("difference", lambda row: told_difference(*values(row), metric=of))

    sweep = [
        figure("95% interval", lambda row: _told_interval(row, metric)),
        figure("best", told("best")),
        figure("of seed", "best_seed"),
    ]
    return [
        field(by),
        figure("runs", "cells"),
        figure("failed"),
        *([field("applied", _applied)] if answers else []),
        figure(f"test {metric.name}", told("mean")),
        *(sweep if by == "condition" else []),
        difference("gain", "low", "high"),
        figure("wins/ties", _won),
        figure("process score", "process"),
        *(
            [difference("process_gain", "process_low", "process_high", of=ACCURACY)]
            if by == "policy"
            else []
        ),
        field("exercised", lambda row: f"{row.exercised} of {row.cells}"),
    ]


def _told_interval(row: Standing, metric: Metric) -> str | None:
    if row.mean_low is None or row.mean_high is None:
        return None
    return f"{metric.shown(row.mean_low)} to {metric.shown(row.mean_high)}"


def _applied(row: Standing) -> str:
    lost = [(row.refused, "refused"), (row.unusable, "unusable")]
    told = ", ".join(f"{many} {what}" for many, what in lost if many)
    total = row.applied + row.refused + row.unusable
    return f"{row.applied} of {total}" + (f" ({told})" if told else "")


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


def told_axes(table: Sequence[Standing], *, by: By = "policy", metric: Metric = ACCURACY) -> str:
    """Return which rows of a comparison are the best on each axis, without an order of both."""
    told = []
    for of, name, value in (
        (metric, f"test {metric.name}", "mean"),
        (ACCURACY, "process score", "process"),
    ):
        known = [each for each in table if getattr(each, value) is not None]
        best = of.best([getattr(each, value) for each in known]) if known else math.nan
        names = [getattr(each, by) for each in known if getattr(each, value) == best]
        told.append(f"best {name}: {', '.join(names) or 'none'} ({of.shown(best)})")
    order = "Policies" if by == "policy" else "Conditions"
    way = "" if metric.better == "higher" else f" Of {metric.name}, lower is better."
    lost = sum(each.failed for each in table)
    if metric != ACCURACY and lost:
        way += (
            f" {counted(lost, 'run')} without a finite {metric.name} {'is' if lost == 1 else 'are'}"
            " in no mean and no difference, and lost against each run that has one."
        )
    return f"{order} are in the order given, and neither axis goes first; {'; '.join(told)}.{way}"


def told_winner(table: Sequence[Standing], *, by: By = "policy", metric: Metric = ACCURACY) -> str:
    """Return which row of a comparison won, by how much in the metric, and how sure that is."""
    if len(table) < 2 or any(each.gain is None for each in table[1:]):
        return "Too few pairs of runs are finished to say which won."
    sign = -1.0 if metric.better == "lower" else 1.0
    first, *others = (f"“{getattr(each, by)}”" for each in table)
    better = [sorted(sign * (end or 0.0) for end in (each.low, each.high)) for each in table[1:]]
    place = max(range(len(others)), key=lambda at: sign * (table[1 + at].gain or 0.0))
    best, name = table[1 + place], others[place]
    differs = told_difference(best.gain, best.low, best.high, metric=metric)
    of = f"test {metric.name}"
    if best.low is None or best.high is None:
        return (
            f"Nobody has won yet: {name} differs from {first} by {differs} in {of}, and one pair "
            "says nothing of chance."
        )
    pairs = counted((best.wins or 0) + (best.ties or 0) + _losses(best), "pair")
    won = f"it was better in {best.wins} of {pairs}"
    sure = "with 95% confidence" + (" for all together" if len(others) > 1 else "")
    if better[place][0] > 0:
        return f"{name} won against {first} {sure}: {of} {differs}; {won}."
    if all(high < 0 for _, high in better):
        return f"{first} won {sure}: the next, {name}, has a {of} that differs by {differs}."
    return (
        f"Nobody won: nothing is shown to be better than {first}; the nearest, {name}, differs by "
        f"{differs} in {of}, and {won}."
    )


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
    name: str,
    names: Sequence[str],
    by_cell: Mapping[tuple[str, str, int], Mapping[str, Any]],
    *,
    by: By,
    metric: Metric,
) -> Standing:
    own = {key[1:]: row for key, row in by_cell.items() if key[0] == name}
    base = {key[1:]: row for key, row in by_cell.items() if key[0] == names[0]}
    pairs = [(own[key], base[key]) for key in own if key in base] if name != names[0] else []
    measured = [(metric.of(mine), metric.of(theirs)) for mine, theirs in pairs]
    gains = [mine - theirs for mine, theirs in measured if mine is not None and theirs is not None]
    process = [_process(mine) - _process(theirs) for mine, theirs in pairs]
    comparisons = max(1, len(names) - 1)
    low, high = _interval(gains, comparisons=comparisons)
    process_low, process_high = _interval(process, comparisons=comparisons)
    found = [(metric.of(row), row["seed"]) for row in own.values()]
    values = [value for value, _ in found if value is not None]
    of_one = len({place for place, _ in own}) == 1  # or they spread over more than seeds
    mean_low, mean_high = _interval(values if of_one else ())
    mean = fmean(values) if values else None
    best = metric.best(values) if values else None
    compared = name != names[0]
    return Standing(
        policy=next(iter(own.values()))["policy"],
        cells=len(own),
        failed=sum(row["problem"] is not None for row in own.values())
        if metric == ACCURACY
        else len(found) - len(values),
        accuracy=mean if metric.name == "accuracy" else None,
        process=fmean(map(_process, own.values())),
        firings=fmean(row["firings"] or 0 for row in own.values()),
        exercised=sum(bool(row["exercised"]) for row in own.values()),
        gain=fmean(gains) if gains else None,
        low=low,
        high=high,
        process_gain=fmean(process) if process else None,
        process_low=process_low,
        process_high=process_high,
        wins=sum(_wins(*pair, metric) for pair in measured) if compared else None,
        ties=sum(mine == theirs for mine, theirs in measured) if compared else None,
        applied=sum(row.get("applied") or 0 for row in own.values()),
        refused=sum(row.get("refused") or 0 for row in own.values()),
        unusable=sum(row.get("unusable") or 0 for row in own.values()),
        condition=name if by == "condition" else None,
        mean=mean,
        mean_low=mean_low,
        mean_high=mean_high,
        best=best,
        best_seed=next(
            (seed for value, seed in found if value is not None and value == best), None
        ),
    )


def _wins(mine: float | None, theirs: float | None, metric: Metric) -> bool:
    if mine is None or mine == theirs:
        return False
    return theirs is None or metric.best([mine, theirs]) == mine


def _interval(
    values: Sequence[float], *, comparisons: int = 1
) -> tuple[float, float] | tuple[None, None]:
    return paired_interval(values, comparisons=comparisons) if len(values) > 1 else (None, None)


def rows_of(policies: Sequence[str], conditions: Sequence[str]) -> tuple[By, list[str]]:
    """Return what the rows of a comparison's table are, and their names: of one policy, a sweep."""
    sweep = len(policies) == 1 and len(conditions) > 1
    return ("condition", [*conditions]) if sweep else ("policy", [*policies])


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
    lost: float  # of the metric, how much the fault costs where nothing is done
    share: float | None  # of it that is won back; None unless the interval of `lost` is above 0
    low: float | None  # ends of its 95% interval
    high: float | None


def recovered(
    rows: Sequence[Mapping[str, Any]],
    policies: Sequence[str],
    conditions: Sequence[str],
    *,
    metric: Metric = ACCURACY,
) -> list[Recovered]:
    """Return the rows of the view comparison_cells as shares that were won back.

    It is empty unless the comparison has the policy `nothing` and the condition `healthy`. A
    condition has no shares unless the 95% interval of its cost is above 0. A seed whose
    run under `nothing` failed is left out; a policy's own failed run counts as accuracy 0.
    """
    sign = -1.0 if metric.better == "lower" else 1.0
    cells = {
        (row["policy"], row["condition"], row["seed"]): sign * value
        for row in fitting(rows)
        if row["problem"] is None or row["policy"] != _NOTHING
        if (value := metric.of(row)) is not None
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
