"""`proctor review`: a person's word on a decision, signed with an operator's key."""

from pathlib import Path
from typing import Annotated

import typer

from aggregates.review import MARKS, Review
from ledger.entries import AuthorKey
from proctor.cli.keys import read_private_key
from proctor.cli.options import HOME, MOST, HomeOption, JsonOption, OperatorKeyOption
from proctor.errors import EXIT_HELD, ProctorError
from proctor.home import Home
from proctor.output.terminal import console, print_json, words
from proctor.remembering import open_remembered

app = typer.Typer()


@app.command()
def review(
    index: Annotated[int, typer.Argument(min=0, max=MOST, help="Index of the decision's entry.")],
    mark: Annotated[str, typer.Argument(metavar="MARK", help="Mark: gold or bad.")],
    key: OperatorKeyOption,
    note: Annotated[str, typer.Option("--note", help="Comment.")] = "",
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Mark a decision as gold or bad; signed with an operator's key."""
    raise typer.Exit(_review(Home(home), index, mark, key=key, note=note, as_json=as_json))


def _review(home: Home, index: int, mark: str, *, key: Path, note: str, as_json: bool) -> int:
    if mark not in MARKS:
        raise ProctorError(f"a decision is marked {' or '.join(MARKS)}, not {mark!r}")
    author = AuthorKey("operator", read_private_key(key))
    home.require_ledger()
    with open_remembered(home.ledger) as ledger:
        if index >= ledger.size:
            raise ProctorError(f"there is no entry {index}; `proctor log` lists {ledger.size}")
        entry = next(ledger.entries(start=index))
    if entry.name != "run.decision_made":
        raise ProctorError(
            f"entry {index} is {entry.name}, not a decision; `proctor log` lists them by name"
        )
    made = Review.of(
        index=index,
        entry_hash=entry.entry_hash.hex(),
        run=str(entry.stream_id),
        mark=mark,
        note=note,
    )
    with home.open_log() as log:
        log.save(made, author=author)
    if as_json:
        print_json({"review": str(made.id), "index": index, "mark": mark})
    else:
        console.print(words(f"marked the decision in entry {index} as {mark}"))
    return EXIT_HELD
