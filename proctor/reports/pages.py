"""A report as one HTML page: a function of its source, and of the versions that it names.

Trust: what is shown is hostile; the templates escape each value.
I/O: none.
"""

from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from proctor.pages.charts.drawing import Chart
from proctor.pages.rendering import embedded_json, page_policy, render, stylesheet
from proctor.reports.campaign_page import campaign_charts, campaign_values
from proctor.reports.comparison_page import comparison_charts, comparison_values
from proctor.reports.files import Source, made_by
from proctor.reports.line_page import line_charts, line_values
from proctor.reports.run_page import run_charts, run_values

_Contents = Mapping[str, Any]
_KINDS: Mapping[
    str, tuple[Callable[[_Contents], list[Chart]], Callable[[_Contents], dict[str, Any]], str]
] = {
    "run": (run_charts, run_values, "run.html"),
    "campaign": (campaign_charts, campaign_values, "sections.html"),
    "comparison": (comparison_charts, comparison_values, "sections.html"),
    "line": (line_charts, line_values, "sections.html"),
}


def charts_of(source: Source) -> dict[str, Chart]:
    """Return the charts of a report by their names."""
    return {chart.name: chart for chart in _KINDS[source.subject.kind][0](source.contents)}


def page_of(source: Source) -> str:
    """Return the page."""
    _, values, template = _KINDS[source.subject.kind]
    subject, head = source.subject, source.head
    cosigned = head.note.count("\n\u2014 ") - 1
    return render(
        template,
        {
            "title": f"{subject.kind} {subject.id[:8]} - Proctor report",
            "policy": page_policy(),
            "style": Markup(stylesheet()),  # noqa: S704 - our own
            "subject": subject.id,
            "data": source.contents,
            "unreadable": source.contents["unreadable"],
            "made_by": made_by(),
            "ledger": {
                "origin": head.origin,
                "size": head.size,
                "root": head.root.hex(),
                "note": head.note,
                "proved": len(source.entries),
                "vkey": source.vkey,
                "cosigned": f"{cosigned} witnesses" if cosigned else "no witness",
            },
            "embedded": embedded_json(source.embedded),
            "packed": source.packed,
            **values(source.contents),
        },
    )
