"""An export as a file: JSON Lines, which its seal is of, or Parquet with the same columns.

I/O: writes the file, whole or not at all.
"""

import json
from pathlib import Path

from judge.curation.sealing import Drawn
from proctor.home import Home
from proctor.output.files import write_output

_COLUMNS = {
    "preferences": ("prompt", "chosen", "rejected"),
    "proposals": ("prompt", "completion"),
    "sft": ("messages",),
}


def write_export(drawn: Drawn, out: Path, *, parquet: bool, home: Home) -> None:
    """Write what was drawn to a file."""
    write_output(out, _parquet(drawn) if parquet else drawn.lines, home=home)


def _parquet(drawn: Drawn) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - takes long to import, and is in an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

    messages = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
    columns = _COLUMNS[drawn.query.kind]
    fields = [("id", pa.string()), *((name, messages) for name in columns)]
    if drawn.query.kind == "proposals":
        fields += [("label", pa.bool_()), ("evidence", pa.string())]
    schema = pa.schema(fields)
    rows = [json.loads(each.line) for each in drawn.examples]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())
