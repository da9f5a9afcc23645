"""What the page of a comparison says: sections of sentences, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Sequence
from typing import Any

from ledger.wording import counted
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals, strip
from proctor.reports.section_parts import (
    Data,
    Row,
    cost_section,
    note_part,
    run_name,
    table_part,
    violations_section,
)
from proctor.reports.values import indented, object_of, tile
from proctor.runs.standings import fitting, standings, told_code, told_draws

__all__ = ["comparison_charts", "comparison_values"]


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
    found = [
        intervals(
            f"{name.replace('_', '-')}-differences",
            f"{title}: difference from “{policies[0]}”",
            rows=rows,
            unit=title.lower(),
            caption="All conditions together. The line is the 95% interval; if it crosses zero, "
            "the runs do not show which is better.",
        )
        for name, title, rows in (
            (
                "test_accuracy",
                "Test accuracy",
                [(s.policy, s.gain, s.low, s.high) for s in table if s.gain is not None],
            ),
            (
                "process_score",
                "Process score",
                [
                    (s.policy, s.process_gain, s.process_low, s.process_high)
                    for s in table
                    if s.process_gain is not None
                ],
            ),
        )
        if rows
    ]
    for place, condition in enumerate(_conditions(data)):
        rows = [row for row in cells if str(row["condition"]) == condition]
        for value, title in (
            ("test_accuracy", "Test accuracy"),
            ("process_score", "Process score"),
        ):
            found.append(
                strip(
                    f"{value.replace('_', '-')}-{place + 1}",
                    f"{title}, condition {condition}",
                    rows=rows,
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


def _standings(caption: str, rows: Sequence[Row], policies: Sequence[str]) -> Any:
    """Return a table of policies over some cells."""
    columns = [("policy", False), ("runs", True), ("failed", True), ("test accuracy", True)]
    columns += [("difference", True), ("won/tied", True), ("process score", True)]
    columns += [("difference", True), ("exercised", False)]
    return table_part(
        caption,
        columns,
        [
            [
                each.policy,
                each.cells,
                each.failed,
                each.accuracy,
                _between(each.gain, each.low, each.high),
                None if each.wins is None else f"{each.wins}/{each.ties}",
                each.process,
                _between(each.process_gain, each.process_low, each.process_high),
                f"{each.exercised} of {each.cells}",
            ]
            for each in standings(rows, policies)
        ],
    )


def _draws(data: Data) -> Any:
    """Return the table of further runs that asked the same."""
    columns = [("condition", False), ("policy", False), ("seed", True), ("run", False)]
    columns += [("comparison", False), ("ended", False)]
    return table_part(
        "Further runs with the same policy, condition and seed",
        columns,
        [
            [
                row["condition"],
                row["policy"],
                row["seed"],
                run_name(row),
                row["made_by"],
                row["end_reason"],
            ]
            for row in data["draws"]
        ],
    )


def _between(mean: float | None, low: float | None, high: float | None) -> str | None:
    if mean is None:
        return None
    return f"{mean:+.3f}" + (f" ({low:+.3f} to {high:+.3f})" if low is not None else "")


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
        results.append(_standings("All conditions together", data["cells"], names))
    if wide:
        results.insert(0, {"kind": "pair", "charts": drawn[:2]})
    of_conditions = drawn[2:] if wide else drawn
    for place, condition in enumerate(_conditions(data)):
        results.append({"kind": "pair", "charts": of_conditions[2 * place : 2 * place + 2]})
        if len(conditions) > 1:
            rows = [row for row in data["cells"] if str(row["condition"]) == condition]
            results.append(_standings(f"Condition {condition}", rows, names))
    of_cells = [("condition", False), ("policy", False), ("seed", True), ("run", False)]
    of_cells += [("ended", False), ("test accuracy", True), ("process score", True)]
    of_cells += [("exercised", False), ("problem", False), ("does not fit", False)]
    cells = [
        [
            row["condition"],
            row["policy"],
            row["seed"],
            run_name(row),
            row["state"],
            row["test_accuracy"],
            row["process_score"],
            row["exercised"],
            row["problem"],
            "; ".join(row["why_not"]) or None,
        ]
        for row in data["cells"]
    ]
    fit = fitting(data["cells"])
    unfit = len(cells) - len(fit)
    parts: list[Any] = [table_part("A run for each policy, condition and seed", of_cells, cells)]
    if unfit:
        parts.insert(
            0,
            note_part(
                f"{counted(unfit, 'run')} {'does' if unfit == 1 else 'do'} not fit: what the run "
                "itself recorded contradicts its place here. No figure or chart contains it.",
                "bad",
            ),
        )
    parts += map(note_part, filter(None, [told_code(fit)]))
    parts.append(note_part(told_draws(data["draws"], comparison["comparison_id"])))
    if data["draws"]:
        parts.append(_draws(data))
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
                str(len(policies)),
                "",
                f"the others are compared with “{names[0]}”"
                if len(policies) > 2
                else f"the other is compared with “{names[0]}”",
            ),
            tile("Conditions", str(len(conditions)), "", f"{counted(len(seeds), 'seed')} each"),
            tile(
                "Runs finished",
                f"{len(data['cells'])} of {planned}",
                "good" if ended else "warn",
                ("the comparison has ended" if ended else "the comparison is still running")
                + (f"; {unfit} not counted: see Runs" if unfit else ""),
            ),
            tile(
                "Failed",
                str(sum(row["problem"] is not None for row in fit)),
                "",
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
            (
                "Runs",
                "runs",
                "",
                parts,
            ),
            violations_section(data),
            cost_section(data),
            (
                "Settings",
                "settings",
                "",
                [
                    {"kind": "text", "title": name.capitalize(), "text": indented(comparison[name])}
                    for name in ("policies", "conditions", "seeds")
                ],
            ),
        ],
    }
