"""Queries the DuckDB file, read-only, and copies it for other tools.

Trust: file and SQL are hostile; SQL can reach nothing outside the file, and statements that do not
read are rejected before DuckDB runs them.
I/O: reads the DuckDB file, for no longer than one answer takes.  Units: seconds.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import duckdb

from ledger.held_folder import HeldFolder
from projections.bounds import Bounds, bounded_rows, columns_of, stoppable, verify_finite
from projections.database_file import (
    CONFIG,
    WAIT,
    connected,
    copy_between,
    is_duckdb,
    pause,
)
from projections.errors import AheadError, ProjectionError, QueryError
from projections.identity import read_position

if TYPE_CHECKING:
    import pyarrow as pa

AS_OF = "as_of"  # the variable that every table looks at
STORAGE = "v1.2.0"  # the oldest storage version that has what our tables need
_PORTABLE = "portable_copy"
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
    cut: bool = False  # there are more rows than the bounds allow
    end: tuple[int, str | None] = (0, None)  # entries in the tables it is from; the last one's hash

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows by the names of their columns, which are different ones."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Session:
    """Runs queries one after the other; variables stay set.

    The file is free between them, except in held().

    `needs`: answer only from tables of this state (CatchUp.end), never of another ledger that has
    taken the place of this one. Where they are of another state, `update` brings them up to date
    and returns the state; without it, the session waits. `bounds` are those of each query().
    """

    def __init__(
        self,
        database: Path,
        *,
        as_of: int | None = None,
        wait: float = WAIT,
        needs: tuple[int, str | None] | None = None,
        update: Callable[[], tuple[int, str | None]] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._database = database
        self._wait = wait
        self._needs = needs
        self._update = update
        self._bounds = bounds
        self._variables: dict[str, Any] = {} if as_of is None else {AS_OF: as_of}
        self._held: duckdb.DuckDBPyConnection | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the file open until the end of the block: opening it takes longer than most answers.

        Raises as query() does.
        """
        try:
            with self._opened() as self._held:
                yield
        except duckdb.Error as e:  # query() has told its own
            raise QueryError(str(e)) from e
        finally:
            self._held = None

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> QueryResult:
        """Answer one statement; raises as query() does."""
        with self._asked(sql) as (connection, kind):
            if self._bounds is not None:
                end = read_position(connection)[:2]
                columns, rows, cut = bounded_rows(connection, sql, parameters, self._bounds)
                if kind == duckdb.StatementType.SET:
                    return QueryResult((), [], end=end)
                return QueryResult(columns, rows, cut, end)
            connection.execute(sql, parameters or None)
            columns = columns_of(connection)
            if kind == duckdb.StatementType.SET:
                columns = ()  # or there would be one that never has a row
            rows = connection.fetchall() if columns else []
            verify_finite(connection, rows)
            return QueryResult(columns, rows)

    @contextmanager
    def arrow_batches(
        self, sql: str, parameters: Sequence[Any] = ()
    ) -> Iterator["pa.RecordBatchReader"]:
        """Answer one statement with parts that fit into memory; the file is held meanwhile."""
        import pyarrow as pa  # noqa: PLC0415 - takes long to import, and few questions need it

        with self._asked(sql) as (connection, kind):
            relation = connection.sql(sql, params=parameters or None)
            if relation is None or kind == duckdb.StatementType.SET:  # nothing was asked
                yield pa.RecordBatchReader.from_batches(pa.schema([]), [])
            else:
                yield relation.to_arrow_reader(_ROWS)

    def snapshot(self, target: BinaryIO) -> None:
        """Copy the DuckDB file as it is between two changes; raises as query() does.

        DuckDB 2.0 and later read all of the copy. DuckDB 1.3 to 1.5 read all but the four views
        whose correlated subqueries they cannot plan (docs/how-to/query.md).
        """
        deadline = time.monotonic() + self._wait
        with HeldFolder("proctor-tables-") as held:
            copy, portable = held.path / "tables.duckdb", held.path / "portable.duckdb"
            while True:
                _require(self._database)
                try:
                    with copy.open("wb") as file:
                        copy_between(self._database, file, deadline=deadline, needs=self._needs)
                    break
                except AheadError:
                    self._await_tables(deadline)
            _write_portable(copy, portable)
            with portable.open("rb") as file:
                shutil.copyfileobj(file, target)

    @contextmanager
    def _asked(self, sql: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.StatementType]]:
        """Hold the file open for one question; what goes wrong meanwhile is a QueryError."""
        try:
            with self._opened() as connection, stoppable(connection):
                kind = _kind(connection, sql)
                for name, value in self._variables.items():
                    connection.execute(f"SET VARIABLE {_quoted(name)} = ?", [value])
                yield connection, kind
                if kind == duckdb.StatementType.SET:
                    self._variables = _variables(connection)
        except (duckdb.Error, OverflowError, RuntimeError, ValueError) as e:
            said = str(e).partition("\nTraceback")[0]
            raise QueryError(said) from e  # all but the first: there is no such Python value

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self._held is not None:
            yield self._held
            return
        deadline = time.monotonic() + self._wait
        while True:
            if self._needs is None or self._database.is_file():
                _require(self._database)
                with connected(
                    self._database, deadline, read_only=True, bounds=self._bounds
                ) as connection:
                    if self._needs is None or self._is_there(connection):
                        yield connection
                        return
            self._await_tables(deadline)

    def _await_tables(self, deadline: float) -> None:
        """Wait for tables of the state that is needed, or bring them up to date."""
        pause(self._database, deadline)
        if self._update is not None:
            self._needs = self._update()

    def _is_there(self, connection: duckdb.DuckDBPyConnection) -> bool:
        try:
            return read_position(connection)[:2] == self._needs
        except (duckdb.Error, ProjectionError):
            return False


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
    session = Session(database, as_of=as_of, wait=wait)
    with session.arrow_batches(sql, parameters) as batches:
        return batches.read_all()


def statements(sql: str) -> list[str]:
    """Return the statements that a text holds; raises QueryError where one is none."""
    try:
        with closing(duckdb.connect(":memory:", config=dict(CONFIG))) as connection:
            return [each.query for each in connection.extract_statements(sql)]
    except duckdb.Error as e:
        raise QueryError(str(e)) from e


def _write_portable(database: Path, target: Path) -> None:
    """Copy a database into a new file of an older storage version."""
    quoted = str(target).replace("'", "''")
    try:
        with closing(duckdb.connect(str(database))) as connection:  # the copy is ours
            (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
            connection.execute(f"ATTACH '{quoted}' AS {_PORTABLE} (STORAGE_VERSION '{STORAGE}')")
            connection.execute(f"COPY FROM DATABASE {_quoted(name)} TO {_PORTABLE}")
            connection.execute(f"DETACH {_PORTABLE}")
    except duckdb.Error as e:
        raise ProjectionError(f"the copy cannot be written: {e}") from e


def _require(database: Path) -> None:
    if not database.is_file():
        raise ProjectionError(f"{database}: projection not found; catch up with a ledger first")
    if not is_duckdb(database):
        raise ProjectionError(f"{database}: this is not a DuckDB file; rebuild the projection")


def _kind(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.StatementType:
    """Return what kind of statement this is; raise QueryError unless it is one, and asks."""
    found = connection.extract_statements(sql)
    if len(found) != 1:
        raise QueryError("give exactly one SQL statement")
    kind = found[0].type
    if kind not in _QUESTIONS:
        raise QueryError(
            f"{kind.name} is not allowed: only statements that read, such as SELECT, "
            "DESCRIBE and SHOW, are"
        )
    return kind


def _variables(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    names = connection.execute("SELECT name FROM duckdb_variables()").fetchall()
    values = [connection.execute("SELECT getvariable(?)", name).fetchall() for name in names]
    return {name: value for (name,), [(value,)] in zip(names, values, strict=True)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
