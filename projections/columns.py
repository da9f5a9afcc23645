"""Stretches of entries as Arrow tables: what projector.py does row by row, by columns.

Both use the same definitions. There are two writers because this one needs pyarrow, which is in an
extra, and is worth its processes from 10,000 entries on. If a stretch contains anything unusual, it
is not converted: the projector then processes it entry by entry, and names the entry that is wrong.

Trust: as in projector.py.
I/O: work() reads the ledger and writes to standard output.
"""

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.abc import MetaPathFinder
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregates.errors import AggregateError
from ledger.bodies import decode_body
from ledger.entries import Author, entry_hash
from ledger.errors import LedgerError
from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.marks import PREVIOUS
from ledger.verification.verified_entries import parse_entry, split_entry
from projections.errors import ProjectionError
from projections.fields import ARROW, Fields, OddError, array_of
from projections.mapping import TABLES, Body, Rows
from projections.rows import ROWS
from projections.source import open_source

__all__ = ["Stretch", "joined", "newest_versions", "packed", "stretch_of", "unpacked", "work"]

_NEWEST: dict[str, int] = {}  # version of each event
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

    bodies: list[bytes] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    authors: list[Author | None] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)  # of entries whose rows hold them


def stretch_of(
    pages: Iterable[Page], *, start: int, authority: UUID | None = None
) -> Stretch | None:
    """Return the tables of entries (index, bytes) from `start` on, or None where one is odd."""
    at, first, last = start, b"", b""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    try:
        for page in pages:
            for table, rows in _tables(page, start=at, authority=authority):
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
        OddError,
    ):
        return None
    tables = {table: pa.concat_tables(found) for table, found in parts.items()}
    return Stretch(at - start, first[PREVIOUS], entry_hash(last).hex(), tables)


def _tables(page: Page, *, start: int, authority: UUID | None) -> Iterable[tuple[str, pa.Table]]:
    kinds: dict[str, _Kind] = defaultdict(_Kind)
    events: list[tuple[int, int, str, int, str]] = []
    rare: dict[str, list[dict[str, Any]]] = defaultdict(list)
    texts: dict[bytes, str] = {}
    for at, (index, data) in enumerate(page, start):
        own, stream_id, version, time_ns, _, author, name, encoded = split_entry(data, index=index)
        if not own == index == at:
            raise OddError
        stream = texts.get(stream_id)
        if stream is None:
            stream = texts[stream_id] = str(UUID(bytes=stream_id))
        events.append((index, time_ns // 1_000, stream, version, name))
        if name in AUTHORITY_EVENTS:
            from projections.projector import rows_of_entry  # noqa: PLC0415 - DuckDB

            entry = parse_entry(data, index=index)
            for table, row in rows_of_entry(entry, authority=authority):
                if table != "events":
                    rare[table].append(row)
            continue
        kind = kinds[name]
        kind.bodies.append(encoded)
        kind.streams.append(stream)
        kind.indices.append(index)
        kind.authors.append(parse_entry(data, index=index).author if author else None)
        if _is_hashed(name):
            kind.hashes.append(entry_hash(data).hex())
    for table, found in rare.items():
        columns = {
            column: array_of([row[column] for row in found], *kind)
            for column, kind in TABLES[table].items()
        }
        yield table, pa.table(columns)
    if events:
        yield "events", _events(events)
    for name, kind in kinds.items():
        yield from _tables_of(name, kind)


@cache
def _is_hashed(name: str) -> bool:
    return any(told.hashed is not None for told in ROWS[name])


def _tables_of(name: str, kind: _Kind) -> Iterable[tuple[str, pa.Table]]:
    """Return the tables of a kind's events."""
    if kind.bodies:
        bodies = [_body(name, data) for data in kind.bodies]
        yield from _tables_from(name, kind, Fields(bodies), bodies)


def _body(name: str, data: bytes) -> Body:
    body = decode_body(data)
    version = body.get("v")
    if type(version) is not int or version != newest_versions().get(name):
        from aggregates.registry import REGISTRY  # noqa: PLC0415

        body = REGISTRY.upcast(name, body)
    return body


def newest_versions() -> Mapping[str, int]:
    """Return the version of each event; a reader is told them, as its own registry takes long."""
    if not _NEWEST:
        from aggregates.registry import REGISTRY  # noqa: PLC0415

        _NEWEST.update({event_type.name: event_type.version for event_type in REGISTRY})
    return _NEWEST


def _tables_from(
    name: str, kind: _Kind, fields: Fields, bodies: Sequence[Body]
) -> Iterable[tuple[str, pa.Table]]:
    for told in ROWS[name]:
        rows = _rows(told, kind, fields, bodies)
        if rows is not None:
            yield told.table, pa.table({column: rows[column] for column in TABLES[told.table]})


def _events(events: list[tuple[int, int, str, int, str]]) -> pa.Table:
    """Return what projector.py's _event() says of each entry, in the order of the columns."""
    columns = zip(TABLES["events"].items(), zip(*events, strict=True), strict=True)
    return pa.table(
        {
            column: _named(values)
            if kind == "VARCHAR"
            else pa.array(values, ARROW[kind])  # the time as microseconds
            for (column, (kind, _)), values in columns
        }
    )


def _rows(
    told: Rows, kind: _Kind, fields: Fields, bodies: Sequence[Body]
) -> dict[str, pa.Array] | None:
    """Return the columns of these events' rows in one table, None if there are no rows.

    Bodies are those of the fields: they tell what the fields cannot.
    """
    types = TABLES[told.table]
    columns = {column: fields.column(key, *types[column]) for column, key in told.body.items()}
    outer: dict[str, Sequence[Any]] = {
        "idx": kind.indices,
        **{column: [value] * len(kind.bodies) for column, value in told.always.items()},
    }
    if told.signer is not None:
        outer["signed_by"] = [told.signed_by(author) for author in kind.authors]
    if told.hashed is not None:
        outer[told.hashed] = kind.hashes
    columns |= {column: array_of(values, *types[column]) for column, values in outer.items()}
    if told.stream is not None:
        columns[told.stream] = _named(kind.streams)
    if told.parts is None:
        return columns
    try:
        counts, found = _parts_by_columns(told, fields)
    except OddError:
        counts, found = _parts_by_rows(told, kind, bodies)
    if counts is not None:
        if not counts.any():
            return None
        if (counts != 1).any():
            columns = {column: _repeated(values, counts) for column, values in columns.items()}
        if told.place is not None:
            first = np.repeat(np.cumsum(counts) - counts, counts)
            places = np.arange(counts.sum()) - first
            columns[told.place] = pa.array(places, ARROW[types[told.place][0]])
    return columns | found


def _named(texts: Sequence[str]) -> pa.DictionaryArray:
    """Return texts that are often the same."""
    places: dict[str, int] = {}
    found = [places.setdefault(text, len(places)) for text in texts]
    return pa.DictionaryArray.from_arrays(pa.array(found, pa.int32()), pa.array([*places]))


def _repeated(values: pa.Array, counts: npt.NDArray[np.int64]) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        indices = pa.array(np.repeat(values.indices.to_numpy(), counts))
        return pa.DictionaryArray.from_arrays(indices, values.dictionary)
    if pa.types.is_integer(values.type) and not values.null_count:
        return pa.array(np.repeat(values.to_numpy(), counts))
    return values.take(pa.array(np.repeat(np.arange(len(counts)), counts)))  # loads a part of Arrow


def _parts_by_columns(
    told: Rows, fields: Fields
) -> tuple[npt.NDArray[np.int64] | None, dict[str, pa.Array]]:
    """Return how many parts each event has, None for one, and what columns hold of them."""
    if told.at is None:
        raise OddError
    types, derived = TABLES[told.table], told.derived
    found = {} if derived is None else dict(derived.of(fields))
    for column in told.part:
        if column not in found:
            found[column] = fields.column(told.path(column), *types[column])
    return (fields.lengths(told.at) if told.at else None), found


def _parts_by_rows(
    told: Rows, kind: _Kind, bodies: Sequence[Body]
) -> tuple[npt.NDArray[np.int64], dict[str, pa.Array]]:
    """Return the same for parts that are made of one event after the other."""
    assert told.parts is not None
    types = TABLES[told.table]
    parts = [told.parts(*each) for each in zip(bodies, kind.streams, strict=True)]
    flat = list(chain.from_iterable(parts))
    found = _values(flat, told.part).items()
    return (
        np.fromiter(map(len, parts), np.int64, len(parts)),
        {column: array_of(values, *types[column]) for column, values in found},
    )


def _values(sources: Sequence[Body], columns: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    """Return what mapping.py's named() says of each map, by columns."""
    return {column: [source[key] for source in sources] for column, key in columns.items()}


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Return stretches that follow each other as one."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for stretch in stretches:
        for table, rows in stretch.tables.items():
            parts[table].append(rows)
    tables = {table: pa.concat_tables(found) for table, found in parts.items()}
    count = sum(each.count for each in stretches)
    return Stretch(count, stretches[0].previous, stretches[-1].last_hash, tables)


def packed(stretch: Stretch) -> list[bytes | pa.Buffer]:
    """Return a stretch as bytes for another process of this program, in several pieces."""
    written = []
    for rows in stretch.tables.values():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        written.append(sink.getvalue())
    sizes = dict(zip(stretch.tables, map(len, written), strict=True))
    head = msgspec.msgpack.encode((stretch.count, stretch.previous, stretch.last_hash, sizes))
    return [len(head).to_bytes(8, "big"), head, *written]


def unpacked(data: bytes) -> Stretch:
    """Return what the pieces of packed() say, one behind the other."""
    end = 8 + int.from_bytes(data[:8], "big")
    count, previous, last_hash, sizes = msgspec.msgpack.decode(data[8:end])
    read, view = {}, memoryview(data)
    for table, size in sizes.items():
        read[table] = pa.ipc.open_stream(pa.py_buffer(view[end : end + size])).read_all()
        end += size
    return Stretch(count, previous, last_hash, read)


class _WithoutPandas(MetaPathFinder):
    """Keeps pandas out of this process: pyarrow would load it for a second, and for nothing."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ImportError(fullname)


def work() -> None:
    """Do every n-th stretch of a ledger; the other end of bulk.py's _started()."""
    sys.meta_path.insert(0, _WithoutPandas())
    gc.disable()  # nothing here is cyclic
    start, end, step, size, linked = map(int, sys.argv[2:7])
    _NEWEST.update(json.loads(sys.argv[7]))
    with open_source(Path(sys.argv[1]), linked=bool(linked)) as ledger:
        for at in range(start, end, step):
            pages = ledger.pages(start=at, stop=min(at + size, end))
            stretch = stretch_of(pages, start=at, authority=ledger.authority)
            pieces = [] if stretch is None else packed(stretch)
            sys.stdout.buffer.write(sum(map(len, pieces)).to_bytes(8, "big"))
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
