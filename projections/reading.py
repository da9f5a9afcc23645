"""The DuckDB file: asked. It can neither be written nor left behind by what it is asked.

Trust: file and SQL are hostile; SQL can reach nothing outside of the file.
I/O: reads the DuckDB file.  Units: seconds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from projections.database_file import WAIT, connected, is_duckdb
from projections.errors import ProjectionError, QueryError

__all__ = ["QueryResult", "query"]


@dataclass(frozen=True)
class QueryResult:
    """The answer to a question; JSON columns are text."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def query(
    database: Path, sql: str, parameters: Sequence[Any] = (), *, wait: float = WAIT
) -> QueryResult:
    """Answer SQL from the DuckDB file alone; it can neither write nor see any other file.

    Raises QueryError with DuckDB's words, BusyError when others hold the file for longer than
    `wait`.
    """
    if not database.is_file():
        raise ProjectionError(f"{database}: there is no projection yet; catch up with a ledger")
    if not is_duckdb(database):
        raise ProjectionError(f"{database}: this is no DuckDB file; rebuild the projection")
    deadline = time.monotonic() + wait
    try:
        with connected(database, deadline, read_only=True) as connection:
            if len(connection.extract_statements(sql)) != 1:
                raise QueryError("that is not one SQL statement; ask one at a time")
            connection.execute(sql, parameters or None)
            columns = tuple(str(column[0]) for column in connection.description or ())
            return QueryResult(columns, connection.fetchall() if columns else [])
    except (duckdb.Error, RuntimeError, ValueError) as e:  # the last two: no such Python value
        raise QueryError(str(e)) from e
