"""What the decisions of a run were worth: forks with each decision beside forks without it.

Source: proctor/runs/worth.py; docs/how-to/fork-a-run.md.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Sequence
from operator import attrgetter

from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.rows import intervals
from proctor.pages.rendering import spoken
from proctor.reports.section_parts import Data, Section, note_part, pair_part, table_part
from proctor.runs.worth import COLUMNS, Worth, told_how, worths

_MEASURES = {  # of a worth -> title, axis
    "accuracy": ("Accuracy gained", "validation accuracy: decision minus alternative"),
    "loss": ("Loss saved", "validation loss: alternative minus decision"),
}


def credit_charts(found: Sequence[Worth]) -> list[Chart]:
    """Return the charts of what decisions were worth, if that was measured."""
    charts = []
    for name, (title, unit) in _MEASURES.items():
        measured = [(f"{each.decision}, not {spoken(each.arm)}", each) for each in found]
        values = [
            (label, told.difference, told.low, told.high)
            for label, each in measured
            if (told := attrgetter(name)(each)).difference is not None
        ]
        if values:
            charts.append(
                intervals(
                    f"credit-{name}",
                    title,
                    rows=values,
                    unit=unit,
                    caption="Right of zero, the decision was better. The line is the interval.",
                )
            )
    return charts


def credit_sections(data: Data) -> list[Section]:
    """Return the section of the page, if anything was measured."""
    found = worths(data["worth"])
    if not found:
        return []
    caption = "Each decision beside each alternative, with intervals"
    parts = [pair_part(credit_charts(found)), table_part(caption, COLUMNS, found)]
    for row in data["credits"]:
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
    text = (
        "The run was trained again from the epoch of a decision on: with the decision, and with "
        "something else in its place, in several orders of the examples. What differs at the end "
        f"is what the decision was worth. {told_how(found)}"
    )
    return [("What decisions were worth", "credit", text, parts)]
