"""`proctor sql`: asks the ledger's tables."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import AsOfOption, JsonOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.answers import Form, form_of, print_answer, write_answer
from proctor.output.files import appearing
from proctor.output.paging import paged
from proctor.output.sql_shell import shell
from proctor.remembering import open_session
from projections.reading import Session

app = CommandGroup()
_OPEN = "SELECT run_id FROM run_starts ANTI JOIN run_ends USING (run_id)"


@app.command()
def sql(
    home: Home,
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
    as_json: JsonOption = False,
) -> Output | None:
    """Query the ledger's tables; the ledger is verified first. SQL cannot read files."""
    if copy is not None:
        if (query, form, output, as_of) != (None, None, None, None):
            raise ProctorError("--snapshot copies the whole file and runs no query; give it alone")
        session = open_session(home, unverified=unverified)
        with appearing(copy, home) as file:
            session.snapshot(file)
            size = file.tell()
        return Output({"snapshot": copy, "bytes": size}, f"wrote {size:,} bytes to {copy}")
    chosen = form_of(form, output, as_json=as_json)
    if query is None and output is not None:
        raise ProctorError("--output is for one answer; give the QUERY too")
    session = open_session(home, as_of=as_of, unverified=unverified)
    _tell_gone(home, session)
    if query is None:
        raise typer.Exit(shell(session, form=chosen))
    if output is None:
        with paged():
            print_answer(session, query, form=chosen)
        return None
    with appearing(output, home) as file:
        rows = write_answer(session, query, form=chosen, target=file)
    return Output({"output": output, "rows": rows}, f"wrote {counted(rows, 'row')} to {output}")


def _tell_gone(home: Home, session: Session) -> None:
    """Say how many open runs have no process any more: the tables have what is recorded."""
    gone = sum(home.is_gone(run) for (run,) in session.query(_OPEN).rows)
    if gone:
        print(
            f"note: {counted(gone, 'run')} with the state running, whose process is gone; the next "
            "command that appends closes them as crashed",
            file=sys.stderr,
        )
