"""Compares what commands print with --json with their JSON Schemas, as far as these are used."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import typer

from proctor.cli.lazy import load
from proctor.cli.main import app
from proctor.output.schemas import document, shapes

_KINDS: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
_KNOWN = {  # a keyword that is not here would be passed over in silence
    *("$defs", "$ref", "$schema", "additionalProperties", "anyOf", "description", "enum"),
    *("items", "maxItems", "minItems", "prefixItems", "properties", "required", "title", "type"),
}


def check_json(arguments: Sequence[str], printed: str) -> None:
    """Raise AssertionError unless every document is of the command's schema."""
    schema = _schema(_printed_by(arguments))
    for line in printed.splitlines():
        assert not (problem := faults(json.loads(line), schema)), (
            arguments,
            problem,
            line,
        )


def _printed_by(arguments: Sequence[str]) -> Any:
    """Return the shapes that a command prints, or their names."""
    command: Any = typer.main.get_command(app)
    for word in arguments:
        command = load(command)
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
    return load(command).callback.prints


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of what a command prints."""
    return _schema(_printed_by(command.split()))


@cache
def _schema(prints: Any) -> dict[str, Any]:
    return document(str(prints), shapes(prints))


def faults(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a value; of several alternatives, with that which is nearest."""
    return list(_faults(value, schema, schema.get("$defs", {}), "$"))


def _faults(value: Any, schema: Any, defs: Mapping[str, Any], place: str) -> Iterator[str]:
    if unknown := set(schema) - _KNOWN:
        yield f"{place}: the schema has keywords that nothing checks: {sorted(unknown)}"
    if "$ref" in schema:
        yield from _faults(value, defs[schema["$ref"].rpartition("/")[2]], defs, place)
    if "anyOf" in schema:
        ways = [list(_faults(value, each, defs, place)) for each in schema["anyOf"]]
        yield from min(ways, key=len)
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is not in {schema['enum']}"
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        allowed = tuple(kind for each in kinds for kind in _KINDS[each])
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            yield f"{place}: {value!r} is not of type {kinds}"
            return
    if isinstance(value, dict):
        yield from _faults_of_fields(value, schema, defs, place)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{place}: {len(value)} items"
        for number, (each, kind) in enumerate(zip(value, first, strict=False)):
            yield from _faults(each, kind, defs, f"{place}[{number}]")
        for number, each in enumerate(value[len(first) :], start=len(first)):
            yield from _faults(each, schema.get("items") or {}, defs, f"{place}[{number}]")


def _faults_of_fields(
    value: Mapping[str, Any], schema: Any, defs: Mapping[str, Any], place: str
) -> Iterator[str]:
    named = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}: {name} is missing"
    for name, each in value.items():
        others = schema.get("additionalProperties", {})
        if name not in named and others is False:
            yield f"{place}: {name} is not in the schema"
        elif name in named or others is not True:
            yield from _faults(each, named.get(name, others), defs, f"{place}.{name}")
