"""Answers to SQL as a table, CSV, JSON or Parquet, printed or in a file that appears whole.

SQL never names a file: what DuckDB answers comes here, and is written from that.

Trust: what an answer holds is hostile to terminals.
I/O: standard output; a file that is open.
"""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from proctor.errors import ProctorError
from proctor.output.terminal import as_records, plain, print_json, print_table, visible
from projections.reading import Session

if TYPE_CHECKING:
    import pyarrow as pa


class Form(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def form_of(form: Form | None, output: Path | None, *, as_json: bool) -> Form:
    """Return the form that was asked for; where none was, a file tells it by its name."""
    if as_json and output is None:
        if form not in (None, Form.JSON):
            raise ProctorError(f"--json and --format {form} are two forms; leave one out")
        return Form.JSON
    if form is None and output is not None:
        endings = {f".{each}": each for each in Form if each is not Form.TABLE}
        if output.suffix not in endings:
            raise ProctorError(f"{output}: end its name in {', '.join(endings)}, or say --format")
        return endings[output.suffix]
    form = form or Form.TABLE
    if form is Form.PARQUET and output is None:
        raise ProctorError("Parquet is not for reading; say with --out which file to write")
    if form is Form.TABLE and output is not None:
        raise ProctorError("a table is for reading; a file is written as csv, json or parquet")
    return form


def print_answer(session: Session, sql: str, *, form: Form) -> None:
    """Ask, and print the answer as a table, JSON or CSV; what has no columns prints nothing."""
    if form is Form.CSV:
        with session.arrow_batches(sql) as batches:
            as_records(batches.schema.names, ())  # raises where two have one name
            for part, _ in _csv(batches) if batches.schema.names else ():
                text = part.decode()
                sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
        return
    result = session.query(sql)
    if form is Form.JSON:
        print_json(as_records(result.columns, result.rows))
    elif result.columns:
        print_table(result.columns, result.rows)


def write_answer(session: Session, sql: str, *, form: Form, target: BinaryIO) -> int:
    """Ask, and write the answer as CSV, JSON or Parquet; return how many rows it has."""
    if form is Form.JSON:
        result = session.query(sql)
        rows = plain(as_records(result.columns, result.rows))
        target.write(json.dumps(rows, ensure_ascii=False).encode() + b"\n")
        return len(rows)
    with session.arrow_batches(sql) as batches:
        return (_write_csv if form is Form.CSV else _write_parquet)(batches, target)


def _write_parquet(batches: "pa.RecordBatchReader", target: BinaryIO) -> int:
    import pyarrow as pa  # noqa: PLC0415 - takes long to import, and few answers need it
    import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

    _verify_columns(batches.schema.names)
    rows = 0
    try:
        with pq.ParquetWriter(target, batches.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise ProctorError(f"Parquet does not hold such an answer; cast it: {e}") from e
    return rows


def _write_csv(batches: "pa.RecordBatchReader", target: BinaryIO) -> int:
    _verify_columns(batches.schema.names)
    rows = 0
    for part, count in _csv(batches):
        target.write(part)
        rows += count
    return rows


def _csv(batches: "pa.RecordBatchReader") -> Iterator[tuple[bytes, int]]:
    """Yield the head, then each batch, with its number of rows; nested values are JSON."""
    import pyarrow as pa  # noqa: PLC0415 - takes long to import, and few answers need it
    from pyarrow.csv import WriteOptions, write_csv  # noqa: PLC0415 - likewise

    parts = chain([batches.schema.empty_table()], batches)
    for number, part in enumerate(parts):
        file = io.BytesIO()
        flat = pa.table(
            {name: _flat(part.column(place)) for place, name in enumerate(part.schema.names)}
        )
        try:
            write_csv(flat, file, WriteOptions(include_header=number == 0))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise ProctorError(f"CSV does not hold such an answer; cast it: {e}") from e
        yield file.getvalue(), part.num_rows


def _flat(column: Any) -> Any:
    """Return a column of a batch or table as CSV takes it."""
    import pyarrow as pa  # noqa: PLC0415 - takes long to import, and few answers need it

    if not (pa.types.is_nested(column.type) or pa.types.is_binary(column.type)):
        return column
    values = (plain(value) for value in column.to_pylist())
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values
    ]
    return pa.array(texts, pa.string())


def _verify_columns(names: Sequence[str]) -> None:
    as_records(names, ())  # raises where two have one name
    if not names:
        raise ProctorError("this has no answer that could be written; ask something")
