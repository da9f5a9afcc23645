"""Stretches of entries as Arrow tables: what projector.py does row by row, checked by columns.

Both take their rows from the same functions. A stretch in which anything at all is odd becomes no
tables: the projector then takes it entry by entry, and says what is wrong with which.

Trust: as in projector.py.
I/O: the DuckDB connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import msgpack
import pyarrow as pa

from ledger.errors import LedgerError
from ledger.verified_entries import parse_entry
from projections.errors import ProjectionError, TableError
from projections.projector import TYPES, Columns, json_text, rows_of_entry, transaction

__all__ = ["Stretch", "packed", "stretch_of", "unpacked", "write_stretch"]

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


@dataclass
class Stretch:
    """Entries that follow each other, as tables."""

    count: int  # entries
    last_hash: str  # of the last of them
    tables: dict[str, pa.Table] = field(default_factory=dict)


class _OddError(Exception):
    """Something does not fit; the projector knows what."""


def stretch_of(
    pages: Iterable[Sequence[tuple[int, bytes]]], types: Mapping[str, Columns], *, start: int
) -> Stretch | None:
    """Return the tables of entries (index, bytes) from `start` on, or None where one is odd."""
    at, last_hash = start, ""
    parts: dict[str, list[pa.Table]] = {}
    try:
        for page in pages:
            rows: dict[str, list[dict[str, Any]]] = {}
            for index, data in page:
                entry = parse_entry(data, index=index)
                if (index, entry.index) != (at, at):
                    return None
                for table, row in rows_of_entry(entry):
                    rows.setdefault(table, []).append(row)
                at += 1
                last_hash = entry.entry_hash.hex()
            for table, found in rows.items():
                parts.setdefault(table, []).append(_table(found, types[table]))
    except (_OddError, LedgerError, ProjectionError, KeyError):
        return None
    tables = {table: pa.concat_tables(found) for table, found in parts.items()}
    return Stretch(at - start, last_hash, tables)


def _table(rows: list[dict[str, Any]], types: Columns) -> pa.Table:
    if set(map(len, rows)) != {len(types)}:
        raise _OddError
    columns = {}
    for column, (kind, nullable) in types.items():
        values: list[Any] = [row[column] for row in rows]
        if kind == "JSON":
            if not nullable and None in values:
                raise _OddError
            values = [None if value is None else json_text(value) for value in values]
        else:
            found = set(map(type, values))
            if nullable:
                found.discard(_NONE)
            if not found.issubset(TYPES[kind]):
                raise _OddError
        try:
            columns[column] = pa.array(values, _ARROW[kind], from_pandas=False)
        except (pa.ArrowException, OverflowError, ValueError) as e:
            raise _OddError from e
    return pa.table(columns)


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
        raise TableError(f"the entries before {before} do not fit the tables: {e}") from e


def packed(stretch: Stretch) -> bytes:
    """Return a stretch as bytes for another process of this program."""
    tables = {}
    for table, rows in stretch.tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        tables[table] = bytes(sink.getvalue())
    return bytes(msgpack.packb((stretch.count, stretch.last_hash, tables)))


def unpacked(data: bytes) -> Stretch:
    """Return what packed() was given."""
    count, last_hash, tables = msgpack.unpackb(data)
    read = {table: pa.ipc.open_stream(part).read_all() for table, part in tables.items()}
    return Stretch(count, last_hash, read)
