"""The reference page of what commands print with `--json`, from the shapes."""

from collections.abc import Mapping
from typing import Any

from proctor.schemas.commands import ANSWERS
from proctor.schemas.making import definitions
from proctor.schemas.shared import Failure

_HEAD = """# JSON of the commands

Written by `python docs/studies pages` from `proctor/schemas/`. Edit the shapes there.

Every command takes `--json` and prints one JSON document on one line to standard output. `follow`
prints one document for each check, and the servers (`notary`, `serve`, `witness serve`) print one
when they are ready. Progress and warnings go to standard error. Exit codes:
[command line](cli.md).

`proctor schema COMMAND` prints the JSON Schema (draft 2020-12) of a command's answer, with its
fields, their types and which may be missing or null; `proctor schema` prints all of them. The
schemas are closed: a field that they do not name is an error. Of a command that fails:
**Failure**: {failure}

Numbers that are not finite are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`. Times are ISO
8601 in UTC, bytes are hexadecimal. In rows of SQL every value may be null; [tables](tables.md) has
the meaning of the columns.

"""


def json_page() -> str:
    """Return the page as Markdown."""
    shapes = [shape for each in ANSWERS.values() for shape in each]
    answers, defs = definitions((*shapes, Failure))
    told = iter(answers)
    lines = [_HEAD.format(failure=_described(defs["Failure"])).rstrip("\n") + "\n"]
    seen: set[str] = set()
    for name, each in ANSWERS.items():
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
