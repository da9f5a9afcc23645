"""`proctor report`: a run, a campaign, a comparison or a line as one page that can be verified."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.errors import MalformedError
from ledger.progress import advanced
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.inputs import read_octets
from proctor.cli.options import VkeyOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import verify_target, write_output
from proctor.output.terminal import console, words

if TYPE_CHECKING:
    from proctor.reports.files import Source

app = CommandGroup()


@app.command(prints="ledger.ReportFiles")
def report(
    home: Home,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="Id of a run, campaign, comparison or line, the start of an id, or `latest`: the "
            "newest run. Or a report, which is written again from its own proofs.",
        ),
    ] = "latest",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the page to FILE.")
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option("--chart", metavar="NAME", help="Chart for --svg and --png, as in loss."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write one chart as SVG.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write one chart as PNG.")
    ] = None,
    vkey: VkeyOption = None,
) -> Output:
    """Write a report as one HTML file, which needs no network and can be verified."""
    if out is None and svg is None and png is None:
        raise ProctorError("name a file: -o FILE.html for the page, --svg or --png for one chart")
    if chart is None and not (svg is None and png is None):
        raise ProctorError("--svg and --png write one chart: name it with --chart")
    require_extra("report")
    from proctor.pages.charts.drawing import png as as_png  # noqa: PLC0415 - an extra
    from proctor.pages.charts.drawing import svg as as_svg  # noqa: PLC0415
    from proctor.reports.pages import charts_of, page_of  # noqa: PLC0415

    for path, others in ((out, (svg, png)), (svg, (png,)), (png, ())):
        if path is not None:
            verify_target(path, home=home, others=(*others, vkey))
    source = _source(home, subject)
    advanced("drawing charts", 0)
    charts = charts_of(source)
    chosen = None
    if chart is not None:
        chosen = charts.get(chart)
        if chosen is None:
            known = ", ".join(charts) or "none"
            raise ProctorError(f"the report has no chart {chart!r}; it has: {known}")
    made: dict[Path, bytes] = {}
    if out is not None:
        made[out] = page_of(source).encode()
    if chosen is not None and svg is not None:
        made[svg] = as_svg(chosen).encode()
    if chosen is not None and png is not None:
        made[png] = as_png(chosen)
    for path, content in made.items():
        write_output(path, content, home=home)
    many = len(source.entries)
    told = {
        "kind": source.subject.kind,
        "subject": source.subject.id,
        "files": {str(path): len(content) for path, content in made.items()},
        "charts": list(charts),
        "entries": many,
        "size": source.head.size,
    }

    def tell() -> None:
        for path, content in made.items():
            console.print(words(f"wrote {path}, {len(content):,} bytes"))
        console.print(
            f"about {source.subject.kind} {source.subject.id}: {many} proved entries "
            f"of {source.head.size}; charts: {', '.join(charts) or 'none'}"
        )
        if out is not None:
            key = vkey or home.ledger / "ledger.vkey"
            console.print(words(f"verify it: proctor verify {out} --vkey {key}"))

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
        home.require_ledger()
        return read_source(home, subject)
    if home.vkey is None:
        raise ProctorError(f"{subject} is a report, whose proofs need the public key: give --vkey")
    text = read_octets(Path(subject), most=MAX_FILE).decode(errors="replace")
    if not text.startswith(DOCTYPE):
        raise MalformedError(f"{subject} is not a report")
    return open_report(text, vkey=home.vkey)
