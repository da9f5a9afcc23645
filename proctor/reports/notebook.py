"""Reports in Python: to show in a notebook, and to save.

I/O: reads the home's ledger; save() writes a file.
"""

import os
from functools import cached_property
from html import escape
from pathlib import Path

from proctor.home import Home
from proctor.output.files import write_output
from proctor.pages.charts.drawing import svg
from proctor.reports.files import Source, read_source
from proctor.reports.pages import charts_of, page_of

_HEIGHT = 720  # pixels of the frame in a notebook


class Report:
    """What a run, a campaign, a comparison or a line did. A notebook shows it as its page."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def kind(self) -> str:
        """What it is about: run, campaign, comparison or line."""
        return self._source.subject.kind

    @property
    def id(self) -> str:
        """The id of what it is about."""
        return self._source.subject.id

    @property
    def charts(self) -> list[str]:
        """The names of its charts."""
        return list(charts_of(self._source))

    @cached_property
    def html(self) -> str:
        """The page, as `proctor report` writes it."""
        return page_of(self._source)

    def svg(self, chart: str) -> str:
        """Return one of its charts as SVG; raises KeyError for a name that it does not have."""
        return svg(charts_of(self._source)[chart])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which `proctor verify` checks."""
        write_output(Path(path), self.html)

    def _repr_html_(self) -> str:
        """Return a frame of its own, in which nothing can run: its styles reach nothing else."""
        return (
            f'<iframe sandbox srcdoc="{escape(self.html)}" title="Proctor report" width="100%" '
            f'height="{_HEIGHT}" style="border: 0"></iframe>'
        )


def report(subject: object = "latest", *, home: str | os.PathLike[str] | None = None) -> Report:
    """Return the report of a run, a campaign, a comparison or a line; the ledger is verified first.

    subject: an id, the start of one, `latest`, or the run of `proctor.watch`.
    home: by default $PROCTOR_HOME, else .proctor in the current folder.

    Raises VerificationError for a ledger that is not valid, ProctorError for a subject that is not
    found.
    """
    place = Home(Path(home or os.environ.get("PROCTOR_HOME") or ".proctor"))
    return Report(read_source(place, str(getattr(subject, "id", subject))))
