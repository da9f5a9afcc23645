"""What the page of a line shows: tables and charts.

Source: Wilson 1927 for the interval of a share; no extra of reports has the exact one.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

from proctor.output.columns import field, figure, figures
from proctor.pages.charts.curves import Curve, curves, curves_of
from proctor.pages.charts.drawing import Chart, known
from proctor.pages.charts.lineage import lineage
from proctor.pages.rendering import percent
from proctor.reports.line_proposals import (
    MOST_DIFF,
    how_of,
    proposal_tables,
    proposal_tree,
    state_of,
)
from proctor.reports.tables import RUN, Data, Row, short, table

_SCORES = {  # chart -> title, caption
    "reference-success": (
        "Share of the reference tasks that were answered rightly",
        "these tasks choose the checkpoints, so the first answers of each flatter it",
    ),
    "held-out": (
        "Share of held-out tasks that were answered rightly",
        "no proposal has seen these tasks, and no promotion depends on them",
    ),
}
_METRICS = {  # column of checkpoint_metrics -> title
    "budget_utilisation": "Share of the token limit that answers used",
    "retrieval_precision": "Share of the chosen evidence that was needed",
    "production_success": "Share of the runs in production that succeeded",
    "validation_pass": "Share of tasks whose answer was not refused",
    "proposal_acceptance": "Share of the proposals that were promoted",
}
_MIXED = "Share of tasks that were answered rightly: new ones, or else the reference tasks"
_DEFICIT = 8  # an alarm; as in projections/drift.sql


def line_charts(data: Data) -> list[Chart]:
    """Return the charts of a line: lineage, scores, other measures, production."""
    refused: dict[str, int] = {}
    for row in data["proposals"]:
        if row["status"] in ("rejected", "halted"):
            refused[row["base"]] = refused.get(row["base"], 0) + 1
    found = [*_scores(data)]
    found += [lineage(data["checkpoints"], refused)] if data["checkpoints"] else []
    for column, title in _METRICS.items():
        rows = [
            {**row, "checkpoint": row["place"]} for row in data["metrics"] if not row["rolled_back"]
        ]
        if any(row[column] is not None for row in rows):
            name = column.replace("_", "-")
            series = {column: "value"}
            found.append(
                curves_of(name, title, rows, series, over="checkpoint", share=True, small=True)
            )
    if data["production"]:
        rows = [{**row, "run": place} for place, row in enumerate(data["production"], start=1)]
        most = max([_DEFICIT + 1.0, *(float(row["deficit"]) for row in rows)])
        found.append(
            curves_of(
                "production",
                "Production: failures beyond successes",
                rows,
                {"deficit": "deficit"},
                over="run",
                limit=(_DEFICIT, "the alarm"),
                ends=(0.0, most),
            )
        )
    if data["drift"]:
        found.append(
            curves(
                "drift",
                "Share of tasks answered rightly, measured again from time to time",
                _drift(data["drift"]),
                over="measurement",
                share=True,
            )
        )
    return found


def _scores(data: Data) -> Iterator[Chart]:
    """Yield the charts of the scores by checkpoint: on reference tasks, and on held-out ones."""
    places = {row["checkpoint_id"]: row["place"] for row in data["metrics"]}
    gone = {row["place"] for row in data["metrics"] if row["rolled_back"]}
    for name, (title, caption) in _SCORES.items():
        found: dict[str, dict[int, Row]] = {}
        for label, row in _scored(data):
            place = places.get(row["checkpoint_id"])
            if place is not None and row["held_out"] == (name == "held-out"):
                found.setdefault(label, {})[place] = row
        drawn = [
            Curve(
                label,
                [(x, own[x]["success"] if x in own else None) for x in sorted(places.values())],
                {x: _interval(row["success"], row["tasks"]) for x, row in own.items()},
                gone,
            )
            for label, own in found.items()
        ]
        if drawn:
            about = f"{drawn[0].label}: " if len(drawn) == 1 else ""
            crosses = "; ✕ a checkpoint that was rolled back" if gone else ""
            yield curves(
                name,
                title,
                drawn,
                over="checkpoint",
                ends=(0.0, 1.0),  # the same in both
                unit=f"{about}{caption}; thin lines are the 95% interval, for which each task "
                f"counts once{crosses}",
                told=" ".join(map(_told, drawn)),
            )


def _scored(data: Data) -> Iterator[tuple[str, Row]]:
    """Yield the shares that were scored of checkpoints, each with the name of its curve."""
    compared = [
        {**row, "success": row["benchmark_success"], "tasks": row["benchmark_tasks"]}
        for row in data["metrics"]
    ]
    several = len({row["sha256"] for row in data["evaluated"] if row["sha256"]}) > 1
    for row in (*compared, *data["evaluated"]):
        share, tasks, of_set = row["success"], row["tasks"], row.get("sha256")
        if not (known(share) and 0 <= share <= 1 and tasks):
            continue
        if "held_out" not in row:
            yield "in comparisons with proposals", {**row, "held_out": False}
        elif of_set:
            yield f"hidden siblings{f' ({short(of_set)})' if several else ''}", row
        else:
            yield "new tasks for each evaluation" if row["held_out"] else "in evaluations", row


def _told(curve: Curve) -> str:
    """Return where a curve begins and ends, with intervals, but for what was rolled back."""
    on = [point for point in curve.finite if point[0] not in curve.apart] or curve.finite
    ends = (
        f"{percent(value)} ({percent(curve.spans[x][0])} to {percent(curve.spans[x][1])}) at "
        f"checkpoint {x}"
        for x, value in (on[0], on[-1])
    )
    return f"{curve.label}: {', '.join(ends)}."


def _interval(share: float, tasks: int) -> tuple[float, float]:
    """Return the 95% interval of a share of so many tasks."""
    square = 1.959964**2 / tasks
    middle = share + square / 2
    half = sqrt(square * (share * (1 - share) + square / 4))
    return (middle - half) / (1 + square), (middle + half) / (1 + square)


def _drift(rows: Sequence[Row]) -> list[Curve]:
    """Return a curve for each set of tasks, of the active checkpoints and of other commits."""
    sets = list(dict.fromkeys((row["task_set"], row["sha256"]) for row in rows))
    names = [task_set for task_set, _ in sets]
    points: dict[tuple[str, str, bool], list[tuple[int, Any]]] = {}
    for at, row in enumerate(rows, start=1):
        key = row["task_set"], row["sha256"], bool(row["of_checkpoint"])
        points.setdefault(key, []).append((at, row["success"]))
    return [
        Curve(
            f"{task_set} tasks{f' ({sha256[:8]})' if names.count(task_set) > 1 else ''}, "
            + ("active checkpoint" if of_checkpoint else "commit that is no checkpoint"),
            own,
        )
        for (task_set, sha256, of_checkpoint), own in points.items()
    ]


_CHECKPOINTS = [
    figure("number", "place"),
    field("checkpoint", lambda row: short(row["checkpoint_id"])),
    field("commit", lambda row: short(row["commit"])),
    field("how", how_of),
    field("state", state_of),
    figure("runs"),
    figure("usable runs", "eligible_runs"),
    field("why rolled back", "rollback_reason"),
]
_TRENDS = [
    field("measure", lambda row: _METRICS.get(row["metric"], _MIXED)),
    *figures("checkpoints", "first", "last"),
    figure("gain per checkpoint", "slope"),
]
_TAINTS = [
    RUN,
    field("checkpoint", lambda row: short(row["checkpoint"])),
    field("why", lambda row: "; ".join(row["taint_reasons"] or ())),
]


def line_values(data: Data) -> dict[str, Any]:
    """Return what the template `line.html` shows."""
    (line,) = data["line"]
    drawn = line_charts(data)
    places = {row["checkpoint_id"]: row["place"] for row in data["metrics"]}
    checkpoints = [
        {**row, "place": places.get(row["checkpoint_id"])} for row in data["checkpoints"]
    ]
    tainted = [row for row in data["runs"] if row["tainted"]]
    return {
        "heading": f"Line {line['branch']}",
        "scores": [chart for chart in drawn if chart.name in _SCORES],
        "lineage": [chart for chart in drawn if chart.name == "lineage"],
        "measures": [chart for chart in drawn if chart.name.replace("-", "_") in _METRICS],
        "watched": [chart for chart in drawn if chart.name in ("production", "drift")],
        "checkpoints": table("Checkpoints", _CHECKPOINTS, checkpoints),
        "left": _left(data),
        "most_diff": MOST_DIFF,
        "tree": proposal_tree(data),
        **proposal_tables(data),
        "trends": table("Trends", _TRENDS, data["trends"]),
        "tainted": table("Tainted runs", _TAINTS, tainted),
    }


def _left(data: Data) -> int:
    """Return how many of the rounds that were asked for have not ended."""
    for order in data["orders"][-1:]:
        if order["what"] == "begin":  # another order ends what was asked for
            ended = [row for row in data["rounds"] if row["idx"] > order["idx"]]
            return max(0, int(order["rounds"]) - len(ended))
    return 0
