"""What the page of a comparison says: sections of sentences, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from operator import attrgetter
from typing import Any

from ledger.wording import counted
from proctor.output.columns import field, fields, figure, figures
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals, strip
from proctor.reports.section_parts import (
    RUN,
    Data,
    cost_section,
    note_part,
    pair_part,
    settings_section,
    table_part,
    unfit_part,
    violations_section,
    why_not,
)
from proctor.reports.values import object_of, tile
from proctor.runs.standings import (
    fitting,
    standing_columns,
    standings,
    told_axes,
    told_code,
    told_draws,
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
                    rows=[row for row in cells if str(row["condition"]) == condition],
                    labels=policies,
                    label="policy",
                    value=value,
                    unit=title.lower(),
                    caption="A dot for each seed, the mean as a line down.",
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
    """Return what the template `sections.html` shows of a comparison."""
    (comparison,) = data["comparison"]
    policies, conditions = object_of(comparison["policies"]), object_of(comparison["conditions"])
    seeds = object_of(comparison["seeds"])
    planned = len(policies) * len(conditions) * len(seeds)
    drawn = comparison_charts(data)
    names = _policies(data)
    wide = len(names) > 1 and bool(drawn)  # there are differences
    results: list[Any] = []
    if drawn:
        table = standings(data["cells"], names)
        results.append(table_part("All conditions together", _STANDINGS, table))
        results.append(note_part(told_axes(table)))
    if wide:
        results.insert(0, pair_part(drawn[:2]))
    of_conditions = drawn[2:] if wide else drawn
    for place, condition in enumerate(_conditions(data)):
        results.append(pair_part(of_conditions[2 * place : 2 * place + 2]))
        if len(conditions) > 1:
            rows = [row for row in data["cells"] if str(row["condition"]) == condition]
            table = standings(rows, names)
            results.append(table_part(f"Condition {condition}", _STANDINGS, table))
    fit = fitting(data["cells"])
    unfit = len(data["cells"]) - len(fit)
    parts = [
        *unfit_part(unfit, "run", "No figure or chart contains it."),
        table_part("A run for each policy, condition and seed", _CELLS, data["cells"]),
        *map(note_part, filter(None, [told_code(fit)])),
        note_part(told_draws(data["draws"], comparison["comparison_id"])),
    ]
    if data["draws"]:
        further = "Further runs with the same policy, condition and seed"
        parts.append(table_part(further, _DRAWS, data["draws"]))
    ended = comparison["ended_idx"] is not None
    return {
        "heading": f"Comparison {comparison['comparison_id'][:8]}",
        "sentence": f"{counted(len(policies), 'policy')} decided in the same trainings, under "
        f"{counted(len(conditions), 'condition')} with {counted(len(seeds), 'seed')} each. A seed "
        "decides the first weights and the order of the examples, so runs with the same seed and "
        "condition can be compared one by one. The judge measured each run on examples that the "
        "training never saw.",
        "tiles": [
            tile(
                "Policies",
                len(policies),
                f"the other{'s are' if len(policies) > 2 else ' is'} compared with “{names[0]}”",
            ),
            tile("Conditions", len(conditions), f"{counted(len(seeds), 'seed')} each"),
            tile(
                "Runs finished",
                f"{len(data['cells'])} of {planned}",
                ("the comparison has ended" if ended else "the comparison is still running")
                + (f"; {unfit} not counted: see Runs" if unfit else ""),
                "good" if ended else "warn",
            ),
            tile(
                "Failed",
                sum(row["problem"] is not None for row in fit),
                "runs without a usable result: both scores count as 0",
            ),
        ],
        "sections": [
            (
                "Results",
                "results",
                f"A difference is from “{names[0]}” with the same condition and seed. Behind it is "
                "its 95% interval, for all policies together. In a run that is not exercised, too "
                "little had to be decided for its process score to mean much."
                if drawn
                else "No run is finished.",
                results,
            ),
            ("Runs", "runs", "", parts),
            violations_section(data),
            cost_section(data),
            settings_section(comparison, "policies", "conditions", "seeds"),
        ],
    }
