"""JSON Schemas of what commands print, made from typed shapes.

Every object with named fields is closed: a field that the shape does not name is an error. Rows of
SQL have the columns of the question that the command asks.

I/O: none but an in-memory database.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from types import UnionType
from typing import Any, TypedDict, get_args, get_origin

import duckdb
import msgspec

from proctor.errors import ProctorError
from proctor.output.shape import SQL
from projections.projector import create_schema
from projections.template import copied

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_OTHER = ("contentEncoding", "default", "format")  # as msgspec would print, and we do not
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["-Infinity", "Infinity", "NaN"]}]}
_TYPES: Mapping[str, dict[str, Any]] = {  # type of DuckDB -> what terminal.plain() makes of it
    "boolean": {"type": "boolean"},
    "double": _NUMBER,
    "float": _NUMBER,
    **{
        name: {"type": "integer"}
        for name in ("tinyint", "smallint", "integer", "bigint", "hugeint", "ubigint", "uinteger")
    },
}


class Failure(TypedDict):
    """What every command prints in place of its answer if it fails; exit code 1 or 2."""

    error: str  # the kind, as in ProctorError
    message: str
    exit_code: int


def shapes(prints: Any) -> list[Any]:
    """Return the shapes of a command: types, or their names, as in `runs.Trained | list[x.Y]`."""
    if not isinstance(prints, str):
        return [*get_args(prints)] if get_origin(prints) is UnionType else [prints]
    found = []
    for name in prints.split(" | "):
        path, _, shape = name.removeprefix("list[").rstrip("]").rpartition(".")
        module = path if "." in path else f"proctor.{path}.shapes"
        each: Any = getattr(import_module(module), shape)
        found.append(list[each] if name.startswith("list[") else each)
    return found


def document(name: str, shapes: Sequence[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a command whose answer has one of these shapes, or is a Failure."""
    answers, defs = definitions((*shapes, Failure))
    return {
        "$schema": _DRAFT,
        "title": f"{name} --json",
        "anyOf": list(answers),
        "$defs": defs,
    }


def definitions(shapes: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the schema of each shape, and the definitions to which they refer."""
    try:
        answers, defs = msgspec.json.schema_components(shapes, schema_hook=lambda _: _TEXT)
    except TypeError as error:
        raise ProctorError(f"no schema of {shapes}: {error}") from error
    rows: dict[str, Any] = {}
    closed = tuple(_closed(each, rows) for each in answers)
    return closed, {**_closed(defs, rows), **rows}


def _closed(schema: Any, rows: dict[str, Any]) -> Any:
    """Return a schema in which objects have no other fields than those named; keep its rows."""
    if isinstance(schema, list | tuple):
        return [_closed(each, rows) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if SQL in schema:
        name = schema["title"]
        rows[name] = {"description": schema["description"], **_row(schema[SQL])}
        return {"$ref": f"#/$defs/{name}"}
    if schema.get("type") == "number":
        return _NUMBER
    found = {key: _closed(each, rows) for key, each in schema.items() if key not in _OTHER}
    if "properties" in schema:  # whose names are no keywords
        fields = schema["properties"]
        found["properties"] = {name: _closed(each, rows) for name, each in fields.items()}
        found["additionalProperties"] = False
        required = {name for name, each in fields.items() if "default" in each}
        required |= {*schema.get("required", ())}
        found["required"] = [name for name in fields if name in required]
    if "anyOf" in found:  # of which those of a number are some
        kinds = [each.get("anyOf", [each]) for each in found["anyOf"]]
        found["anyOf"] = [*chain.from_iterable(kinds)]
    return found


@cache
def _row(sql: str) -> dict[str, Any]:
    asked = f"SELECT * FROM ({sql}) LIMIT 0"  # noqa: S608 - our own question
    numbered = {*re.findall(r"\$\d", sql)}
    found = _tables().execute(asked, [None] * max(sql.count("?"), len(numbered)))
    return _fields([(name, kind) for name, kind, *_ in found.description or ()])


def _fields(kinds: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _nullable(kind) for name, kind in kinds},
        "required": [name for name, _ in kinds],
        "additionalProperties": False,
    }


def _nullable(kind: Any) -> dict[str, Any]:
    value = _value(kind)
    if "type" in value:
        return {**value, "type": [value["type"], "null"]}
    return {"anyOf": [*value["anyOf"], {"type": "null"}]}


def _value(kind: Any) -> dict[str, Any]:
    """Return the schema of a type of DuckDB."""
    match kind.id:
        case "list":
            ((_, inner),) = kind.children
            return {"type": "array", "items": _nullable(inner)}
        case "struct":
            return _fields(kind.children)
        case "map":
            return {"type": "object"}
    return _TYPES.get(kind.id, {"type": "string"})


@cache
def _tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    copied(connection, create_schema)
    return connection
