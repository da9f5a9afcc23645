"""What the decisions of a run were worth: forks with each decision beside forks without it.

Source: the view decision_credit; docs/how-to/fork-a-run.md.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Sequence

from proctor.output.columns import field, figure, figures
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals
from proctor.pages.rendering import spoken
from proctor.reports.section_parts import Row, Section, note_part, pair_part, table_part
from proctor.runs.standings import told_difference

__all__ = ["credit_charts", "credit_sections"]

_MEASURES = (  # column -> title, axis
    ("accuracy", "Accuracy gained", "validation accuracy: decision minus alternative"),
    ("loss", "Loss saved", "validation loss: alternative minus decision"),
)


def credit_charts(rows: Sequence[Row]) -> list[Chart]:
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


def credit_sections(rows: Sequence[Row]) -> list[Section]:
    """Return the section of the page, if anything was measured."""
    if not rows:
        return []
    parts = [
        pair_part(credit_charts(rows)),
        table_part("Each decision beside each alternative, with 95% intervals", _COLUMNS, rows),
    ]
    for row in rows:
        beside = f"decision {row['decision']} against {spoken(row['arm'])}"
        if not row["backed"]:
            text = (
                f"What was recorded of {beside} does not follow from its forks in the ledger. It "
                "counts for nothing."
            )
            parts.append(note_part(text, "bad"))
        elif row["why_not"]:
            text = f"The measurement of {beside} with {row['pairs']} pairs decides nothing"
            parts.append(note_part(f"{text}: {row['why_not']}."))
    after = ", ".join(sorted({str(row["after"]) for row in rows}))
    text = (
        "The run was trained again from the epoch of a decision on: with the decision, and with "
        "something else in its place, in several orders of the examples. What differs at the end "
        f"is what the decision was worth. Later decisions were made by: {after}."
    )
    return [("What decisions were worth", "credit", text, parts)]


def _label(row: Row) -> str:
    return f"{row['decision']}, not {spoken(row['arm'])}"


def _between(row: Row, column: str) -> str | None:
    """Return a difference with its interval."""
    values = [row[f"{column}_{part}"] for part in ("difference", "low", "high")]
    middle, low, high = (value if isinstance(value, float) else None for value in values)
    return told_difference(middle, low, high, digits=4) or "cannot be told"


def _better(row: Row) -> str:
    if not row["backed"]:
        return "contradicted"
    return {"chosen": "the decision", "other": "the alternative"}.get(row["better"], "not decided")


_COLUMNS = [
    *figures("decision", "epoch"),
    field("instead", lambda row: spoken(row["arm"])),
    figure("pairs"),
    figure("accuracy gained", lambda row: _between(row, "accuracy")),
    figure("loss saved", lambda row: _between(row, "loss")),
    field("better", _better),
]
