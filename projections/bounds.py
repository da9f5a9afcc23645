"""Queries that end: at Ctrl-C and SIGTERM, and bounded in rows, time and memory.

DuckDB returns rows as they are fetched, so that rows which nobody fetches cost nothing. Memory that
DuckDB does not count (a single text of gigabytes) is bounded by a caller that needs it, with the
limits of a process.

I/O: the connection that is given; threads that interrupt it; the wake-up descriptor of signals.
Units: seconds, MB.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import duckdb

from projections.errors import CostlyError, QueryError

_STOPS = {signal.SIGINT, signal.SIGTERM}
_AGAIN = 0.1  # s after which a query that had not begun at the signal is interrupted
_EDGES = {date.min, date.max, datetime.min, datetime.max}


@dataclass(frozen=True)
class Bounds:
    """What a query may cost."""

    rows: int
    seconds: float
    memory: int  # MB, of all queries on one opening of the file together

    def config(self) -> dict[str, str | int | float | list[str]]:
        """Return the settings of a connection; nothing is written to a disk."""
        return {"memory_limit": f"{self.memory}MB", "temp_directory": "", "threads": 1}


def columns_of(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Return the names of the answer's columns; raises QueryError for one with a time zone.

    DuckDB makes Python values of these with a module that nothing else here needs, and a time that
    is shown should not depend on the machine that was asked.
    """
    for name, kind, *_ in connection.description or ():
        if "TIME ZONE" in str(kind):
            raise QueryError(
                f"the column {name!r} is a {kind}; cast it, as in now()::TIMESTAMP or "
                "now()::VARCHAR"
            )
    return tuple(str(column[0]) for column in connection.description or ())


def verify_finite(connection: duckdb.DuckDBPyConnection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Raise QueryError for a date that may be infinite.

    DuckDB makes the first or last date that Python has of those: a false answer.
    """
    for place, (name, kind, *_) in enumerate(connection.description or ()):
        if any(word in str(kind) for word in ("DATE", "TIMESTAMP")) and any(
            _is_edge(row[place]) for row in rows
        ):
            raise QueryError(
                f"the column {name!r} has a date that is infinite, or the first or last that can "
                "be shown; cast it, as in day::VARCHAR"
            )


def _is_edge(value: Any) -> bool:
    if isinstance(value, date):
        return value in _EDGES
    if isinstance(value, dict):
        return any(map(_is_edge, (*value, *value.values())))
    return isinstance(value, list | tuple) and any(map(_is_edge, value))


@contextmanager
def stoppable(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end what the main thread asks; then Python answers the signal.

    A query of several threads does not ask Python for signals before it ends. One that does ask
    makes a RuntimeError of what a signal's handler raises: the signal is then sent once more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    ended = threading.Event()
    stops: set[int] = set()

    def interrupt() -> None:
        while came := os.read(reading, 1):
            stops.update(_STOPS.intersection(came))
            while stops and not ended.is_set():
                connection.interrupt()
                ended.wait(_AGAIN)

    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before != -1:  # an event loop's, which answers signals itself
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
    watching = threading.Thread(target=interrupt, daemon=True)
    watching.start()
    failed: Exception | None = None
    try:
        yield
    except Exception as error:
        failed = error
    finally:
        ended.set()
        if before == -1:
            signal.set_wakeup_fd(-1)
        os.close(writing)
        watching.join()
        os.close(reading)
    if failed is not None:
        if stops:
            signal.raise_signal(max(stops))  # SIGTERM ends more than Ctrl-C
        raise failed


def bounded_rows(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any], bounds: Bounds
) -> tuple[tuple[str, ...], list[tuple[Any, ...]], bool]:
    """Return columns, rows, and whether there are more rows than are allowed.

    Raises CostlyError for a query that takes too long or too much memory, duckdb.Error for others.
    """
    timer = threading.Timer(bounds.seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        connection.execute(sql, list(parameters) or None)
        columns = columns_of(connection)
        rows = connection.fetchmany(bounds.rows + 1) if columns else []
        verify_finite(connection, rows)
    except duckdb.InterruptException as e:
        raise CostlyError(f"the query was stopped after {bounds.seconds:g} s; ask for less") from e
    except duckdb.OutOfMemoryException as e:
        raise CostlyError(
            f"the query needs more than {bounds.memory} MB of memory; ask for less"
        ) from e
    finally:
        timer.cancel()
    return columns, rows[: bounds.rows], len(rows) > bounds.rows
