"""The page of events and the tables of events, from the declarations in `aggregates/`.

What stands behind a field, or on the lines above it, is what the field means: on the page and as
the comment of its column. I/O: reads the sources of the aggregates and the page.
"""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from aggregates.events import OneOf
from aggregates.registry import REGISTRY
from ledger.mapper import LIBRARY_FIELDS, EventType
from projections.mapping import SCHEMA, Rows
from projections.rows import STATED

__all__ = ["events_page", "events_tables"]

_PAGE = Path(__file__).parents[2] / "reference" / "events.md"
_SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_FIELDS = re.compile(r"^\*\*.*?\n(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_BEHIND = re.compile(r"  # (?!type:|noqa)(.*)$")
_STREAMS = {
    "advice": "the advice to a model",
    "bisection": "the search",
    "credit": "the measurement",
}
_TYPES = {int: "INTEGER", str: "VARCHAR", float: "DOUBLE", bool: "BOOLEAN"}
_SIGNED = "signed_by VARCHAR"
_HEAD = """\
-- Written by `python docs/studies pages` from the declarations in aggregates/: a table for each
-- event that becomes one row of a table of its own.
"""


def events_page() -> str:
    """Return the page as Markdown; what stands in it beside fields and their meaning is kept."""
    page = _PAGE.read_text(encoding="utf-8")
    known = dict(_SECTION.findall(page))
    last: EventType | None = None
    for each in REGISTRY:
        told = _section(each, known.get(each.name, ""))
        if each.name in known:
            page = page.replace(f"### {each.name}\n{known[each.name]}", told)
        elif last is not None and _stream(last) == _stream(each):
            page = _after(page, last.name, told)
        else:
            page = f"{page.rstrip()}\n\n## Stream: {_stream(each)}\n\n{told}"
        last = each
    return page.rstrip("\n") + "\n"


def events_tables() -> str:
    """Return the SQL of the tables that events are rows of, without anything to say by hand."""
    return "\n".join([_HEAD, *(_table(*told) for told in _own_tables())])


def _stream(event: EventType) -> str:
    return event.event_class.__qualname__.split(".")[-2].lower()


def _after(page: str, name: str, told: str) -> str:
    [place] = [each.end() for each in _SECTION.finditer(page) if each[1] == name]
    return page[:place] + told + page[place:]


def _section(event: EventType, known: str) -> str:
    """Return an event's section: its docstring, its fields, then what the page says of them."""
    _, *kept = _FIELDS.split(known, maxsplit=1)
    meanings = _meanings(event.event_class)
    listed = "; ".join(
        f"**{name}**: {text}" if (text := meanings[name]) else f"**{name}**"
        for name in _fields(event)
    )
    lead = [_wrapped(part) for part in _docstring(event.event_class).split("\n\n")]
    parts = [*lead, _wrapped(f"{listed}." if listed else "**No fields.**"), *kept]
    return (
        f"### {event.name}\n" + "\n\n".join(part.strip() for part in parts if part.strip()) + "\n\n"
    )


def _wrapped(text: str) -> str:
    words = " ".join(text.split())
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)


def _docstring(event_class: type) -> str:
    return inspect.cleandoc(_definition(event_class)[0].body[0].value.value)  # type: ignore[attr-defined]


def _fields(event: EventType) -> list[str]:
    return [each.name for each in fields(event.event_class) if each.name not in LIBRARY_FIELDS]


def _definition(event_class: type) -> tuple[ast.ClassDef, list[str]]:
    lines = Path(inspect.getfile(event_class)).read_text(encoding="utf-8").split("\n")
    aggregate, own = event_class.__qualname__.split(".")[-2:]
    [outer] = [each for each in ast.parse("\n".join(lines)).body if _is_class(each, aggregate)]
    [found] = [each for each in outer.body if _is_class(each, own)]  # type: ignore[attr-defined]
    return found, lines


def _is_class(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def _meanings(event_class: type) -> dict[str, str]:
    """Return the comments above and behind each field, and the choices that it has."""
    found = {}
    definition, lines = _definition(event_class)
    for field in definition.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            behind = _BEHIND.search(lines[(field.end_lineno or field.lineno) - 1])
            told = [behind[1]] if behind else []
            above = field.lineno - 2
            while lines[above].lstrip().startswith("# "):
                told.insert(0, lines[above].lstrip()[2:])
                above -= 1
            found[field.target.id] = " ".join(told)
    for name, hint in get_type_hints(event_class, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OneOf) and mark.choices[0] not in found[name]:
                *most, last = (f"`{choice}`" for choice in mark.choices)
                found[name] = "; ".join(filter(None, (f"{', '.join(most)} or {last}", found[name])))
    return found


def _own_tables() -> Iterator[tuple[EventType, Rows]]:
    by_hand = SCHEMA.read_text(encoding="utf-8")
    for each in REGISTRY:
        match STATED.get(each.name, (Rows(each.name.replace(".", "_")),)):
            case [Rows(table=table, parts=None) as told] if f"TABLE {table} (" not in by_hand:
                yield each, told


def _table(event: EventType, told: Rows) -> str:
    hints = get_type_hints(event.event_class, include_extras=True)
    meanings = _meanings(event.event_class)
    stream = _stream(event)
    columns = [
        (f"{stream}_id VARCHAR NOT NULL", _STREAMS.get(stream, f"the {stream}")),
        ("idx BIGINT NOT NULL", ""),
        *((f"{told.column(name)} {_sql(hints[name])}", meanings[name]) for name in _fields(event)),
        *([(_SIGNED, "")] if told.signer else []),
        *([(f"{told.hashed} VARCHAR NOT NULL", _HASHED)] if told.hashed else []),
    ]
    lines = [
        f"    {column}{',' if place < len(columns) else ''}{_note(text)}"
        for place, (column, text) in enumerate(columns, start=1)
    ]
    says = " ".join(_docstring(event.event_class).replace("`", "").split()).rstrip(".")
    meaning = f"{says} (event {event.name})".replace("'", "''")
    return (
        f"CREATE TABLE {told.table} (\n" + "\n".join(lines) + "\n);\n"
        f"COMMENT ON TABLE {told.table} IS '{meaning}';\n"
    )


_HASHED = "hash of the entry, hexadecimal; it covers all entries before it"


def _note(text: str) -> str:
    plain = text.replace("`", "")
    if not plain:
        return ""
    return f"  -- {plain if text.startswith('`') else plain[0].upper() + plain[1:]}"


def _sql(hint: Any) -> str:
    """Return the type of a column that holds values of a declared type."""
    kinds = [*_parts_of(hint)]
    bare = [each for each in kinds if each is not type(None)]
    wide = any(isinstance(each, msgspec.Meta) and (each.le or 0) >= 1 << 31 for each in bare)
    named = [each for each in bare if not isinstance(each, msgspec.Meta)]
    kind = "JSON"
    if len(named) == 1:
        kind = _TYPES.get(named[0], "JSON")
    return ("BIGINT" if wide else kind) + ("" if type(None) in kinds else " NOT NULL")


def _parts_of(hint: Any) -> Iterator[Any]:
    """Yield the types that a value may have, and the bounds on them."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _parts_of(get_args(hint)[0])
        yield from (each for each in hint.__metadata__ if isinstance(each, msgspec.Meta))
    elif origin in (Union, types.UnionType):
        for each in get_args(hint):
            yield from _parts_of(each)
    else:
        yield hint
