"""Stretches of entries as Arrow tables, which other processes make of a large ledger.

Apart from columns.py, which makes their columns, because pyarrow is in an extra.

Trust: as in columns.py.
I/O: work() reads the ledger and writes to standard output.
"""

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from ledger.entries import entry_hash
from ledger.errors import LedgerError
from ledger.verification.marks import PREVIOUS
from ledger.verification.verified_entries import parse_entry, split_entry
from projections.columns import tables_of, tell_declared
from projections.mapping import TABLES, Item
from projections.rows import ROWS
from projections.source import Page, open_source

_ARROW = {
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "INTEGER": pa.int32(),
    "JSON": pa.string(),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR": pa.string(),
}
_DECODER = msgspec.msgpack.Decoder(tuple[int, bytes, str, dict[str, memoryview]])


@dataclass
class Stretch:
    """Entries that follow each other, as tables."""

    count: int  # entries
    previous: bytes  # the hash that the first of them holds of the one before it
    last_hash: str  # of the last of them
    tables: dict[str, pa.Table] = field(default_factory=dict)


def stretch_of(
    pages: Iterable[Page], *, start: int, authority: UUID | None = None
) -> Stretch | None:
    """Return the tables of entries (index, bytes) from `start` on; None where one is none."""
    found = []
    try:
        for page in pages:
            items = [*_items(page, start=start)]
            tables = tables_of(items, authority=authority, quarantine=True)
            arrow = {table: _arrow(table, columns) for table, columns in tables.items()}
            last = entry_hash(page[-1][1]).hex()
            found.append(Stretch(len(page), page[0][1][PREVIOUS], last, arrow))
            start += len(page)
    except (LedgerError, pa.ArrowException):
        return None
    return joined(found) if found else None


def _items(page: Page, *, start: int) -> Iterator[Item]:
    texts: dict[bytes, str] = {}
    for at, (index, data) in enumerate(page, start):
        own, stream_id, version, time_ns, _, author, name, body = split_entry(data, index=index)
        if not own == index == at:
            raise LedgerError(f"entry {index} is not in its place")
        stream = texts.get(stream_id)
        if stream is None:
            stream = texts[stream_id] = str(UUID(bytes=stream_id))
        signed = parse_entry(data, index=index).author if author else None
        hashed = entry_hash(data).hex() if _is_hashed(name) else ""
        yield Item(index, time_ns, stream, version, name, body, signed, hashed)


@cache
def _is_hashed(name: str) -> bool:
    return any(told.hashed is not None for told in ROWS.get(name, ()))


def _arrow(table: str, columns: dict[str, list[Any]]) -> pa.Table:
    return pa.table(
        {
            column: _repeated(columns[column])
            if column.endswith("_id") or column == "name"
            else pa.array(columns[column], _ARROW[kind], from_pandas=False)
            for column, (kind, _) in TABLES[table].items()
        }
    )


def _repeated(texts: Sequence[str | None]) -> pa.DictionaryArray:
    """Return texts that are often the same."""
    places: dict[str | None, int | None] = {}
    found = [None if each is None else places.setdefault(each, len(places)) for each in texts]
    return pa.DictionaryArray.from_arrays(
        pa.array(found, pa.int32()), pa.array([*places], pa.string())
    )


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Return stretches that follow each other as one."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for stretch in stretches:
        for table, rows in stretch.tables.items():
            parts[table].append(rows)
    tables = {table: pa.concat_tables(found) for table, found in parts.items()}
    count = sum(each.count for each in stretches)
    return Stretch(count, stretches[0].previous, stretches[-1].last_hash, tables)


def packed(stretch: Stretch) -> bytes:
    """Return a stretch as bytes for another process of this program."""
    written = {}
    for table, rows in stretch.tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        written[table] = memoryview(sink.getvalue())
    told = (stretch.count, stretch.previous, stretch.last_hash, written)
    return msgspec.msgpack.encode(told)


def unpacked(data: bytes) -> Stretch:
    """Return the stretch that packed() has written."""
    count, previous, last_hash, written = _DECODER.decode(data)
    read = {table: pa.ipc.open_stream(part).read_all() for table, part in written.items()}
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
    tell_declared(json.loads(sys.argv[7]))
    with open_source(Path(sys.argv[1]), linked=bool(linked)) as ledger:
        for at in range(start, end, step):
            pages = ledger.pages(start=at, stop=min(at + size, end))
            stretch = stretch_of(pages, start=at, authority=ledger.authority)
            data = b"" if stretch is None else packed(stretch)
            sys.stdout.buffer.write(len(data).to_bytes(8, "big"))
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
