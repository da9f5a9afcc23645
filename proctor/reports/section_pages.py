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
from proctor.pages.charts.rows import intervals, strip
from proctor.pages.rendering import number, spoken
from proctor.reports.values import RunName, indented, object_of, share, short, tile
from proctor.runs.standings import standings

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
    "reference_success": "Share of the reference tasks that were answered rightly",
    "budget_utilisation": "Share of the token limit that answers used",
    "retrieval_precision": "Share of the chosen evidence that was needed",
    "production_success": "Share of the runs in production that succeeded",
    "validation_pass": "Share of tasks whose answer was not refused",
    "proposal_acceptance": "Share of the proposals that were promoted",
}
_CAUSES = {
    "harness": "a repair of the harness",
    "human": "another decision of this person",
    "policy": "another policy",
    "prompt": "perhaps another prompt",
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
            row["detail"],
            row["emitter"],
            _CAUSES.get(str(row["cause"]), row["cause"]),
        ]
        for row in data["violations"]
    ]
    columns = [("run", False), ("kind", False), ("rule", False), ("epoch", True)]
    columns += [("what", False), ("by", False), ("what would have avoided it", False)]
    if not rows:
        return "Violations", "violations", "The audits that count found none.", []
    text = "Rules of conduct that answers broke, found by the audits that count."
    return "Violations", "violations", text, [_table("Violations", columns, rows)]


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
    learned = "each after the first was told what the judge had found before"
    if not data["feedback"]:
        learned = "none was told anything of another one"
    state = "The campaign has not ended."
    if campaign["end_reason"]:
        early = campaign["end_reason"] != "completed"
        state = "The campaign has ended" + (f": {campaign['end_reason']}." if early else ".")
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
        "sentence": f"The policy “{name}” attempted one training task "
        f"{counted(len(counting), 'time')}; {learned}. The judge audited each attempt, and its "
        f"verdicts rank them. {state}",
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
                "measured by the judge",
            ),
            tile(
                "Violations",
                str(len(data["violations"])),
                "bad" if data["violations"] else "",
                "rules of conduct that were broken, in all attempts",
            ),
        ],
        "sections": [
            (
                "Attempts",
                "attempts",
                "The best attempt has place 1: attempts that passed their audit come first, then "
                "the process score decides, then the validation accuracy. An abandoned attempt was "
                "cut off and made again.",
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
    names = [str(each.get("name")) for each in told if isinstance(each, dict)]
    return list(dict.fromkeys([*names, *(str(row["policy"]) for row in data["cells"])]))


def comparison_charts(data: _Data) -> list[Chart]:
    """Return the charts: differences from the first policy, then each condition's runs."""
    policies = _policies(data)
    table = standings(data["cells"], policies) if data["cells"] else []
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
                    caption="A dot for each seed, the mean as a line down.",
                )
            )
    return found


def _conditions(data: _Data) -> list[str]:
    """Return the conditions with finished runs."""
    return list(dict.fromkeys(str(row["condition"]) for row in data["cells"]))


def _standings(caption: str, rows: Sequence[_Row], policies: Sequence[str]) -> Any:
    """Return a table of policies over some cells."""
    columns = [("policy", False), ("runs", True), ("failed", True), ("test accuracy", True)]
    columns += [("difference", True), ("won/tied", True), ("process score", True)]
    columns += [("difference", True), ("exercised", False)]
    return _table(
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


def _between(mean: float | None, low: float | None, high: float | None) -> str | None:
    if mean is None:
        return None
    return f"{mean:+.3f}" + (f" ({low:+.3f} to {high:+.3f})" if low is not None else "")


def comparison_values(data: _Data) -> dict[str, Any]:
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
            row["exercised"],
            row["problem"],
        ]
        for row in data["cells"]
    ]
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
                "the comparison has ended" if ended else "the comparison is still running",
            ),
            tile(
                "Failed",
                str(sum(row["problem"] is not None for row in data["cells"])),
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
                [_table("A run for each policy, condition and seed", of_cells, cells)],
            ),
            _violations(data),
            _cost(data),
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
        series = {"success": "share"}
        found.append(
            curves_of(
                "drift",
                "Share of tasks answered rightly, measured again from time to time",
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
        "sentence": "A line is a branch of a repository that is improved under control. Each "
        "proposed change is tested against the line as it stands, and is promoted only if it is "
        f"better; then it is the next checkpoint. This line has "
        f"{counted(len(checkpoints), 'checkpoint')} and "
        f"{counted(len(data['proposals']), 'proposal')}.",
        "tiles": [
            tile(
                "Checkpoints",
                str(len(checkpoints)),
                "",
                f"{len(checkpoints) - len(standing)} of them rolled back",
            ),
            tile("Promoted", f"{promoted} of {len(data['proposals'])}", "", "proposed changes"),
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
                [{"kind": "pair", "charts": measures}, _trends(data)] if measures else [],
            ),
            (
                "Drift",
                "drift",
                "The active checkpoint is tested again from time to time, and the branch is looked "
                "at. What is wrong raises an alarm, which an operator answers."
                + ("" if watched or data["alarms"] else " No alarm was raised."),
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
            "began the line" if row["origin"] == "opened" else row["origin"],
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
    columns += [("why proposed", False), ("verdict", False), ("result", False)]
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
                + f"\n\nBetter: {_names(row['improvements'])}\nWorse: {_names(row['regressions'])}"
                + f"\nChance of a wrong promotion that the test allowed: {number(row['level'])}",
            }
    for row in data["halts"]:
        text = f"Entry {row['idx']}: {row['what']}"
        yield _note(f"{text}, {row['reason']}" if row["reason"] else text, "warn")


def _names(text: Any) -> str:
    return ", ".join(map(str, object_of(text))) or "none"


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
