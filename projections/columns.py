"""Stretches of entries as Arrow tables: what projector.py does row by row, by columns.

Both use the same definitions. There are two writers because this one needs pyarrow, which is in an
extra, and is worth its processes from 10,000 entries on. If a stretch contains anything unusual, it
is not converted: the projector then processes it entry by entry, and names the entry that is wrong.

Trust: as in projector.py.
I/O: the DuckDB connection.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any
from uuid import UUID

import duckdb
import msgspec
import numpy as np
import pyarrow as pa

from aggregates.errors import AggregateError
from aggregates.registry import REGISTRY
from ledger.bodies import decode_body
from ledger.entries import Author, entry_hash
from ledger.errors import LedgerError
from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.marks import PREVIOUS
from ledger.verification.verified_entries import parse_entry, split_entry
from projections.errors import ProjectionError, TableError
from projections.mapping import TABLES, Body, Rows
from projections.projector import TYPES, json_text, rows_of_entry, transaction
from projections.rows import ROWS

__all__ = ["Stretch", "joined", "packed", "stretch_of", "unpacked", "write_stretch"]

_ARROW = {
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "INTEGER": pa.int32(),
    "JSON": pa.string(),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR": pa.string(),
}
_NONE = type(None)
_NEWEST = {event_type.name: event_type.version for event_type in REGISTRY}
Page = Sequence[tuple[int, bytes]]


@dataclass
class Stretch:
    """Entries that follow each other, as tables."""

    count: int  # entries
    previous: bytes  # the hash that the first of them holds of the one before it
    last_hash: str  # of the last of them
    tables: dict[str, pa.Table] = field(default_factory=dict)


@dataclass
class _Kind:
    """Events of one name, as columns."""

    bodies: list[Body] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    authors: list[Author | None] = field(default_factory=list)


class _OddError(Exception):
    """Something does not fit; the projector knows what."""


def stretch_of(pages: Iterable[Page], *, start: int) -> Stretch | None:
    """Return the tables of entries (index, bytes) from `start` on, or None where one is odd."""
    at, first, last = start, b"", b""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    try:
        for page in pages:
            for table, rows in _tables(page, start=at):
                parts[table].append(rows)
            at += len(page)
            first = first or page[0][1]
            last = page[-1][1]
    except (
        AggregateError,
        AttributeError,
        KeyError,
        LedgerError,
        OverflowError,
        ProjectionError,
        TypeError,
        ValueError,
        pa.ArrowException,
        _OddError,
    ):
        return None
    tables = {table: pa.concat_tables(found) for table, found in parts.items()}
    return Stretch(at - start, first[PREVIOUS], entry_hash(last).hex(), tables)


def _tables(page: Page, *, start: int) -> Iterable[tuple[str, pa.Table]]:
    kinds: dict[str, _Kind] = defaultdict(_Kind)
    events: list[tuple[int, int, str, int, str]] = []
    rare: dict[str, list[dict[str, Any]]] = defaultdict(list)
    texts: dict[bytes, str] = {}
    for at, (index, data) in enumerate(page, start):
        own, stream_id, version, time_ns, _, author, name, encoded = split_entry(data, index=index)
        if not own == index == at:
            raise _OddError
        if name in AUTHORITY_EVENTS:
            for table, row in rows_of_entry(parse_entry(data, index=index)):
                rare[table].append(row)
            continue
        stream = texts.get(stream_id)
        if stream is None:
            stream = texts[stream_id] = str(UUID(bytes=stream_id))
        body = decode_body(encoded)
        newest = body.get("v")
        if type(newest) is not int or newest != _NEWEST.get(name):
            body = REGISTRY.upcast(name, body)
        kind = kinds[name]
        kind.bodies.append(body)
        kind.streams.append(stream)
        kind.indices.append(index)
        kind.authors.append(parse_entry(data, index=index).author if author else None)
        events.append((index, time_ns // 1_000, stream, version, name))
    for table, found in rare.items():
        columns = {
            column: _array([row[column] for row in found], *kind)
            for column, kind in TABLES[table].items()
        }
        yield table, pa.table(columns)
    if events:
        yield "events", _events(events)
    for name, kind in kinds.items():
        for told in ROWS[name]:
            rows = _rows(told, kind)
            if rows is not None:
                yield told.table, pa.table({column: rows[column] for column in TABLES[told.table]})


def _events(events: list[tuple[int, int, str, int, str]]) -> pa.Table:
    """Return what projector.py's _event() says of each entry, in the order of the columns."""
    return pa.table(
        {
            column: pa.array(values, _ARROW[kind])  # the time as microseconds
            for (column, (kind, _)), values in zip(
                TABLES["events"].items(), zip(*events, strict=True), strict=True
            )
        }
    )


def _rows(told: Rows, kind: _Kind) -> dict[str, pa.Array] | None:
    """Return the columns of these events' rows in one table, None if there are no rows."""
    types = TABLES[told.table]
    outer: dict[str, Sequence[Any]] = {
        "idx": kind.indices,
        **{column: [value] * len(kind.bodies) for column, value in told.always.items()},
        **_values(kind.bodies, told.body),
    }
    if told.stream is not None:
        outer[told.stream] = kind.streams
    if told.signer is not None:
        outer["signed_by"] = [told.signed_by(author) for author in kind.authors]
    columns = {column: _array(values, *types[column]) for column, values in outer.items()}
    if told.parts is None:
        return columns
    parts = [told.parts(*each) for each in zip(kind.bodies, kind.streams, strict=True)]
    counts = np.fromiter(map(len, parts), np.int64, len(parts))
    if not counts.any():
        return None
    if (counts != 1).any():
        which = pa.array(np.repeat(np.arange(len(parts)), counts))
        columns = {column: values.take(which) for column, values in columns.items()}
    flat = list(chain.from_iterable(parts))
    for column, values in _values(flat, told.part).items():
        columns[column] = _array(values, *types[column])
    if told.place is not None:
        first = np.repeat(np.cumsum(counts) - counts, counts)
        columns[told.place] = pa.array(np.arange(len(flat)) - first, _ARROW[types[told.place][0]])
    return columns


def _values(sources: Sequence[Body], columns: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    """Return what mapping.py's named() says of each map, by columns."""
    if len(columns) < 2:
        return {column: [source[key] for source in sources] for column, key in columns.items()}
    picked = map(itemgetter(*columns.values()), sources)
    return dict(zip(columns, zip(*picked, strict=True), strict=True))


def _array(values: Sequence[Any], kind: str, nullable: bool) -> pa.Array:
    found = set(map(type, values))
    if _NONE in found:
        if not nullable:
            raise _OddError
        found.discard(_NONE)
    if kind == "JSON":
        values = [None if value is None else json_text(value) for value in values]
    elif not found.issubset(TYPES[kind]):
        raise _OddError
    return pa.array(values, _ARROW[kind], from_pandas=False)


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Return stretches that follow each other as one."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for stretch in stretches:
        for table, rows in stretch.tables.items():
            parts[table].append(rows)
    tables = {table: pa.concat_tables(found) for table, found in parts.items()}
    count = sum(each.count for each in stretches)
    return Stretch(count, stretches[0].previous, stretches[-1].last_hash, tables)


def write_stretch(connection: duckdb.DuckDBPyConnection, stretch: Stretch, *, start: int) -> None:
    """Write a stretch and the position behind it, all or nothing."""
    try:
        with transaction(connection):
            for table, rows in stretch.tables.items():
                connection.register("arrived", rows)
                connection.execute(f"INSERT INTO log.{table} BY NAME FROM arrived")
                connection.unregister("arrived")
            connection.execute(
                "UPDATE log.position SET next_idx = ?, last_hash = ?",
                [start + stretch.count, stretch.last_hash],
            )
    except duckdb.Error as e:
        before = start + stretch.count
        raise TableError(
            f"the entries before entry {before} cannot be loaded into the tables: {e}"
        ) from e


def packed(stretch: Stretch) -> bytes:
    """Return a stretch as bytes for another process of this program."""
    tables = {}
    for table, rows in stretch.tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        tables[table] = bytes(sink.getvalue())
    return msgspec.msgpack.encode((stretch.count, stretch.previous, stretch.last_hash, tables))


def unpacked(data: bytes) -> Stretch:
    """Return what packed() was given."""
    count, previous, last_hash, tables = msgspec.msgpack.decode(data)
    read = {table: pa.ipc.open_stream(part).read_all() for table, part in tables.items()}
    return Stretch(count, previous, last_hash, read)
