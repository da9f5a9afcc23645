"""What the page of a line shows: tables and charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Sequence
from typing import Any

from proctor.output.columns import field, figure, figures
from proctor.pages.charts.curves import Curve, curves, curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.lineage import lineage
from proctor.pages.rendering import spoken
from proctor.reports.tables import RUN, Data, Row, short, table

_METRICS = {  # column of checkpoint_metrics -> title
    "reference_success": "Share of the reference tasks that were answered rightly",
    "budget_utilisation": "Share of the token limit that answers used",
    "retrieval_precision": "Share of the chosen evidence that was needed",
    "production_success": "Share of the runs in production that succeeded",
    "validation_pass": "Share of tasks whose answer was not refused",
    "proposal_acceptance": "Share of the proposals that were promoted",
}
_DEFICIT = 8  # an alarm; as in projections/drift.sql


def line_charts(data: Data) -> list[Chart]:
    """Return the charts of a line: lineage, six measures, production."""
    refused: dict[str, int] = {}
    for row in data["proposals"]:
        if row["status"] in ("rejected", "halted"):
            refused[row["base"]] = refused.get(row["base"], 0) + 1
    found = [lineage(data["checkpoints"], refused)] if data["checkpoints"] else []
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
    figure("place"),
    field("checkpoint", lambda row: short(row["checkpoint_id"])),
    field("commit", lambda row: short(row["commit"])),
    field("how", lambda row: "began the line" if row["origin"] == "opened" else row["origin"]),
    field(
        "state",
        lambda row: (
            "rolled back" if row["rolled_back"] else "active" if row["active"] else "earlier"
        ),
    ),
    figure("runs"),
    figure("usable runs", "eligible_runs"),
    field("why rolled back", "rollback_reason"),
]
_PROPOSALS = [
    field("proposal", lambda row: short(row["proposal_id"])),
    field("status", lambda row: spoken(row["status"])),
    figure("tier"),
    field("by", "proposer"),
    field("why proposed", "rationale"),
    field("verdict"),
    field("result", "reason"),
]
_TRENDS = [
    field("measure", lambda row: _METRICS.get(row["metric"], spoken(row["metric"]))),
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
    tainted = [row for row in data["runs"] if row["tainted"]]
    return {
        "heading": f"Line {line['branch']}",
        "lineage": [chart for chart in drawn if chart.name == "lineage"],
        "measures": [chart for chart in drawn if chart.name.replace("-", "_") in _METRICS],
        "watched": [chart for chart in drawn if chart.name in ("production", "drift")],
        "checkpoints": table("Checkpoints", _CHECKPOINTS, data["checkpoints"]),
        "proposals": table(
            "Proposals, with the verdict and its reason", _PROPOSALS, data["proposals"]
        ),
        "trends": table("Trends", _TRENDS, data["trends"]),
        "tainted": table("Tainted runs", _TAINTS, tainted),
    }
