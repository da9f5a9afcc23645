"""`proctor review`: a person's word on a decision, signed with an operator's key."""

from typing import Annotated

import typer

from aggregates.review import MARKS, Review
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.inputs import operator_key
from proctor.cli.options import MOST, OperatorKeyOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import open_remembered

app = CommandGroup()


def _read_mark(text: str) -> str:
    if text not in MARKS:
        raise ProctorError(f"a decision is marked {' or '.join(MARKS)}, not {text!r}")
    return text


@app.command(long=True, prints="curation.Reviewed")
def review(
    home: Home,
    index: Annotated[int, typer.Argument(min=0, max=MOST, help="Index of the decision's entry.")],
    mark: Annotated[
        str, typer.Argument(metavar="MARK", help="Mark: gold or bad.", parser=_read_mark)
    ],
    key: OperatorKeyOption,
    note: Annotated[str, typer.Option("--note", help="Comment.")] = "",
) -> Output:
    """Mark a decision as gold or bad; signed with an operator's key."""
    author = operator_key(key)
    home.require_ledger()
    with open_remembered(home) as ledger:
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
    return Output(
        {"review": str(made.id), "index": index, "mark": mark},
        f"marked the decision in entry {index} as {mark}",
    )
