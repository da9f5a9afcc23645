"""What the page of a comparison shows: figures, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from operator import attrgetter
from typing import Any

from proctor.output.columns import field, fields, figure, figures
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals, strip
from proctor.pages.rendering import object_of
from proctor.reports.tables import RUN, Data, of_several_runs, table, why_not
from proctor.runs.standings import (
    fitting,
    standing_columns,
    standings,
    told_axes,
    told_code,
    told_draws,
    told_winner,
)

_MEASURES = {  # of a cell -> title; of a standing, the difference and the ends of its interval
    "test_accuracy": ("Test accuracy", attrgetter("gain", "low", "high")),
    "process_score": (
        "Process score",
        attrgetter("process_gain", "process_low", "process_high"),
    ),
}


def _policies(data: Data) -> list[str]:
    """Return the names of the policies, as they were given: the first is the base."""
    told = object_of(data["comparison"][0]["policies"])
    names = [str(each.get("name")) for each in told if isinstance(each, dict)]
    return list(dict.fromkeys([*names, *(str(row["policy"]) for row in data["cells"])]))


def comparison_charts(data: Data) -> list[Chart]:
    """Return the charts: differences from the first policy, then each condition's runs."""
    policies = _policies(data)
    cells = fitting(data["cells"])
    table = standings(cells, policies) if cells else []
    found = []
    for value, (title, difference) in _MEASURES.items():
        rows = [(each.policy, *difference(each)) for each in table]
        if rows := [row for row in rows if row[1] is not None]:
            found.append(
                intervals(
                    f"{value.replace('_', '-')}-differences",
                    f"{title}: difference from “{policies[0]}”",
                    rows=rows,
                    unit=title.lower(),
                    caption="All conditions together. The line is the 95% interval; if it crosses "
                    "zero, the runs do not show which is better.",
                )
            )
    for place, condition in enumerate(_conditions(data), start=1):
        for value, (title, _) in _MEASURES.items():
            found.append(
                strip(
                    f"{value.replace('_', '-')}-{place}",
                    f"{title}, condition {condition}",
                    rows={
                        policy: [
                            row[value]
                            for row in cells
                            if (str(row["condition"]), str(row["policy"])) == (condition, policy)
                        ]
                        for policy in policies
                    },
                    unit=title.lower(),
                )
            )
    return found


def _conditions(data: Data) -> list[str]:
    """Return the conditions with finished runs that fit."""
    return list(dict.fromkeys(str(row["condition"]) for row in fitting(data["cells"])))


_STANDINGS = standing_columns(answers=False)  # a report does not rest on them
_CELL = [*fields("condition", "policy"), figure("seed"), RUN]
_CELLS = [
    *_CELL,
    field("ended", "state"),
    *figures("test accuracy", "process score"),
    *fields("exercised", "problem"),
    field("does not fit", why_not),
]
_DRAWS = [*_CELL, field("comparison", "made_by"), field("ended", "end_reason")]


def comparison_values(data: Data) -> dict[str, Any]:
    """Return what the template `comparison.html` shows."""
    (comparison,) = data["comparison"]
    names, cells = _policies(data), data["cells"]
    fit = fitting(cells)
    drawn = comparison_charts(data)
    both = standings(cells, names) if drawn else []
    # With one policy there is nothing to compare, and with two charts begin that do.
    differences = drawn[:2] if len(names) > 1 else []
    of_conditions = drawn[len(differences) :]
    return {
        "heading": f"Comparison {comparison['comparison_id'][:8]}",
        **{name: len(object_of(comparison[name])) for name in ("policies", "conditions", "seeds")},
        "base_policy": names[0],
        "winner": told_winner(both) if len(names) > 1 else "",
        "ended": comparison["ended_idx"] is not None,
        "unfit": len(cells) - len(fit),
        "failed": sum(row["problem"] is not None for row in fit),
        "differences": differences,
        "standings": table("All conditions together", _STANDINGS, both),
        "axes": told_axes(both) if both else "",
        "results": [
            (
                of_conditions[2 * place : 2 * place + 2],
                table(
                    f"Condition {condition}",
                    _STANDINGS,
                    standings([row for row in cells if str(row["condition"]) == condition], names),
                ),
            )
            for place, condition in enumerate(_conditions(data))
        ],
        "cells": table("A run for each policy, condition and seed", _CELLS, cells),
        "notes": [told_code(fit), told_draws(data["draws"], comparison["comparison_id"])],
        "draws": table(
            "Further runs with the same policy, condition and seed", _DRAWS, data["draws"]
        ),
        **of_several_runs(
            data, comparison, policies="Policies", conditions="Conditions", seeds="Seeds"
        ),
    }
