"""What the page of a line says: sections of sentences, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ledger.wording import counted
from proctor.output.columns import field, figure, figures
from proctor.pages.charts.curves import Curve, curves, curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.lineage import lineage
from proctor.pages.rendering import number, spoken
from proctor.reports.section_parts import (
    RUN,
    Data,
    Row,
    chart_part,
    note_part,
    pair_part,
    table_part,
    text_part,
)
from proctor.reports.values import object_of, short, tile

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


def line_values(data: Data) -> dict[str, Any]:
    """Return what the template `sections.html` shows of a line."""
    (line,) = data["line"]
    drawn = {chart.name: chart for chart in line_charts(data)}
    checkpoints = data["checkpoints"]
    rolled_back = sum(bool(row["rolled_back"]) for row in checkpoints)
    promoted = sum(row["status"] == "promoted" for row in data["proposals"])
    open_alarms = sum(bool(row["open"]) for row in data["alarms"])
    tainted = [row for row in data["runs"] if row["tainted"]]
    measures = [chart for name, chart in drawn.items() if name.replace("-", "_") in _METRICS]
    watched = [drawn[name] for name in ("production", "drift") if name in drawn]
    return {
        "heading": f"Line {line['branch']}",
        "sentence": "A line is a branch of a repository that is improved under control. Each "
        "proposed change is tested against the line as it stands, and is promoted only if it is "
        f"better; then it is the next checkpoint. This line has "
        f"{counted(len(checkpoints), 'checkpoint')} and "
        f"{counted(len(data['proposals']), 'proposal')}.",
        "tiles": [
            tile("Checkpoints", len(checkpoints), f"{rolled_back} of them rolled back"),
            tile("Promoted", f"{promoted} of {len(data['proposals'])}", "proposed changes"),
            tile(
                "Open alarms",
                open_alarms,
                f"{counted(len(data['alarms']), 'alarm')} in all",
                "bad" if open_alarms else "good",
            ),
            tile(
                "Tainted runs",
                len(tainted),
                f"of {len(data['runs'])} under this line",
                "warn" if tainted else "good",
            ),
        ],
        "sections": [
            (
                "Lineage",
                "lineage",
                "",
                [
                    *([chart_part(drawn["lineage"])] if "lineage" in drawn else []),
                    table_part("Checkpoints", _CHECKPOINTS, checkpoints),
                ],
            ),
            (
                "Promotions and rejections",
                "proposals",
                "Tests and tasks decide whether a change is better or worse. Changes of tier 2 "
                "need nothing else, those of tier 1 an operator's approval, too."
                if data["proposals"]
                else "Nothing was proposed.",
                list(_proposals(data)),
            ),
            (
                "Six measures over the chain",
                "measures",
                "Each point is a checkpoint that was not rolled back."
                if measures
                else "Nothing was measured.",
                [pair_part(measures), table_part("Trends", _TRENDS, data["trends"])]
                if measures
                else [],
            ),
            (
                "Drift",
                "drift",
                "The active checkpoint is tested again from time to time, and the branch is looked "
                "at. What is wrong raises an alarm, which an operator answers."
                + ("" if watched or data["alarms"] else " No alarm was raised."),
                [*map(chart_part, watched), *_alarms(data)],
            ),
            (
                "Taint",
                "taint",
                "These runs descend from a checkpoint that was rolled back, or from data that was "
                "withdrawn. Nothing is to be learned from them."
                if tainted
                else "No run of this line is tainted: none descends from a checkpoint that was "
                "rolled back.",
                [table_part("Tainted runs", _TAINTS, tainted)] if tainted else [],
            ),
        ],
    }


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


def _proposals(data: Data) -> Iterator[Any]:
    if rows := data["proposals"]:
        yield table_part("Proposals, with the verdict and its reason", _PROPOSALS, rows)
    for row in rows:
        if reasons := object_of(row["reasons"]):
            yield text_part(
                f"Evidence of the verdict on {short(row['proposal_id'])}: {row['verdict']}",
                "\n".join(map(str, reasons))
                + f"\n\nBetter: {_names(row['improvements'])}\nWorse: {_names(row['regressions'])}"
                + f"\nChance of a wrong promotion that the test allowed: {number(row['level'])}",
            )
    for row in data["halts"]:
        text = f"Entry {row['idx']}: {row['what']}"
        yield note_part(f"{text}, {row['reason']}" if row["reason"] else text, "warn")


def _names(text: Any) -> str:
    return ", ".join(map(str, object_of(text))) or "none"


def _alarms(data: Data) -> Iterator[Any]:
    for row in data["alarms"]:
        answer = "waits for an operator" if row["open"] else f"answered: {row['note']}"
        state = "bad" if row["open"] else ""
        yield note_part(f"Alarm {row['number']}, {row['kind']}: {row['detail']}; {answer}", state)
    for row in data["bisections"]:
        culprit = short(row["culprit"]) or "not found"
        yield note_part(
            f"Search for what made the line worse: culprit {culprit}. {row['reason'] or ''}"
        )
