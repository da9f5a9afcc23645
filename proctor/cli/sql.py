"""`proctor sql`: asks the ledger's tables."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Argument, AsOfOption, JsonOption, Takes
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.answers import Form, form_of, print_answer, write_answer
from proctor.output.files import appearing
from proctor.output.paging import paged
from proctor.output.shape import Answer
from proctor.output.sql_shell import shell
from proctor.output.terminal import print_rows
from proctor.remembering import held_session, open_session
from projections.cookbook import recipes
from projections.reading import Session

app = CommandGroup()
_OPEN = "SELECT run_id FROM run_starts ANTI JOIN run_ends USING (run_id)"


class Snapshot(Answer):
    """A copy of the tables."""

    snapshot: Path
    bytes: int


class Written(Answer):
    """An answer in a file."""

    out: Path
    rows: int


@app.command(prints=list[dict[str, Any]] | Snapshot | Written)
def sql(
    home: Home,
    query: Annotated[
        str | None,
        "SQL statement (DuckDB), or the name of a recipe. Without one, start a shell.",
        Argument("[QUERY]"),
    ] = None,
    form: Annotated[
        Form | None,
        "Output format; by default a table, or the format of the file name.",
        Takes(option="--format"),
    ] = None,
    out: Annotated[
        Path | None,
        "Write the result to this file. Without QUERY, and with a name that ends in "
        ".duckdb: copy all tables, for other tools.",
    ] = None,
    names: Annotated[
        bool, "List the recipes: questions that SQL here answers.", Takes(option="--list")
    ] = False,
    as_of: AsOfOption = None,
    unverified: Annotated[bool, "Do not verify the ledger first."] = False,
    as_json: JsonOption = False,
) -> Output | None:
    """Query the ledger's tables; the ledger is verified first. SQL cannot read files."""
    known = {each.name: each for each in recipes()}
    if names:
        listed = [{"name": each.name, "question": each.title} for each in known.values()]
        return Output(listed, lambda: print_rows(("name", "question"), listed))
    if query is None and out is not None:
        if out.suffix != ".duckdb":
            raise ProctorError(
                f"{out}: give the QUERY too; only a copy of all tables, whose name "
                "ends in .duckdb, needs none"
            )
        if form is not None or as_of is not None:
            raise ProctorError(f"{out} is a copy of all tables: leave out --format and --as-of")
        session = open_session(home, unverified=unverified)
        with appearing(out, home) as file:
            session.snapshot(file)
            size = file.tell()
        return Output(Snapshot(snapshot=out, bytes=size), f"wrote {size:,} bytes to {out}")
    chosen = form_of(form, out, as_json=as_json)
    if query in known:
        query = known[query].sql
    if query is None:
        session = open_session(home, as_of=as_of, unverified=unverified)
        _tell_gone(home, session)
        raise typer.Exit(shell(session, form=chosen))
    with ExitStack() as stack:
        session = stack.enter_context(held_session(home, as_of=as_of, unverified=unverified))
        _tell_gone(home, session)
        if out is None:
            with paged():
                print_answer(session, query, form=chosen)
                stack.close()  # the file is free while somebody reads
            return None
        with appearing(out, home) as file:
            rows = write_answer(session, query, form=chosen, target=file)
    return Output(Written(out=out, rows=rows), f"wrote {counted(rows, 'row')} to {out}")


def _tell_gone(home: Home, session: Session) -> None:
    """Say how many open runs have no process any more: the tables have what is recorded."""
    gone = sum(home.is_gone(run) for (run,) in session.query(_OPEN).rows)
    if gone:
        print(
            f"note: {counted(gone, 'run')} with the state running, whose process is gone; the next "
            "command that appends closes them as crashed",
            file=sys.stderr,
        )
