"""`proctor sql` and `proctor follow`: the ledger's tables asked, and kept up to date meanwhile."""

import tempfile
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ledger.errors import VerificationError
from ledger.verification.memory import Memory
from ledger.verification.reader import check_new
from proctor.cli.options import HOME, AsOfOption, HomeOption, JsonOption
from proctor.errors import EXIT_HELD, ProctorError
from proctor.home import Home
from proctor.output.answers import Form, form_of, print_answer, write_answer
from proctor.output.files import appearing
from proctor.output.sql_shell import shell
from proctor.output.terminal import console, print_json, words
from proctor.remembering import bring_up_to_date, memory, open_session
from projections.cache import catch_up
from projections.errors import BusyError
from projections.reading import snapshot

app = typer.Typer()


@app.command()
def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]", help="SQL statement (DuckDB). Without one, start a shell."
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format", help="Output format; by default a table, or the format of the file name."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the result to this file.")
    ] = None,
    as_of: AsOfOption = None,
    copy: Annotated[
        Path | None,
        typer.Option("--snapshot", help="Run no query; copy the DuckDB file for other tools."),
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Do not verify the ledger first.")
    ] = False,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Query the ledger's tables; the ledger is verified first. SQL cannot read files."""
    place = Home(home)
    if copy is not None:
        if (query, form, output, as_of) != (None, None, None, None):
            raise ProctorError("--snapshot copies everything and asks nothing; give it alone")
        bring_up_to_date(place, unverified=unverified)
        with appearing(copy, place) as file:
            snapshot(place.projection, file)
            size = file.tell()
        _tell({"snapshot": copy, "bytes": size}, as_json=as_json)
    chosen = form_of(form, output, as_json=as_json)
    if query is None and output is not None:
        raise ProctorError("--output is for one answer; give the QUERY too")
    session = open_session(place, as_of=as_of, unverified=unverified)
    if query is None:
        raise typer.Exit(shell(session, form=chosen))
    if output is None:
        print_answer(session, query, form=chosen)
        raise typer.Exit(EXIT_HELD)
    with appearing(output, place) as file:
        rows = write_answer(session, query, form=chosen, target=file)
    _tell({"output": output, "rows": rows}, as_json=as_json)


@app.command()
def follow(
    every: Annotated[
        float, typer.Option("--every", min=0.05, max=3600, help="Seconds between two checks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Catch up once and exit.")] = False,
    home: HomeOption = HOME,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON document for each check that found new entries."
        ),
    ] = False,
) -> None:
    """Keep the tables up to date during runs; new entries are verified first.

    Ctrl-C leaves. The file is held only while news are applied, so that others can ask meanwhile.
    """
    place = Home(home)
    place.require_ledger()
    position: int | None = None
    with tempfile.TemporaryDirectory(prefix="proctor-follow-") as name:
        known = memory() or Memory(Path(name))
        while True:
            position = look(place, known, position, as_json=as_json)
            if once:
                raise typer.Exit(EXIT_HELD)
            time.sleep(every)


def look(home: Home, known: Memory, position: int | None, *, as_json: bool) -> int | None:
    """Verify what is new and apply that much; return how far the projection has come."""
    directory = home.ledger
    report = check_new(directory, memory=known, signatures="newest")
    if not report.ok:
        raise VerificationError(report.error or "the ledger does not hold")
    if report.size == position:
        return position
    try:
        done = catch_up(home.projection, directory, stop=report.size)
    except BusyError:  # somebody asks for long; next time
        return position
    if done.applied or position is None:
        if as_json:
            print_json({"applied": done.applied, "position": done.position, "note": done.note})
        else:
            told = f"{done.applied:,} new entries; up to date with {done.position:,}"
            console.print(words(f"{told} ({done.note})" if done.note else told))
    return done.position


def _tell(told: dict[str, object], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json(told)
    else:
        (_, file), (unit, count) = told.items()
        console.print(words(f"wrote {count:,} {unit} to {file}"))
    raise typer.Exit(EXIT_HELD)
