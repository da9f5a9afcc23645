"""`proctor report`: a run, a campaign, a comparison or a line as one page that can be verified."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ledger.errors import MalformedError
from ledger.progress import advanced
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Argument, Takes, VkeyOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_octets
from proctor.output.files import verify_target, write_output
from proctor.output.shape import Answer
from proctor.output.terminal import console, print_words

if TYPE_CHECKING:
    from proctor.reports.files import Source

app = CommandGroup()


class ReportFiles(Answer):
    """A report that was written."""

    kind: str
    subject: str
    files: dict[str, int]  # path -> bytes
    charts: list[str]
    entries: int
    size: int


@app.command(prints=ReportFiles)
def report(
    home: Home,
    subject: Annotated[
        str,
        "Id of a run, campaign, comparison or line, the start of an id, a run's name, or "
        "`latest`: the newest run. Or a report, which is written again from its own proofs.",
        Argument("SUBJECT"),
    ] = "latest",
    *,
    out: Annotated[
        Path,
        "Write the page to FILE; or one chart, if its name ends in .svg or .png.",
        Takes("FILE"),
    ],
    chart: Annotated[str | None, "Chart for .svg and .png, as in loss.", Takes("NAME")] = None,
    vkey: VkeyOption = None,
) -> Output:
    """Write a report as one HTML file, which needs no network and can be verified; or one chart."""
    drawn = out.suffix in (".svg", ".png")
    if chart is not None and not drawn:
        raise ProctorError(f"--chart {chart}: end the name of --out in .svg or .png")
    require_extra("report")
    from proctor.pages.charts.drawing import png as as_png  # noqa: PLC0415 - an extra
    from proctor.pages.charts.drawing import svg as as_svg  # noqa: PLC0415
    from proctor.reports.pages import charts_of, page_of  # noqa: PLC0415

    verify_target(out, home=home, others=(vkey,))
    source = _source(home, subject)
    advanced("drawing charts", 0)
    charts = charts_of(source)
    if drawn and chart not in charts:
        known = ", ".join(charts) or "none"
        raise ProctorError(
            f"the report has no chart {chart!r}; --chart takes one of: {known}"
            if chart
            else f"{out} shows one chart; name it with --chart, one of: {known}"
        )
    content: str | bytes
    if chart is None:
        content = page_of(source).encode()
    else:
        content = as_png(charts[chart]) if out.suffix == ".png" else as_svg(charts[chart])
    write_output(out, content, home=home)
    told = ReportFiles(
        kind=source.subject.kind,
        subject=source.subject.id,
        files={str(out): len(content)},
        charts=list(charts),
        entries=len(source.selection.entries),
        size=source.selection.head.size,
    )

    def tell() -> None:
        print_words(f"wrote {out}, {len(content):,} bytes")
        console.print(
            f"about {told.kind} {told.subject}: {told.entries} proved entries "
            f"of {told.size}; charts: {', '.join(charts) or 'none'}"
        )
        if not drawn:
            key = vkey or home.ledger / "ledger.vkey"
            print_words(f"verify it: proctor verify {out} --vkey {key}")

    return Output(told, tell)


def _source(home: Home, subject: str) -> "Source":
    """Return what the report is made from: a ledger's entries, or those that a report proves."""
    from proctor.reports.files import (  # noqa: PLC0415 - loads DuckDB
        DOCTYPE,
        MAX_FILE,
        open_report,
        read_source,
    )

    if not subject.endswith(".html"):
        return read_source(home, subject)
    if home.vkey is None:
        raise ProctorError(f"{subject} is a report, whose proofs need the public key: give --vkey")
    text = read_octets(Path(subject), most=MAX_FILE).decode(errors="replace")
    if not text.startswith(DOCTYPE):
        raise MalformedError(f"{subject} is not a report")
    return open_report(text, vkey=home.vkey)
