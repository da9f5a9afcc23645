"""A report as one HTML page: a function of its source, and of the versions that it names.

A file is compared with the page that this version makes. Another version makes another page: then
what the page says is not checked, and `proctor report FILE.html --out NEW.html` writes it again.

Trust: what is shown is hostile, and so is a file; the templates escape each value.
I/O: check_report() reads the file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ledger.errors import MalformedError
from ledger.files import read_bounded
from proctor.pages.charts.drawing import Chart
from proctor.pages.rendering import embedded_json, page_policy, render, stylesheet
from proctor.reports.campaign_page import campaign_charts, campaign_values
from proctor.reports.comparison_page import comparison_charts, comparison_values
from proctor.reports.files import MAX_FILE, Source, differences, made_by, open_report
from proctor.reports.line_page import line_charts, line_values
from proctor.reports.run_page import run_charts, run_values

_Contents = Mapping[str, Any]
_MOST = 20  # differences that are named
_KINDS: Mapping[
    str, tuple[Callable[[_Contents], list[Chart]], Callable[[_Contents], dict[str, Any]]]
] = {
    "run": (run_charts, run_values),
    "campaign": (campaign_charts, campaign_values),
    "comparison": (comparison_charts, comparison_values),
    "line": (line_charts, line_values),
}


def charts_of(source: Source) -> dict[str, Chart]:
    """Return the charts of a report by their names."""
    return {chart.name: chart for chart in _KINDS[source.subject.kind][0](source.contents)}


def values_of(kind: str, data: _Contents) -> dict[str, Any]:
    """Return what the template of a kind of subject shows of its contents."""
    return _KINDS[kind][1](data)


def page_of(source: Source) -> str:
    """Return the page."""
    frame = {
        "title": f"{source.subject.kind} {source.subject.id[:8]} - Proctor report",
        "page_policy": page_policy(),
        "style": Markup(stylesheet()),  # noqa: S704 - our own
        "source": source,
        "data": source.contents,
        "made_by": made_by(),
        "embedded": embedded_json(source.embedded),
    }
    told = {**source.contents, "diffs": source.diffs}
    return render("report.html", {**values_of(source.subject.kind, told), **frame})


@dataclass(frozen=True)
class Checked:
    """What was found."""

    source: Source
    altered: list[str]
    unchecked: str  # why the page was not compared; empty if it was

    @property
    def ok(self) -> bool:
        """Whether every value, sentence and chart follows from the proved entries."""
        return not self.altered and not self.unchecked


def check_report(path: Path, *, vkey: str) -> Checked:
    """Compare a report with its proved entries; raises VerificationError, StorageError, OSError."""
    try:
        text = read_bounded(path, most=MAX_FILE).decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{path} is not text in UTF-8") from error
    source = open_report(text, vkey=vkey)
    if source.made_by != made_by():
        versions = ", ".join(f"{name} {number}" for name, number in source.made_by.items())
        return Checked(
            source,
            [],
            f"the page was made by other versions ({versions}); its proofs hold: `proctor report "
            f"{path} --out NEW.html` writes the page again from them",
        )
    page = page_of(source)
    if page == text:
        return Checked(source, [], "")
    found = list(islice(differences(text, source, page), _MOST + 1))
    if len(found) > _MOST:
        found[_MOST:] = ["and more"]
    return Checked(source, found or ["the file's bytes"], "")
