"""How events become rows of a table: the values of each column, for many events of a kind at once.

events.sql has a table for each event that becomes one row; it is written from what the event
declares (aggregates/). schema.sql has the others. A column takes the field of the same name; Rows
states only what differs from that.

Trust: bodies may be malformed; whoever asks for columns expects ODD.
I/O: reads schema.sql and events.sql.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, repeat
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import orjson

from aggregates.canonical import finite
from aggregates.errors import AggregateError
from ledger.entries import Author
from ledger.errors import LedgerError
from projections.errors import ProjectionError

Body = Mapping[str, Any]
Check = Callable[[Body, str], None]
"""Raises ValueError for a body that cannot be in the stream of this id."""
Parts = Callable[[Body], Sequence[Body]]
"""What of a body are rows of their own."""
Columns = dict[str, list[Any]]
"""The values of each column of a table."""

SCHEMA, EVENTS = (Path(__file__).with_name(name) for name in ("schema.sql", "events.sql"))
_TABLE = re.compile(r"^CREATE TABLE (\w+) \(\n(.+?)\n\);", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^    "?(\w+)"? (\w+)( NOT NULL)?', re.MULTILINE)
_IDS = ("audit", "campaign", "checkpoint", "line", "proposal", "run", "valley")
EVENTS_SQL = EVENTS.read_text(encoding="utf-8")
TABLES_SQL = SCHEMA.read_text(encoding="utf-8") + EVENTS_SQL
TABLES: Mapping[str, Mapping[str, tuple[str, bool]]] = MappingProxyType(
    {
        table: {column: (kind, not required) for column, kind, required in _COLUMN.findall(columns)}
        for table, columns in _TABLE.findall(TABLES_SQL)
    }
)
"""Type and nullability of each column of each table, in order."""
OF_EVENTS = tuple(table for table, _ in _TABLE.findall(EVENTS_SQL))
"""The tables of events.sql."""

_NONE = type(None)
# What of a body a column takes; JSON takes everything. A time is in microseconds since 1970.
_TYPES: dict[str, set[type]] = {
    "BIGINT": {int},
    "BOOLEAN": {bool},
    "DOUBLE": {float, int},
    "INTEGER": {int},
    "TIMESTAMP": {int},
    "VARCHAR": {str},
}
_BITS = {"BIGINT": 63, "INTEGER": 31}
_STRICT = json.JSONEncoder(allow_nan=False, default=bytes.hex)

# What hostile bodies make of the code that reads them.
ODD = (
    AggregateError,
    AttributeError,
    IndexError,
    KeyError,
    LedgerError,
    OverflowError,
    ProjectionError,
    RecursionError,
    TypeError,
    ValueError,
)


class Item(msgspec.Struct, frozen=True, gc=False):
    """What the rows of an entry say of the entry itself, and its body."""

    index: int
    time_ns: int
    stream: str
    version: int
    name: str
    body: bytes
    author: Author | None
    entry_hash: str  # hexadecimal


class Rows:
    """The rows that an event becomes in one table: one, or one for each of its parts.

    `idx` takes the entry's index, `place` a part's number, from 0, and columns in `always` that
    value. All others take the field that the event declares under their name, that name without
    `_id`, or the one in `keys`. Where it declares none, the first column takes the stream's id;
    the others take the value from each of the `parts`, or NULL if there are no parts.

    `signed_by` takes the author's key if it was signed in the role `signer`. The column `hashed`
    takes the entry's hash.

    Of an event that a stream has `once`, readers see the first only: somebody who can append to the
    ledger added the later ones, which the view misplaced_entries has.
    """

    def __init__(
        self,
        table: str,
        *,
        check: Check | None = None,
        parts: Parts | None = None,
        always: Mapping[str, Any] = MappingProxyType({}),
        signer: str | None = None,
        hashed: str | None = None,
        once: bool = False,
        **keys: str,
    ) -> None:
        self.table, self.check, self.parts, self.always = table, check, parts, always
        self.signer, self.hashed, self.once, self.keys = signer, hashed, once, keys

    def column(self, field: str) -> str:
        """Return the column that takes a field, in a table that is made from the declaration."""
        named = {key: column for column, key in self.keys.items()}
        return named.get(field, f"{field}_id" if field in _IDS else field)

    def columns(
        self, items: Sequence[Item], bodies: Sequence[Body], fields: frozenset[str]
    ) -> Columns:
        """Return what becomes of events of a kind that declares these fields."""
        if self.check is not None:
            for item, body in zip(items, bodies, strict=True):
                self.check(body, item.stream)
        stream, told, part = _sources(self, fields)
        outer: dict[str, Iterable[Any]] = {
            **{column: repeat(value, len(items)) for column, value in self.always.items()},
            **{column: map(itemgetter(key), bodies) for column, key in told.items()},
            "idx": [item.index for item in items],
        }
        if stream is not None:
            outer[stream] = [item.stream for item in items]
        if self.signer is not None:
            outer["signed_by"] = [_key_of(item.author, self.signer) for item in items]
        if self.hashed is not None:
            outer[self.hashed] = [item.entry_hash for item in items]
        found = fitted(self.table, outer)
        if self.parts is not None:
            parts = [[*self.parts(body)] for body in bodies]
            flat, counts = [*chain.from_iterable(parts)], [*map(len, parts)]
            found = {
                column: [*chain.from_iterable(map(repeat, values, counts))]
                for column, values in found.items()
            }
            inner: dict[str, Iterable[Any]] = {
                column: map(itemgetter(key), flat) for column, key in part.items()
            }
            if "place" in TABLES[self.table]:
                inner["place"] = chain.from_iterable(map(range, counts))
            found |= fitted(self.table, inner)
        lacking = dict.fromkeys(TABLES[self.table].keys() - found, [None] * len(found["idx"]))
        return {**found, **fitted(self.table, lacking)}


@cache
def _sources(
    told: Rows, fields: frozenset[str]
) -> tuple[str | None, Mapping[str, str], Mapping[str, str]]:
    """Return the column for the stream's id, and keys of the body and of a part by column."""
    given = {"idx", "place", told.hashed, *told.always, *(["signed_by"] if told.signer else [])}
    stream: str | None = None
    of_body: dict[str, str] = {}
    of_part: dict[str, str] = {}
    for column in TABLES[told.table]:
        key = told.keys.get(column, column)
        if column in given:
            continue
        if (short := key.removesuffix("_id")) in fields or key in fields:
            of_body[column] = key if key in fields else short
        elif not (of_body or of_part or stream):
            stream = column
        elif told.parts is not None:
            of_part[column] = key
    return stream, of_body, of_part


def fitted(table: str, found: Mapping[str, Iterable[Any]]) -> Columns:
    """Return values as columns of a table take them.

    Raises ProjectionError naming the first column that a value does not fit.
    """
    return {
        column: _fitted(f"{table}.{column}", [*values], *TABLES[table][column])
        for column, values in found.items()
    }


def _fitted(place: str, values: list[Any], kind: str, nullable: bool) -> list[Any]:
    types = set(map(type, values))
    if _NONE in types and not nullable:
        raise ProjectionError(f"{place} is missing")
    if kind == "JSON":
        return [None if value is None else json_text(value) for value in values]
    if not types <= _TYPES[kind] | {_NONE}:
        odd = next(each for each in values if type(each) not in _TYPES[kind] and each is not None)
        raise ProjectionError(f"{place} must be a {kind}, not {odd!r:.80}")
    if kind in _BITS and int in types:
        numbers = [value for value in values if value is not None] if _NONE in types else values
        most = 1 << _BITS[kind]
        for odd in (min(numbers), max(numbers)):
            if not -most <= odd < most:
                raise ProjectionError(f"{place} must be a {kind}, not {odd!r:.80}")
    if kind == "DOUBLE" and int in types:
        return [None if value is None else float(value) for value in values]
    return values


def _key_of(author: Author | None, role: str) -> str | None:
    """Return the key that an event was signed with, if it was by who may."""
    return author.key_id.hex() if author is not None and author.role == role else None


def json_text(value: Any) -> str:
    """Return what a JSON column holds of a value."""
    text = orjson.dumps(value, default=bytes.hex)
    if b"null" in text:  # it may have been a number that JSON does not have
        try:
            _STRICT.encode(value)
        except ValueError:
            text = orjson.dumps(finite(value), default=bytes.hex)
    return text.decode()
