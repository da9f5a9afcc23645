"""The reference page of what commands print with `--json`, from the shapes."""

import textwrap
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import typer

from proctor.cli.lazy import leaves
from proctor.cli.main import app
from proctor.schemas.making import definitions, shapes
from proctor.schemas.shared import Failure

_HEAD = """# JSON of the commands

Written by `python docs/studies pages` from `proctor/schemas/`, and from the commands, which name
their shapes.

Every command takes `--json` and prints one JSON document on one line to standard output. The
servers (`notary`, `serve`, `witness serve`) print one when they are ready. Progress and warnings
go to standard error. Exit codes: [command line](cli.md).

With `--json-schema`, a command prints the JSON Schema (draft 2020-12) of its answer and exits. The
schemas are closed: a field that they do not name is an error. If a command fails, it prints a
`Failure` in place of its answer.

Numbers that are not finite are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`. Times are ISO
8601 in UTC, bytes are hexadecimal. `?` marks a field that may be missing, `| null` a value that may
be null. In rows of SQL every value may be null; [tables](tables.md) has the meaning of the columns.

## Commands

| command | prints |
|---|---|
"""
_WORDS = {"array": "list", "object": "map"}


def json_page() -> str:
    """Return the page as Markdown."""
    commands = leaves(typer.main.get_command(app))
    printed = {name: shapes(command.callback.prints) for name, command in commands}
    answers, defs = definitions([*chain.from_iterable(printed.values()), Failure])
    told = iter(answers)
    lines = [_HEAD.rstrip("\n")]
    for name, each in printed.items():
        lines.append(f"| `{name}` | {', or '.join(_kind(next(told)) for _ in each)} |")
    lines.append("\n## Shapes\n")
    for name, schema in sorted(defs.items()):
        lines += [f"### {name}\n", f"{schema.get('description', '')}\n", *_fields(schema), ""]
    return "\n".join(lines)


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = schema.get("required", ())
    told = [
        f"`{name}`{'' if name in needed else '?'} {_kind(kind)}"
        for name, kind in schema.get("properties", {}).items()
    ]
    text = "; ".join(told) or "no fields"
    yield textwrap.fill(f"{text}.", 100, break_long_words=False, break_on_hyphens=False)


def _kind(schema: Any) -> str:
    """Return a schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{str(each).lower()}`" for each in schema["enum"])
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if "NaN" not in each.get("enum", ())]
        return " \\| ".join(map(_kind, kinds))
    if isinstance(schema.get("type"), list):  # of a row, in which everything may be null
        return _kind({**schema, "type": schema["type"][0]})
    if "prefixItems" in schema:
        return f"[{', '.join(map(_kind, schema['prefixItems']))}]"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items') or {})}"
    if "properties" in schema:
        return f"row of {', '.join(f'`{name}`' for name in schema['properties'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_kind(schema['additionalProperties'])}"
    kind = str(schema.get("type", "any value"))
    return _WORDS.get(kind, kind)
