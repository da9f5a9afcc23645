"""What the decisions of a run were worth: forks with each decision beside forks without it.

Source: the view decision_credit; docs/how-to/fork-a-run.md.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals
from proctor.pages.rendering import spoken

__all__ = ["credit_charts", "credit_sections"]

_Row = Mapping[str, Any]
_MEASURES = (  # column -> title, axis
    ("accuracy", "Accuracy gained", "validation accuracy: decision minus alternative"),
    ("loss", "Loss saved", "validation loss: alternative minus decision"),
)


def credit_charts(rows: Sequence[_Row]) -> list[Chart]:
    """Return the charts of what decisions were worth, if that was measured."""
    shown = [row for row in rows if row["backed"]]
    found = []
    for column, title, unit in _MEASURES:
        values = [
            (_label(row), row[f"{column}_difference"], row[f"{column}_low"], row[f"{column}_high"])
            for row in shown
            if isinstance(row[f"{column}_difference"], float)
        ]
        if values:
            found.append(
                intervals(
                    f"credit-{column}",
                    title,
                    rows=values,
                    unit=unit,
                    caption="Right of zero, the decision was better. The line is the 95% interval.",
                )
            )
    return found


def credit_sections(rows: Sequence[_Row]) -> list[Any]:
    """Return the section of the page, if anything was measured."""
    if not rows:
        return []
    columns = [("decision", True), ("epoch", True), ("instead", False), ("pairs", True)]
    columns += [("accuracy gained", True), ("loss saved", True), ("better", False)]
    better = {"chosen": "the decision", "other": "the alternative"}
    table = [
        [row["decision"], row["epoch"], spoken(row["arm"]), row["pairs"]]
        + [_between(row, column) for column, _, _ in _MEASURES]
        + [better.get(row["better"], "not decided") if row["backed"] else "contradicted"]
        for row in rows
    ]
    parts: list[Any] = [
        {"kind": "pair", "charts": credit_charts(rows)},
        {
            "kind": "table",
            "caption": "Each decision beside each alternative, with 95% intervals",
            "columns": columns,
            "rows": table,
        },
    ]
    parts += [
        {
            "kind": "note",
            "text": f"The measurement of decision {row['decision']} against {spoken(row['arm'])} "
            f"with {row['pairs']} pairs decides nothing: {row['why_not']}.",
            "state": "",
        }
        for row in rows
        if row["backed"] and row["why_not"]
    ]
    for text in _contradicted(rows):
        parts.append({"kind": "note", "text": text, "state": "bad"})
    after = ", ".join(sorted({str(row["after"]) for row in rows}))
    text = (
        "The run was trained again from the epoch of a decision on: with the decision, and with "
        "something else in its place, in several orders of the examples. What differs at the end "
        f"is what the decision was worth. Later decisions were made by: {after}."
    )
    return [("What decisions were worth", "credit", text, parts)]


def _label(row: _Row) -> str:
    return f"{row['decision']}, not {spoken(row['arm'])}"


def _between(row: _Row, column: str) -> str:
    """Return a difference with its interval."""
    middle, low, high = (row[f"{column}_{part}"] for part in ("difference", "low", "high"))
    if not isinstance(middle, float):
        return "cannot be told"
    if not isinstance(low, float) or not isinstance(high, float):
        return f"{middle:+.4f}"
    return f"{middle:+.4f} ({low:+.4f} to {high:+.4f})"


def _contradicted(rows: Sequence[_Row]) -> Iterator[str]:
    for row in rows:
        if not row["backed"]:
            yield (
                f"What was recorded of decision {row['decision']} against {spoken(row['arm'])} "
                "does not follow from its forks in the ledger. It counts for nothing."
            )
