"""An export as files: JSON Lines, which its seal is of, and Parquet with the same columns.

I/O: writes the files, each whole or not at all.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from judge.curation.sealing import Drawn
from proctor.home import Home
from proctor.outputs import write_output

_MESSAGES = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
_COLUMNS = {"preferences": ("prompt", "chosen", "rejected"), "sft": ("messages",)}


def write_export(drawn: Drawn, *, out: Path | None, parquet: Path | None, home: Home) -> None:
    """Write what was drawn to the files that are named."""
    if out is not None:
        write_output(out, drawn.lines, home=home)
    if parquet is not None:
        columns = _COLUMNS[drawn.query.kind]
        schema = pa.schema([("id", pa.string()), *((name, _MESSAGES) for name in columns)])
        rows = [json.loads(each.line) for each in drawn.examples]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
        write_output(parquet, sink.getvalue().to_pybytes(), home=home)
