"""The parts that sections consist of, and the sections that pages of several kinds have.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.pages.charts.drawing import Chart
from proctor.pages.rendering import spoken
from proctor.reports.values import RunName, listed_of, violations_found

__all__ = [
    "Data",
    "Row",
    "chart_part",
    "cost_section",
    "note_part",
    "run_name",
    "table_part",
    "violations_section",
]

Row = Mapping[str, Any]
Data = Mapping[str, Any]
_CAUSES = {
    "harness": "a repair of the harness",
    "human": "another decision of this person",
    "policy": "another policy",
    "prompt": "perhaps another prompt",
}


def table_part(
    caption: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[Any]]
) -> Any:
    """Return a table; a column is a title, and whether its values are numbers."""
    return {"kind": "table", "caption": caption, "columns": columns, "rows": rows}


def chart_part(chart: Chart) -> Any:
    """Return a chart as a part."""
    return {"kind": "chart", "chart": chart}


def note_part(text: str, state: str = "") -> Any:
    """Return a sentence that is set apart; `state` is good, bad or neither."""
    return {"kind": "note", "text": text, "state": state}


def run_name(row: Row) -> RunName | None:
    """Return the name of a row's run, if it has one."""
    return None if row["run_id"] is None else RunName(str(row["run_id"]))


def violations_section(data: Data) -> tuple[str, str, str, list[Any]]:
    """Return the section of the violations that the audits that count have found."""
    rows = [
        [
            run_name(row),
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
    if not any(row["violations"] for row in data["found"]):
        return "Violations", "violations", "The audits that count found none.", []
    found = sum(row["violations"] for row in data["found"])
    text = (
        f"Rules of conduct that answers broke, found by the audits that count: "
        f"{violations_found(data['found'])}."
    )
    caption = listed_of(len(rows), found)
    return "Violations", "violations", text, [table_part(caption, columns, rows)]


def cost_section(data: Data) -> tuple[str, str, str, list[Any]]:
    """Return the section of what language models were asked."""
    rows = [
        [
            run_name(row),
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
    parts = [table_part("Requests to language models by run", columns, rows)] if rows else []
    return "Cost", "cost", text, parts
