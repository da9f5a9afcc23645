"""The reference page of what commands print with `--json`, from the shapes."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import typer

from proctor.cli.lazy import leaves
from proctor.cli.main import app
from proctor.output.schemas import Failure, definitions, shapes

_HEAD = """# JSON of the commands

Written by `python docs/studies pages` from the types of the commands' answers.

Every command takes `--json` and prints one JSON document on one line to standard output. The
servers (`notary`, `serve`, `witness serve`) print one when they are ready. Progress and warnings
go to standard error. Exit codes: [command line](cli.md).

With `--json-schema`, a command prints the JSON Schema (draft 2020-12) of its answer, with its
fields, their types and which may be missing or null. The schemas are closed: a field that they do
not name is an error. Of a command that fails: **Failure**: {failure}

Numbers that are not finite are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`. Times are ISO
8601 in UTC, bytes are hexadecimal. In rows of SQL every value may be null; [tables](tables.md) has
the meaning of the columns.

"""


def json_page() -> str:
    """Return the page as Markdown."""
    commands = leaves(typer.main.get_command(app))
    printed = {name: shapes(command.callback.prints) for name, command in commands}
    answers, defs = definitions([*chain.from_iterable(printed.values()), Failure])
    told = iter(answers)
    lines = [_HEAD.format(failure=_described(defs["Failure"])).rstrip("\n") + "\n"]
    seen: set[str] = set()
    for name, each in printed.items():
        kinds = []
        for _ in each:
            kind, shape = _kind(next(told))
            new = shape in defs and shape not in seen
            kinds.append(f"{kind}: {_described(defs[shape])}" if new else f"{kind}.")
            seen.add(shape)
        lines.append(f"- `{name}` {' Or '.join(kinds)}")
    return "\n".join(lines) + "\n"


def _described(schema: Mapping[str, Any]) -> str:
    return " ".join(str(schema.get("description", "")).split())


def _kind(schema: Any) -> tuple[str, str]:
    """Return what a document is, in words, and the name of its shape."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"**{name}**", name
    if schema.get("type") == "array":
        kind, name = _kind(schema.get("items") or {})
        return f"list of {kind}", name
    return ("map" if schema.get("type") == "object" else str(schema["type"])), ""
