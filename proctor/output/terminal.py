"""What the command line prints: tables for people, one JSON document for programs."""

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proctor.errors import ProctorError
from proctor.output.columns import Column, Shows, cells

_NARROW = 16  # characters; a column may be folded to it, and not further
_WIDTH = None if sys.stdout.isatty() else 160  # what is piped is not folded at 80
console = Console(soft_wrap=True, highlight=False, emoji=False, width=_WIDTH)
error_console = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """Print `value` as JSON; numbers that are not finite become the words NaN and Infinity."""
    # An encoding that lacks characters would break the document: JSON has escapes of its own.
    has_all = (sys.stdout.encoding or "utf-8").lower().replace("_", "-").startswith("utf")
    print(as_json(value, ensure_ascii=not has_all))


def as_json(value: Any, *, ensure_ascii: bool = False) -> str:
    """Return the JSON of `value`, in which nothing steers a terminal: same value, with escapes."""
    text = json.dumps(plain(value), ensure_ascii=ensure_ascii)
    return text if text.isprintable() else _escaped(text)


def _escaped(text: str) -> str:
    """Return JSON whose characters that cannot be printed are escaped; they are within strings."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def plain(value: Any) -> Any:
    """Return `value` in terms that JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, msgspec.Struct):
        value = {
            field.encode_name: each
            for field in msgspec.structs.fields(value)
            if (each := getattr(value, field.name)) is not msgspec.UNSET
        }
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)  # dates, times, intervals, decimals and what else SQL has


def is_text(value: str) -> bool:
    """Tell whether a text has bytes in UTF-8: one from the system may have none."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """Print rows as a table, or one below the other where there are too many columns."""
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    if sum(min(width, _NARROW) + 2 for width in widths) > console.width:
        for number, row in enumerate(texts):
            console.rule(f"{title} {number + 1}".strip(), align="left", style="dim")
            for column, text in zip(columns, row, strict=True):
                console.print(Text(f"{visible(column):<{max(map(len, columns))}}  {text}"))
        return
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(visible(column)), overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    console.print(table)


def print_rows(
    columns: Sequence[str | Column] | Mapping[str, Shows], rows: Iterable[Any], *, title: str = ""
) -> None:
    """Print what maps or objects hold as a table: under its names, or under titles."""
    told = columns.items() if isinstance(columns, Mapping) else ()
    made = [Column(*each) for each in told] or [
        each if isinstance(each, Column) else Column(each, each) for each in columns
    ]
    print_table([each.title for each in made], cells(made, rows), title=title)


def cell(value: Any) -> str:
    """Return a short text for one value."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return on_one_line(str(value))


_LEVELS = {
    "measured": "level measured: hooks saw the live model; the loop reported its losses, and "
    "nobody can train it again",
    "reported": "level reported: the loop reported all of it; nobody measured anything, and nobody "
    "can train it again",
}


def told_level(level: str | None) -> str | None:
    """Return what a run of a level below `repeatable` is evidence of, in words."""
    return _LEVELS.get(level or "")


def told_score(score: float | None) -> str:
    """Return a score in three digits, or that there can be none at the run's level of evidence."""
    return "not possible" if score is None else f"{score:.3f}"


def told_verdict(verdict: str | None, *, violations: bool) -> tuple[str, str]:
    """Return a verdict in words, and whether it is good, bad or neither.

    A run without a failed gate may still have violations, so only one without is good.
    """
    if verdict is None:
        return "not judged", ""
    if verdict == "failed":
        return "a gate failed", "bad"
    told = "consistent" if verdict == "consistent" else "no gate failed"
    return told, "" if violations else "good"


def on_one_line(text: str) -> str:
    """Return text as visible() does, its line breaks written out as well: none begins a line."""
    return visible(text).replace("\n", "\\n")


def visible(text: str) -> str:
    """Return text with its control characters written out, so that they reach no terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def words(text: object) -> str:
    """Return somebody's words for printing among our own: neither markup nor control characters."""
    return escape(visible(str(text)))


def print_words(text: object) -> None:
    """Print text as words() returns it."""
    console.print(words(text))


def warn(text: object) -> None:
    """Print the same on standard error: standard output stays the command's answer."""
    error_console.print(words(text))


def tell_part(kind: str, number: int, total: int, what: object) -> None:
    """Print on standard error how far work of several parts has come, also without a terminal."""
    warn(f"{kind} {number} of {total}: {what}")


def outline(value: Any, *, indent: int = 0) -> list[str]:
    """Return a value's lines, as in YAML: texts of several lines as they read, the rest as JSON.

    What is not printable is written with the escapes of JSON, so that no character is lost.
    """
    value, margin = plain(value), " " * indent
    if isinstance(value, str) and "\n" in value and value.replace("\n", "").isprintable():
        return [margin + "|", *(f"{margin}  {line}" for line in value.split("\n"))]
    if not value or not isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False)
        return [margin + (text if text.isprintable() else json.dumps(value))]
    lines = []
    if isinstance(value, dict):
        parts = [(f"{_name(name)}:", inner) for name, inner in value.items()]
    else:
        parts = [("-", inner) for inner in value]
    for label, inner in parts:
        first, *rest = outline(inner, indent=indent + 2)
        nested = bool(inner) and isinstance(inner, dict | list) and label != "-"
        lines.append(f"{margin}{label}" + ("" if nested else f" {first.strip()}"))
        lines += [first, *rest] if nested else rest
    return lines


def readable(text: str) -> str:
    """Return JSON as outline() writes it; anything else as visible() does."""
    try:
        return "\n".join(outline(json.loads(text)))
    except (RecursionError, ValueError):
        return visible(text)


def dotted(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a map says, by dotted names; nothing of what is no map."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from dotted(inner, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value


def _name(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else json.dumps(name)


def as_records(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows as one map each; raises ProctorError if two columns have one name."""
    if len(set(columns)) != len(columns):
        raise ProctorError(f"two columns have one name in {list(columns)}: name them apart with AS")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def records_of(tables: Any, sql: str, parameters: Any = None) -> list[dict[str, Any]]:
    """Return what DuckDB answers on a connection, one map for each row."""
    answer = tables.execute(sql, parameters)
    return as_records([column[0] for column in answer.description or ()], answer.fetchall())
