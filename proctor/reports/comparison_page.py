"""What the page of a comparison shows: figures, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Self

from proctor.output.columns import field, fields, figure
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals, strip
from proctor.pages.rendering import object_of
from proctor.reports.tables import RUN, Data, of_several_runs, short, table, why_not
from proctor.runs.standings import (
    ACCURACY,
    By,
    Metric,
    Standing,
    fitting,
    rows_of,
    standing_columns,
    standings,
    told_axes,
    told_code,
    told_draws,
    told_winner,
)

_GAINS = {  # of a standing -> the difference and the ends of its interval
    "mean": attrgetter("gain", "low", "high"),
    "process": attrgetter("process_gain", "process_low", "process_high"),
}


@dataclass(frozen=True)
class _Shown:
    """What the rows of the tables are, and by which metric."""

    by: By
    names: list[str]
    metric: Metric

    @classmethod
    def of(cls, data: Data) -> Self:
        """Return it for a comparison: the metric is the one that it began with, or its runs say."""
        policies, conditions = _policies(data), _conditions(data)
        rows = (*data["comparison"], *data["cells"])
        told = next((row for row in rows if row["metric"] is not None), None)
        metric = ACCURACY if told is None else Metric(str(told["metric"]), str(told["better"]))
        return cls(*rows_of(policies, conditions), metric)

    @property
    def measures(self) -> dict[str, tuple[str, str, Callable[[Any], Any], bool]]:
        """Of a standing -> title, name of a chart, value of a cell, whether it is from 0 to 1."""
        known = self.metric == ACCURACY
        chart = "test-accuracy" if known else "test-metric"
        return {
            "mean": (f"Test {self.metric.name}", chart, self.metric.of, known),
            "process": ("Process score", "process-score", itemgetter("process_score"), True),
        }

    def parts(self, data: Data) -> dict[str, list[Any]]:
        """Return the cells that are beside each other, by condition; of a sweep, all."""
        cells, conditions = fitting(data["cells"]), _conditions(data)
        if self.by == "condition":
            return {"": cells} if cells else {}
        return {
            name: rows
            for name in conditions
            if (rows := [row for row in cells if str(row["condition"]) == name])
        }

    def table(self, rows: Sequence[Any]) -> list[Standing]:
        """Return a row for each name."""
        return standings(rows, self.names, by=self.by, metric=self.metric)


def _policies(data: Data) -> list[str]:
    """Return the names of the policies, as they were given: the first is the base."""
    told = object_of(data["comparison"][0]["policies"])
    names = [str(each.get("name")) for each in told if isinstance(each, dict)]
    return list(dict.fromkeys([*names, *(str(row["policy"]) for row in data["cells"])]))


def comparison_charts(data: Data) -> list[Chart]:
    """Return the charts: differences from the first row, then the runs beside each other."""
    shown, cells = _Shown.of(data), fitting(data["cells"])
    table = shown.table(cells) if cells else []
    together = "All conditions together. " if shown.by == "policy" else ""
    found = []
    for value, (title, chart, *_) in shown.measures.items():
        rows = [(getattr(each, shown.by), *_GAINS[value](each)) for each in table]
        if rows := [row for row in rows if row[1] is not None]:
            found.append(
                intervals(
                    f"{chart}-differences",
                    f"{title}: difference from “{shown.names[0]}”",
                    rows=rows,
                    unit=title.lower(),
                    caption=f"{together}The line is the 95% interval; if it crosses "
                    "zero, the runs do not show which is better.",
                )
            )
    for place, (condition, part) in enumerate(shown.parts(data).items(), start=1):
        for title, chart, of, share in shown.measures.values():
            found.append(
                strip(
                    f"{chart}-{place}",
                    f"{title}, condition {condition}" if condition else title,
                    rows={
                        name: [of(row) for row in part if str(row[shown.by]) == name]
                        for name in shown.names
                    },
                    unit=title.lower(),
                    share=share,
                )
            )
    return found


def _conditions(data: Data) -> list[str]:
    """Return the names of the conditions, as they were given."""
    told = [str(name) for name in object_of(data["comparison"][0]["conditions"])]
    return list(dict.fromkeys([*told, *(str(row["condition"]) for row in data["cells"])]))


def _best(both: Sequence[Standing], shown: _Shown) -> Iterator[tuple[str, str, str]]:
    """Yield a tile for each axis: what it is called, the best row of it, and its value."""
    for of, name, value in (
        (shown.metric, f"test {shown.metric.name}", "mean"),
        (ACCURACY, "process score", "process"),
    ):
        known = [each for each in both if getattr(each, value) is not None]
        best = of.best([getattr(each, value) for each in known]) if known else None
        names = [str(getattr(each, shown.by)) for each in known if getattr(each, value) == best]
        if best is not None:
            told = of.shown(best)
            yield (
                f"Best mean {name}",
                told,
                "the same in all" if len(names) == len(both) else ", ".join(names),
            )


_CELL = [*fields("condition", "policy"), figure("seed"), RUN]
_DRAWS = [
    *_CELL,
    field("comparison", lambda row: short(row["made_by"])),
    field("ended", "end_reason"),
]


def comparison_values(data: Data) -> dict[str, Any]:
    """Return what the template `comparison.html` shows."""
    (comparison,) = data["comparison"]
    cells, shown = data["cells"], _Shown.of(data)
    fit = fitting(cells)
    drawn = comparison_charts(data)
    both = shown.table(cells) if fit else []
    differences = [each for each in drawn if each.name.endswith("-differences")]
    of_conditions = drawn[len(differences) :]
    # A report does not rest on what became of answers.
    columns = standing_columns(answers=False, by=shown.by, metric=shown.metric)
    return {
        "heading": f"Comparison {comparison['comparison_id'][:8]}",
        **{name: len(object_of(comparison[name])) for name in ("policies", "conditions", "seeds")},
        "first": next(iter(shown.names), "—"),
        "by": shown.by,
        "best": [*_best(both, shown)],
        "winner": told_winner(both, by=shown.by, metric=shown.metric)
        if len(shown.names) > 1
        else "",
        "ended": comparison["ended_idx"] is not None,
        "unfit": len(cells) - len(fit),
        "failed": sum(row["problem"] is not None for row in fit),
        "differences": differences,
        "standings": table(
            "All conditions together" if shown.by == "policy" else "A row for each condition",
            columns,
            both,
        ),
        "axes": told_axes(both, by=shown.by, metric=shown.metric) if both else "",
        "results": [
            (
                of_conditions[2 * place : 2 * place + 2],
                table(f"Condition {condition}", columns, shown.table(part)),
            )
            for place, (condition, part) in enumerate(shown.parts(data).items())
        ],
        "cells": table(
            "A run for each policy, condition and seed",
            [
                *_CELL,
                field("ended", "state"),
                figure(f"test {shown.metric.name}", shown.metric.of),
                figure("process score"),
                *fields("exercised", "problem"),
                field("does not fit", why_not),
            ],
            cells,
        ),
        "notes": [told_code(fit), told_draws(data["draws"], comparison["comparison_id"])],
        "draws": table(
            "Further runs with the same policy, condition and seed", _DRAWS, data["draws"]
        ),
        **of_several_runs(
            data, comparison, policies="Policies", conditions="Conditions", seeds="Seeds"
        ),
    }
