"""The DuckDB file: asked, and copied for other tools. What it is asked changes nothing.

Trust: file and SQL are hostile; SQL can reach nothing outside of the file, and a question that is
none is refused before DuckDB sees to it.
I/O: reads the DuckDB file, for no longer than one answer takes.  Units: seconds.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import duckdb

from projections.database_file import WAIT, connected, is_duckdb, pause
from projections.errors import ProjectionError, QueryError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AS_OF", "QueryResult", "Session", "arrow_batches", "arrow_table", "query", "snapshot"]

AS_OF = "as_of"  # the variable that every table looks at
_ROWS = 100_000  # in a batch
# PIVOT is a statement of several parts. Of what SET sets, the configuration is locked.
_QUESTIONS = {
    duckdb.StatementType.EXPLAIN,
    duckdb.StatementType.MULTI,
    duckdb.StatementType.SELECT,
    duckdb.StatementType.SET,
}


@dataclass(frozen=True)
class QueryResult:
    """The answer to a question; JSON columns are text."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Session:
    """Questions one after the other; between them the file is free, and variables stay set."""

    def __init__(self, database: Path, *, as_of: int | None = None, wait: float = WAIT) -> None:
        self._database = database
        self._wait = wait
        self._variables: dict[str, Any] = {} if as_of is None else {AS_OF: as_of}

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> QueryResult:
        """Answer one statement; raises as query() does."""
        with _asked(self._database, sql, variables=self._variables, wait=self._wait) as connection:
            connection.execute(sql, parameters or None)
            columns = tuple(str(column[0]) for column in connection.description or ())
            result = QueryResult(columns, connection.fetchall() if columns else [])
            names = connection.execute("SELECT name FROM duckdb_variables()").fetchall()
            self._variables = {name: _variable(connection, name) for (name,) in names}
            return result


def query(
    database: Path,
    sql: str,
    parameters: Sequence[Any] = (),
    *,
    as_of: int | None = None,
    wait: float = WAIT,
) -> QueryResult:
    """Answer one SQL statement from the DuckDB file alone; it can see no other file.

    With `as_of`, as after the ledger's entry of that index had been applied, and none behind it.
    Raises QueryError with DuckDB's words, BusyError when others hold the file for longer than
    `wait`.
    """
    return Session(database, as_of=as_of, wait=wait).query(sql, parameters)


def arrow_table(
    database: Path,
    sql: str,
    parameters: Sequence[Any] = (),
    *,
    as_of: int | None = None,
    wait: float = WAIT,
) -> "pa.Table":
    """Answer as query() does, with an Arrow table, which pandas and polars take."""
    with arrow_batches(database, sql, parameters, as_of=as_of, wait=wait) as batches:
        return batches.read_all()


@contextmanager
def arrow_batches(
    database: Path,
    sql: str,
    parameters: Sequence[Any] = (),
    *,
    as_of: int | None = None,
    wait: float = WAIT,
) -> Iterator["pa.RecordBatchReader"]:
    """Answer as arrow_table() does, for answers that are larger than memory; holds the file."""
    import pyarrow as pa  # noqa: PLC0415 - takes long to import, and few questions need it

    variables = {} if as_of is None else {AS_OF: as_of}
    try:
        with _asked(database, sql, variables=variables, wait=wait) as connection:
            relation = connection.sql(sql, params=parameters or None)
            if relation is None:  # nothing was asked, as in SET VARIABLE
                yield pa.RecordBatchReader.from_batches(pa.schema([]), [])
            else:
                yield relation.to_arrow_reader(_ROWS)
    except pa.ArrowException as e:
        raise QueryError(str(e)) from e


def snapshot(database: Path, target: BinaryIO, *, wait: float = WAIT) -> None:
    """Copy the DuckDB file as it is between two changes; raises as query() does."""
    deadline = time.monotonic() + wait
    while True:
        _require(database)
        # Opened first and closed last: closing a file gives up DuckDB's lock on it.
        with database.open("rb") as file, connected(database, deadline, read_only=True):
            complete = not database.with_name(f"{database.name}.wal").exists()
            if complete and os.path.samestat(os.fstat(file.fileno()), database.stat()):
                shutil.copyfileobj(file, target)
                return
        pause(database, deadline)  # it was exchanged meanwhile, or waits for the next to catch up


@contextmanager
def _asked(
    database: Path, sql: str, *, variables: dict[str, Any], wait: float
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Hold the file open for a question that is one; what goes wrong meanwhile is a QueryError."""
    _require(database)
    try:
        with connected(database, time.monotonic() + wait, read_only=True) as connection:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise QueryError("that is not one SQL statement; ask one at a time")
            if statements[0].type not in _QUESTIONS:
                kind = statements[0].type.name
                raise QueryError(f"{kind} asks nothing; SELECT, DESCRIBE, SHOW and the like do")
            for name, value in variables.items():
                connection.execute(f"SET VARIABLE {_quoted(name)} = ?", [value])
            yield connection
    except (duckdb.Error, OverflowError, RuntimeError, ValueError) as e:
        raise QueryError(str(e)) from e  # all but the first: there is no such Python value


def _require(database: Path) -> None:
    if not database.is_file():
        raise ProjectionError(f"{database}: there is no projection yet; catch up with a ledger")
    if not is_duckdb(database):
        raise ProjectionError(f"{database}: this is no DuckDB file; rebuild the projection")


def _variable(connection: duckdb.DuckDBPyConnection, name: str) -> Any:
    row = connection.execute("SELECT getvariable(?)", [name]).fetchone()
    assert row is not None
    return row[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
