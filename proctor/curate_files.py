"""An export as files: JSON Lines, which its seal is of, and Parquet with the same columns.

I/O: writes the files, each whole or not at all.
"""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from judge.curation.sealing import Drawn

_MESSAGES = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
_COLUMNS = {"preferences": ("prompt", "chosen", "rejected"), "sft": ("messages",)}


def write_export(drawn: Drawn, *, out: Path | None, parquet: Path | None) -> None:
    """Write what was drawn to the files that are named."""
    if out is not None:
        _replace(out, drawn.lines)
    if parquet is not None:
        columns = _COLUMNS[drawn.query.kind]
        schema = pa.schema([("id", pa.string()), *((name, _MESSAGES) for name in columns)])
        rows = [json.loads(each.line) for each in drawn.examples]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
        _replace(parquet, sink.getvalue().to_pybytes())


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
