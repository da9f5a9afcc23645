"""The parts that sections consist of, and the sections that pages of several kinds have.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ledger.wording import counted
from proctor.output.columns import Column, cells, field, figure
from proctor.pages.charts.drawing import Chart
from proctor.pages.rendering import spoken
from proctor.reports.values import RunName, indented, listed_of, violations_found

Row = Mapping[str, Any]
Data = Mapping[str, Any]
Section = tuple[str, str, str, list[Any]]
"""Title, anchor, text, parts."""
_SETTINGS = {"config": "Configuration"}
_CAUSES = {
    "harness": "a repair of the harness",
    "human": "another decision of this person",
    "policy": "another policy",
    "prompt": "perhaps another prompt",
}


def table_part(caption: str, columns: Sequence[Column], rows: Iterable[Any]) -> Any:
    """Return a table."""
    titles = [(column.title, column.number) for column in columns]
    return {"kind": "table", "caption": caption, "columns": titles, "rows": cells(columns, rows)}


def chart_part(chart: Chart) -> Any:
    """Return a chart as a part."""
    return {"kind": "chart", "chart": chart}


def text_part(title: str, text: str) -> Any:
    """Return a long text, which a reader opens."""
    return {"kind": "text", "title": title, "text": text}


def pair_part(charts: Sequence[Chart]) -> Any:
    """Return charts that stand side by side."""
    return {"kind": "pair", "charts": charts}


def note_part(text: str, state: str = "") -> Any:
    """Return a sentence that is set apart; `state` is good, bad or neither."""
    return {"kind": "note", "text": text, "state": state}


def run_name(row: Row) -> RunName | None:
    """Return the name of a row's run, if it has one."""
    return None if row["run_id"] is None else RunName(str(row["run_id"]))


def unfit_part(number: int, what: str, left_out: str) -> list[Any]:
    """Return the warning that runs contradict their place, if there are any."""
    text = (
        f"{counted(number, what)} {'does' if number == 1 else 'do'} not fit: what the run itself "
        f"recorded contradicts its place here. {left_out}"
    )
    return [note_part(text, "bad")] if number else []


def why_not(row: Row) -> str | None:
    """Return why a row's run does not fit, if so."""
    return "; ".join(row["why_not"]) or None


RUN = field("run", run_name)
_VIOLATIONS = [
    RUN,
    field("kind", lambda row: spoken(row["kind"])),
    field("rule"),
    figure("epoch"),
    field("what", "detail"),
    field("by", "emitter"),
    field("what would have avoided it", lambda row: _CAUSES.get(str(row["cause"]), row["cause"])),
]
_COST = [
    RUN,
    field("model"),
    figure("requests", "calls"),
    figure("tokens in", "prompt_tokens"),
    figure("tokens out", "completion_tokens"),
    figure("seconds"),
    figure("US dollars", "cost"),
]


def violations_section(data: Data) -> Section:
    """Return the section of the violations that the audits that count have found."""
    if not any(row["violations"] for row in data["found"]):
        return "Violations", "violations", "The audits that count found none.", []
    rows, found = data["violations"], sum(row["violations"] for row in data["found"])
    text = (
        f"Rules of conduct that answers broke, found by the audits that count: "
        f"{violations_found(data['found'])}."
    )
    table = table_part(listed_of(len(rows), found), _VIOLATIONS, rows)
    return "Violations", "violations", text, [table]


def cost_section(data: Data) -> Section:
    """Return the section of what language models were asked."""
    if not data["calls"]:
        return "Cost", "cost", "No language model was asked.", []
    table = table_part("Requests to language models by run", _COST, data["calls"])
    return "Cost", "cost", "", [table]


def settings_section(row: Row, *names: str) -> Section:
    """Return the section of settings, which columns of JSON hold."""
    texts = [
        text_part(_SETTINGS.get(name, name.capitalize()), indented(row[name])) for name in names
    ]
    return "Settings", "settings", "", texts
