"""How an event becomes rows of a table: defined once, for one event or for many of a kind.

schema.sql defines tables, columns and types; a column takes the value that the event's body has
under the same name. rows() states only what differs from that.

Trust: bodies may be malformed; KeyError, TypeError, AttributeError, ValueError and AggregateError
are the caller's to expect.
I/O: reads schema.sql.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from ledger.entries import Author

__all__ = [
    "SCHEMA",
    "TABLES",
    "Body",
    "Columns",
    "Derived",
    "Row",
    "Rows",
    "named",
    "rows",
]

Body = Mapping[str, Any]
Row = tuple[str, dict[str, Any]]  # table, column -> value
Parts = Callable[[Body, str], Sequence[Body]]
"""What of a body, in the stream of this id, are rows of their own."""
"""Path, type and nullability of what derived columns need; see fields.py."""
Columns = Mapping[str, tuple[str, bool]]
"""Type and nullability of each column of a table, in order."""

SCHEMA = Path(__file__).with_name("schema.sql")
_TABLE = re.compile(r"^CREATE TABLE (\w+) \(\n(.+?)\n\);", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^    "?(\w+)"? (\w+)( NOT NULL)?', re.MULTILINE)
TABLES: Mapping[str, Columns] = MappingProxyType(
    {
        table: {column: (kind, not required) for column, kind, required in _COLUMN.findall(columns)}
        for table, columns in _TABLE.findall(SCHEMA.read_text(encoding="utf-8"))
    }
)
# What of a body a column takes; JSON takes everything.
TYPES: dict[str, tuple[type, ...]] = {
    "BIGINT": (int,),
    "BOOLEAN": (bool,),
    "DOUBLE": (float, int),
    "INTEGER": (int,),
    "TIMESTAMP": (datetime,),
    "VARCHAR": (str,),
}
_STRICT = json.JSONEncoder(allow_nan=False, default=bytes.hex)


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Columns that are computed from fields, for many events at once."""

    columns: frozenset[str]
    of: Callable[[Any], Mapping[str, Any]]  # fields.Fields -> Arrow arrays of these columns


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that an event becomes in one table: one, or one for each of its parts.

    All have the entry's index in `idx`.
    """

    table: str
    stream: str | None  # the column that takes the stream's id
    body: Mapping[str, str]  # column -> key
    parts: Parts | None
    part: Mapping[str, str]  # column -> key
    place: str | None  # the column that takes a part's number, from 0
    always: Mapping[str, Any]  # column -> value
    signer: str | None  # the role that may sign; `signed_by` takes its key
    hashed: str | None  # the column that takes the entry's hash
    once: bool  # a stream has one such event: only the first counts
    at: str | None  # the path of the parts: fields.py can take their values by columns
    paths: Mapping[str, str]  # column -> path, of columns that are elsewhere than the others
    derived: "Derived | None"

    def path(self, column: str) -> str:
        """Return the path of a column that the parts fill."""
        found = self.paths.get(column)
        return f"{self.at}.{self.part[column]}".lstrip(".") if found is None else found

    def of(
        self, body: Body, stream: str, idx: int, author: Author | None, entry_hash: str
    ) -> Iterator[Row]:
        """Yield an event's rows."""
        outer = {"idx": idx, **self.always, **named(body, self.body)}
        if self.stream is not None:
            outer[self.stream] = stream
        if self.signer is not None:
            outer["signed_by"] = self.signed_by(author)
        if self.hashed is not None:
            outer[self.hashed] = entry_hash
        if self.parts is None:
            yield self.table, outer
            return
        for place, part in enumerate(self.parts(body, stream)):
            row = {**outer, **named(part, self.part)}
            if self.place is not None:
                row[self.place] = place
            yield self.table, row

    def signed_by(self, author: Author | None) -> str | None:
        """Return the key that an event was signed with, if it was by who may."""
        return author.key_id.hex() if author is not None and author.role == self.signer else None


def rows(
    table: str,
    *,
    parts: Parts | None = None,
    shared: str = "",
    always: Mapping[str, Any] = MappingProxyType({}),
    missing: str = "",
    signer: str | None = None,
    hashed: str | None = None,
    once: bool = False,
    at: str | None = None,
    paths: Mapping[str, str] = MappingProxyType({}),
    derived: "Derived | None" = None,
    **keys: str,
) -> Rows:
    """Return what becomes of an event in a table.

    The first column takes the stream's id, unless it is `idx` or has a key. Columns take their
    values from the body, or from each of its `parts` (but the `shared` ones from the body), under
    their own name or the one in `keys`. `missing` columns are NULL.

    Of an event that a stream has `once`, readers see the first only: somebody who can append to the
    ledger added the later ones, which the view misplaced_entries has.

    `at` is where the parts lie, which needs no `parts` if they are a list of maps. For parts that
    are made, `paths` and `derived` say how their columns are made for many events at once.
    """
    if at is not None and parts is None:
        parts = _parts_at(*at.removesuffix(".*").split("."))
    columns = TABLES[table]
    first = next(iter(columns))
    stream = None if first == "idx" or first in keys else first
    fixed = {**always, **dict.fromkeys(missing.split())}
    place = "place" if "place" in columns else None
    own = {"idx", stream, place, hashed, *fixed} | ({"signed_by"} if signer else set())
    taken = {column: keys.get(column, column) for column in columns if column not in own}
    outer = taken.keys() if parts is None else shared.split()
    return Rows(
        table=table,
        stream=stream,
        body={column: taken[column] for column in outer},
        parts=parts,
        part={column: key for column, key in taken.items() if column not in outer},
        place=place,
        always=fixed,
        signer=signer,
        hashed=hashed,
        once=once,
        at=at,
        paths=paths,
        derived=derived,
    )


def _parts_at(*keys: str) -> Parts:
    def parts(body: Body, stream: str) -> Sequence[Body]:  # noqa: ARG001
        found: Any = body
        for key in keys:
            found = found[key]
        return found  # type: ignore[no-any-return]

    return parts


def named(source: Body, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a map's values by the columns that take them; raises KeyError for a missing one."""
    return {column: source[key] for column, key in columns.items()}


def json_text(value: Any) -> str:
    """Return what a JSON column holds of a value."""
    text = orjson.dumps(value, default=bytes.hex)
    if b"null" in text:  # it may have been a number that JSON does not have
        try:
            _STRICT.encode(value)
        except ValueError:
            text = orjson.dumps(_finite(value), default=bytes.hex)
    return text.decode()


def _finite(value: Any) -> Any:
    """Return the value with numbers that JSON does not have written as text."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
