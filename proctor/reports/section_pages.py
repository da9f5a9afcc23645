"""What the pages of campaigns, comparisons and lines say: sections of sentences, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.wording import counted
from proctor.pages.charts.curves import attempt_curves, curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.lineage import lineage
from proctor.pages.charts.rows import strip
from proctor.pages.rendering import number, spoken
from proctor.reports.values import RunName, indented, object_of, share, short, tile

__all__ = [
    "campaign_charts",
    "campaign_values",
    "comparison_charts",
    "comparison_values",
    "line_charts",
    "line_values",
]

_Row = Mapping[str, Any]
_Data = Mapping[str, Any]
_METRICS = {  # column of checkpoint_metrics -> title
    "benchmark_success": "Benchmark: share of tasks that were right",
    "reference_success": "Reference tasks: share that was right",
    "budget_utilisation": "Use of the token budget",
    "retrieval_precision": "Precision of the selected rows",
    "production_success": "Production: share of runs that succeeded",
    "proposal_acceptance": "Proposals: share that was promoted",
}
_DEFICIT = 8  # an alarm; as in projections/drift.sql


def _table(caption: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[Any]]) -> Any:
    return {"kind": "table", "caption": caption, "columns": columns, "rows": rows}


def _chart(chart: Chart) -> Any:
    return {"kind": "chart", "chart": chart}


def _note(text: str, state: str = "") -> Any:
    return {"kind": "note", "text": text, "state": state}


def _run(row: _Row) -> RunName | None:
    return None if row["run_id"] is None else RunName(str(row["run_id"]))


def _violations(data: _Data) -> tuple[str, str, str, list[Any]]:
    rows = [
        [
            _run(row),
            spoken(row["kind"]),
            row["rule"],
            row["epoch"],
            row["emitter"],
            row["detail"],
            row["cause"],
        ]
        for row in data["violations"]
    ]
    columns = [("run", False), ("kind", False), ("rule", False), ("epoch", True)]
    columns += [("by", False), ("what", False), ("what must change", False)]
    text = "" if rows else "The audits that count found none."
    parts = (
        [_table("Violations, with what must change to avoid them", columns, rows)] if rows else []
    )
    return "Violations", "violations", text, parts


def _cost(data: _Data) -> tuple[str, str, str, list[Any]]:
    rows = [
        [
            _run(row),
            row["model"],
            row["calls"],
            row["prompt_tokens"],
            row["completion_tokens"],
            row["seconds"],
            row["cost"],
        ]
        for row in data["calls"]
    ]
    columns = [("run", False), ("model", False), ("requests", True), ("tokens in", True)]
    columns += [("tokens out", True), ("seconds", True), ("US dollars", True)]
    text = "" if rows else "No language model was asked."
    parts = [_table("Requests to language models by run", columns, rows)] if rows else []
    return "Cost", "cost", text, parts


# ------------------------------------------------------------------------------------------------
# Campaigns


def campaign_charts(data: _Data) -> list[Chart]:
    """Return the charts of a campaign."""
    counting = [row for row in data["attempts"] if not row["abandoned"]]
    found = []
    if any(row["process_score"] is not None for row in counting):
        rows = [{**row, "attempt": row["number"]} for row in counting]
        series = {"accuracy_score": "accuracy score", "process_score": "process score"}
        found.append(curves_of("scores", "Scores", rows, series, over="attempt", share=True))
    if any(row["val_accuracy"] is not None for row in data["epochs"]):
        found.append(attempt_curves(data["epochs"]))
    return found


def campaign_values(data: _Data) -> dict[str, Any]:
    """Return what the template `sections.html` shows of a campaign."""
    (campaign,) = data["campaign"]
    counting = [row for row in data["attempts"] if not row["abandoned"]]
    best = min(
        (row for row in counting if row["place"]), key=lambda row: row["place"], default=None
    )
    policy = object_of(campaign["policy"])
    name = policy.get("name") if isinstance(policy, dict) else None
    state = f"ended: {campaign['end_reason']}" if campaign["end_reason"] else "still running"
    columns = [("attempt", True), ("run", False), ("ended", False), ("place", True)]
    columns += [("verdict", False), ("accuracy score", True), ("process score", True)]
    columns += [("validation accuracy", True), ("violations", True), ("decisions", True)]
    rows = [
        [row["number"], _run(row), row["state"]]
        + [row["place"], "abandoned" if row["abandoned"] else row["verdict"]]
        + [row[each] for each in ("accuracy_score", "process_score", "validation_accuracy")]
        + [row["violations"], row["decisions"]]
        for row in data["attempts"]
    ]
    told: list[Any] = [
        {
            "kind": "text",
            "title": f"Feedback that attempt {row['number']} got (entry {row['idx']})",
            "text": indented(row["feedback"]),
        }
        for row in data["feedback"]
    ]
    told += [
        {
            "kind": "text",
            "title": f"Advice in the prompt of attempt {row['number']} (version {row['version']})",
            "text": str(row["advice"]) or "none",
        }
        for row in data["advice"]
    ]
    return {
        "heading": f"Campaign {campaign['campaign_id'][:8]}",
        "sentence": f"Policy {name} attempted one task {counted(len(counting), 'time')} (mode "
        f"{spoken(campaign['mode'])}, at most {campaign['max_attempts']}). Each attempt was "
        f"judged; the judge's verdicts rank them. The campaign is {state}.",
        "tiles": [
            tile("Attempts", str(len(counting)), "", f"at most {campaign['max_attempts']}"),
            tile(
                "Best attempt",
                str(best["number"]) if best else "none",
                "good" if best else "warn",
                f"run {short(best['run_id'])}" if best else "no ranking yet",
            ),
            tile(
                "Its validation accuracy",
                share(best["validation_accuracy"]) if best else "none",
                "",
                "measured by the judge; attempts are ranked by it",
            ),
            tile(
                "Violations",
                str(len(data["violations"])),
                "bad" if data["violations"] else "",
                "in all attempts",
            ),
        ],
        "sections": [
            (
                "Attempts",
                "attempts",
                "The place is by the audits that count. An abandoned attempt was cut off and made "
                "again.",
                [*map(_chart, campaign_charts(data)), _table("Attempts", columns, rows)],
            ),
            (
                "What attempts were told",
                "feedback",
                "" if told else "No attempt was told anything of an earlier one.",
                told,
            ),
            _violations(data),
            _cost(data),
            (
                "Settings",
                "settings",
                "",
                [
                    {
                        "kind": "text",
                        "title": "Configuration",
                        "text": indented(campaign["config"]),
                    },
                    {"kind": "text", "title": "Policy", "text": indented(campaign["policy"])},
                ],
            ),
        ],
    }


# ------------------------------------------------------------------------------------------------
# Comparisons


def _policies(data: _Data) -> list[str]:
    """Return the names of the policies, as they were given: the first is the base."""
    told = object_of(data["comparison"][0]["policies"])
    return [str(each.get("name")) for each in told if isinstance(each, dict)]


def comparison_charts(data: _Data) -> list[Chart]:
    """Return the charts of a comparison: test accuracy, then process score, by condition."""
    policies = _policies(data)
    found = []
    for place, condition in enumerate(dict.fromkeys(str(c["condition"]) for c in data["cells"])):
        rows = [row for row in data["cells"] if str(row["condition"]) == condition]
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
                    caption="One dot for each seed; the tick is the mean.",
                )
            )
    return found


def comparison_values(data: _Data) -> dict[str, Any]:
    """Return what the template `sections.html` shows of a comparison."""
    (comparison,) = data["comparison"]
    policies, conditions = object_of(comparison["policies"]), object_of(comparison["conditions"])
    seeds = object_of(comparison["seeds"])
    planned = len(policies) * len(conditions) * len(seeds)
    drawn = comparison_charts(data)
    columns = [("condition", False), ("policy", False), ("cells", True), ("test accuracy", True)]
    columns += [("standard deviation", True), ("process score", True), ("failed", True)]
    means = [
        [
            row["condition"],
            row["policy"],
            row["cells"],
            row["test_accuracy"],
            row["deviation"],
            row["process_score"],
            row["failed"],
        ]
        for row in data["means"]
    ]
    of_cells = [("condition", False), ("policy", False), ("seed", True), ("run", False)]
    of_cells += [("ended", False), ("test accuracy", True), ("process score", True)]
    of_cells += [("exercised", False), ("problem", False)]
    cells = [
        [
            row["condition"],
            row["policy"],
            row["seed"],
            _run(row),
            row["state"],
            row["test_accuracy"],
            row["process_score"],
            {True: "yes", False: "no"}.get(row["exercised"]),
            row["problem"],
        ]
        for row in data["cells"]
    ]
    ended = comparison["ended_idx"] is not None
    return {
        "heading": f"Comparison {comparison['comparison_id'][:8]}",
        "sentence": f"{counted(len(policies), 'policy')} decided in the same trainings: "
        f"{counted(len(conditions), 'condition')}, {counted(len(seeds), 'seed')} each. The judge "
        "measured every run on examples that the training never saw.",
        "tiles": [
            tile("Policies", str(len(policies)), "", "the first is what others are compared with"),
            tile("Conditions", str(len(conditions)), "", f"{counted(len(seeds), 'seed')} each"),
            tile(
                "Cells finished",
                f"{len(data['cells'])} of {planned}",
                "good" if ended else "warn",
                "the comparison has ended" if ended else "the comparison is still running",
            ),
            tile(
                "Failed",
                str(sum(row["problem"] is not None for row in data["cells"])),
                "",
                "cells that count with both scores 0",
            ),
        ],
        "sections": [
            (
                "Results",
                "results",
                "" if drawn else "No cell is finished.",
                [
                    {"kind": "pair", "charts": drawn},
                    _table("Means by condition and policy", columns, means),
                ]
                if drawn
                else [],
            ),
            ("Cells", "cells", "", [_table("One run for each cell", of_cells, cells)]),
            _violations(data),
            _cost(data),
            (
                "Settings",
                "settings",
                "",
                [
                    {"kind": "text", "title": spoken(name), "text": indented(comparison[name])}
                    for name in ("policies", "conditions", "seeds")
                ],
            ),
        ],
    }


# ------------------------------------------------------------------------------------------------
# Lines


def line_charts(data: _Data) -> list[Chart]:
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
        rows = [{**row, "measurement": at} for at, row in enumerate(data["drift"], start=1)]
        series = {"success": "share of tasks that were right"}
        found.append(
            curves_of(
                "drift",
                "Measurements outside of proposals",
                rows,
                series,
                over="measurement",
                share=True,
            )
        )
    return found


def line_values(data: _Data) -> dict[str, Any]:
    """Return what the template `sections.html` shows of a line."""
    (line,) = data["line"]
    drawn = {chart.name: chart for chart in line_charts(data)}
    checkpoints = data["checkpoints"]
    standing = [row for row in checkpoints if not row["rolled_back"]]
    promoted = sum(row["status"] == "promoted" for row in data["proposals"])
    open_alarms = [row for row in data["alarms"] if row["open"]]
    tainted = [row for row in data["runs"] if row["tainted"]]
    measures = [chart for name, chart in drawn.items() if name.replace("-", "_") in _METRICS]
    watched = [drawn[name] for name in ("production", "drift") if name in drawn]
    return {
        "heading": f"Line {line['branch']}",
        "sentence": "A line is a branch that may change itself. Each proposed change is tested "
        f"against the line as it stands, and is promoted only if it is better. This line has "
        f"{counted(len(checkpoints), 'checkpoint')} and "
        f"{counted(len(data['proposals']), 'proposal')}.",
        "tiles": [
            tile(
                "Checkpoints",
                str(len(checkpoints)),
                "",
                f"{len(checkpoints) - len(standing)} of them rolled back",
            ),
            tile("Promoted", f"{promoted} of {len(data['proposals'])}", "", "proposals"),
            tile(
                "Open alarms",
                str(len(open_alarms)),
                "bad" if open_alarms else "good",
                f"{counted(len(data['alarms']), 'alarm')} in all",
            ),
            tile(
                "Tainted runs",
                str(len(tainted)),
                "warn" if tainted else "good",
                f"of {len(data['runs'])} under this line",
            ),
        ],
        "sections": [
            (
                "Lineage",
                "lineage",
                "",
                [*([_chart(drawn["lineage"])] if "lineage" in drawn else []), _checkpoints(data)],
            ),
            (
                "Promotions and rejections",
                "proposals",
                "" if data["proposals"] else "Nothing was proposed.",
                list(_proposals(data)),
            ),
            (
                "Six measures over the chain",
                "measures",
                "Each point is a checkpoint that was not rolled back."
                if measures
                else "Nothing was measured.",
                [{"kind": "pair", "charts": measures}, _trends(data)] if measures else [],
            ),
            (
                "Drift",
                "drift",
                "" if watched or data["alarms"] else "No alarm was raised.",
                [*map(_chart, watched), *_alarms(data)],
            ),
            ("Taint", "taint", _told_taint(tainted), _taints(tainted)),
        ],
    }


def _checkpoints(data: _Data) -> Any:
    columns = [("place", True), ("checkpoint", False), ("commit", False), ("how", False)]
    columns += [("state", False), ("runs", True), ("usable runs", True), ("why rolled back", False)]
    rows = [
        [
            row["place"],
            short(row["checkpoint_id"]),
            short(row["commit"]),
            row["origin"],
            "rolled back" if row["rolled_back"] else "active" if row["active"] else "earlier",
            row["runs"],
            row["eligible_runs"],
            row["rollback_reason"],
        ]
        for row in data["checkpoints"]
    ]
    return _table("Checkpoints", columns, rows)


def _proposals(data: _Data) -> Iterator[Any]:
    columns = [("proposal", False), ("status", False), ("tier", True), ("by", False)]
    columns += [("why proposed", False), ("verdict", False), ("why it ended so", False)]
    rows = [
        [
            short(row["proposal_id"]),
            spoken(row["status"]),
            row["tier"],
            row["proposer"],
            row["rationale"],
            row["verdict"],
            row["reason"],
        ]
        for row in data["proposals"]
    ]
    if rows:
        yield _table("Proposals, with the verdict and its reason", columns, rows)
    for row in data["proposals"]:
        reasons = object_of(row["reasons"])
        if reasons:
            yield {
                "kind": "text",
                "title": f"Evidence of the verdict on {short(row['proposal_id'])}: "
                f"{row['verdict']}",
                "text": "\n".join(map(str, reasons))
                + f"\n\nbetter: {row['improvements']}\nworse: {row['regressions']}"
                + f"\nerror that was spent: {number(row['level'])}",
            }
    for row in data["halts"]:
        text = f"Entry {row['idx']}: {row['what']}"
        yield _note(f"{text}, {row['reason']}" if row["reason"] else text, "warn")


def _trends(data: _Data) -> Any:
    columns = [("measure", False), ("checkpoints", True), ("first", True), ("last", True)]
    columns += [("gain per checkpoint", True)]
    rows = [
        [
            _METRICS.get(row["metric"], spoken(row["metric"])),
            row["checkpoints"],
            row["first"],
            row["last"],
            row["slope"],
        ]
        for row in data["trends"]
    ]
    return _table("Trends", columns, rows)


def _alarms(data: _Data) -> Iterator[Any]:
    for row in data["alarms"]:
        answer = "waits for an operator" if row["open"] else f"answered: {row['note']}"
        state = "bad" if row["open"] else ""
        yield _note(f"Alarm {row['number']}, {row['kind']}: {row['detail']}; {answer}", state)
    for row in data["bisections"]:
        culprit = short(row["culprit"]) or "not found"
        yield _note(
            f"Search for what made the line worse: culprit {culprit}. {row['reason'] or ''}"
        )


def _told_taint(tainted: Sequence[_Row]) -> str:
    if not tainted:
        return (
            "No run of this line is tainted: none descends from a checkpoint that was rolled back."
        )
    return (
        "These runs descend from a checkpoint that was rolled back, or from data that was "
        "withdrawn. Nothing is to be learned from them."
    )


def _taints(tainted: Sequence[_Row]) -> list[Any]:
    if not tainted:
        return []
    columns = [("run", False), ("checkpoint", False), ("why", False)]
    rows = [
        [_run(row), short(row["checkpoint"]), "; ".join(row["taint_reasons"] or ())]
        for row in tainted
    ]
    return [_table("Tainted runs", columns, rows)]
