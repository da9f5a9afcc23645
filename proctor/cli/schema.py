"""`proctor schema`: the JSON Schema of what a command prints with `--json`."""

import json
from typing import Annotated

import typer

from proctor.cli.command_group import CommandGroup, Output
from proctor.errors import ProctorError

app = CommandGroup()


@app.command(long=True)
def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND]", help="Command, as in `keys list`; by default all."),
    ] = None,
) -> Output:
    """Print the JSON Schema of what a command prints with --json."""
    from proctor.schemas.commands import ANSWERS  # noqa: PLC0415 - loads DuckDB
    from proctor.schemas.making import document  # noqa: PLC0415 - likewise

    name = " ".join(command or ())
    if name and name not in ANSWERS:
        below = [each for each in ANSWERS if each.startswith(f"{name} ")]
        raise ProctorError(
            f"there is no command {name!r}"
            + (f"; choose from {', '.join(below)}" if below else "; `proctor --help` lists them")
        )
    if name:
        found = document(name, ANSWERS[name])
    else:
        found = {each: document(each, shapes) for each, shapes in ANSWERS.items()}
    return Output(found, lambda: print(json.dumps(found, indent=1)))
