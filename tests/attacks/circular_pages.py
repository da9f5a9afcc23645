"""SQLite files whose pages refer to each other so often that a scan would never end.

Interior pages of a table's tree that all lead to the same leaf: a few dozen kilobytes that hold
some 300^15 rows. Source: https://www.sqlite.org/fileformat2.html, "B-tree Pages".
"""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

_SIZE = 4096  # bytes of a page
_LEVELS = 15  # SQLite gives up at 20
_FAN_OUT = 300


def repeat_first_row(path: Path, table: str) -> None:
    """Let a table seem to hold its first row without end; `sqlite_schema` its first index."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_schema"))
    data = bytearray(path.read_bytes())
    root = 1 if table == "sqlite_schema" else roots[table]
    header = 100 if root == 1 else 0
    cells = _cells(bytes(data[(root - 1) * _SIZE : root * _SIZE]), header)
    pages: list[bytes] = []

    def add(page: bytes) -> int:
        pages.append(page)
        return len(data) // _SIZE + len(pages)

    first = []
    if root == 1:  # the tables have to be there, once
        first = [add(_leaf(cells))]
        cells = [cell for cell in cells if b"sqlite_autoindex" in cell]
    child = add(_leaf(cells[:1]))
    for _ in range(_LEVELS):
        child = add(_interior([child] * _FAN_OUT, child))
    top = _interior(first or [child], child, before=bytes(data[:header]))
    data[(root - 1) * _SIZE : root * _SIZE] = top
    data += b"".join(pages)
    struct.pack_into(">I", data, 28, len(data) // _SIZE)  # the file's size in pages
    path.write_bytes(data)


def _cells(page: bytes, header: int) -> list[bytes]:
    kind, _, count = struct.unpack_from(">BHH", page, header)
    assert kind == 13, "only tables of one page"
    starts = struct.unpack_from(f">{count}H", page, header + 8)
    cells = []
    for start in starts:
        length, at = _varint(page, start)
        _, at = _varint(page, at)
        cells.append(bytes(page[start : at + length]))
    return cells


def _varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    while True:
        value, at = value << 7 | page[at] & 127, at + 1
        if page[at - 1] < 128:
            return value, at


def _page(kind: int, cells: list[bytes], rest: bytes, before: bytes) -> bytes:
    content = b"".join(reversed(cells))
    starts, end = [], _SIZE
    for cell in cells:
        end -= len(cell)
        starts.append(end)
    head = before + struct.pack(">BHHHB", kind, 0, len(cells), end, 0) + rest
    head += struct.pack(f">{len(starts)}H", *starts)
    return head + bytes(end - len(head)) + content


def _leaf(cells: list[bytes]) -> bytes:
    return _page(13, cells, b"", b"")


def _interior(children: list[int], last: int, *, before: bytes = b"") -> bytes:
    cells = [struct.pack(">IB", child, 1) for child in children]
    return _page(5, cells, struct.pack(">I", last), before)
