"""One query of the SQL console, in a process of its own: it cannot outlive or outgrow its bounds.

The connection is that of `proctor sql`: read-only, and without access to anything but the file.

Trust: the SQL is hostile. DuckDB counts most of the memory that it takes; the limits of the process
hold for the rest.
I/O: starts the process, which reads the DuckDB file.  Units: seconds, MB.
"""

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from proctor.output.terminal import plain
from projections.bounds import Bounds
from projections.errors import ProjectionError, QueryError

BOUNDS = Bounds(rows=500, seconds=10.0, memory=256)
FOR_SCRIPTS = replace(BOUNDS, rows=10_000)
MOST_SQL = 20_000  # characters
_TURNS = threading.BoundedSemaphore(2)  # queries at once
_MOST_DATA = 512  # MB that the process may write to
_GRACE = 20.0  # to start and to end, on a busy machine
_MOST_CELL = 2_000  # characters
_MOST_ANSWER = 4_000_000  # characters


@dataclass(frozen=True)
class Answer:
    """What a query returned: texts, None for NULL; or values of JSON."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    cut: bool  # there are more rows
    numeric: Sequence[bool]  # for each column
    end: tuple[int, str | None]  # entries in the tables that answered, and the last one's hash


def answer(database: Path, sql: str, *, bounds: Bounds = BOUNDS, as_values: bool = False) -> Answer:
    """Answer one statement; raises QueryError for one that fails or costs too much.

    Texts are shortened for people, unless `as_values`.
    """
    if len(sql) > MOST_SQL:
        raise QueryError(f"the statement is longer than {MOST_SQL:,} characters")
    if not _TURNS.acquire(timeout=bounds.seconds):
        raise QueryError("other queries are running; ask again when they are done")
    asked = {"database": str(database), "sql": sql, "as_values": as_values}
    try:
        done = subprocess.run(  # noqa: S603 - our own module; the SQL is on its standard input
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps({**asked, "bounds": asdict(bounds)}),
            capture_output=True,
            text=True,
            check=False,
            timeout=bounds.seconds + _GRACE,
        )
        told = json.loads(done.stdout)
    except subprocess.TimeoutExpired as e:
        raise QueryError("the query was stopped: it took too long; ask for less") from e
    except ValueError as e:  # it was killed, by us or for its memory
        raise QueryError("the query needs more memory than it may have; ask for less") from e
    finally:
        _TURNS.release()
    if "error" in told:
        raise QueryError(told["error"])
    return Answer(**{**told, "end": tuple(told["end"])})


def _main() -> None:
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA << 20, _MOST_DATA << 20))
    bounds = Bounds(**asked["bounds"])
    seconds = int(bounds.seconds) + 5  # of processors, 5 to start and to end
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    from projections.reading import Session  # noqa: PLC0415 - loads DuckDB, below the limits

    try:
        found = Session(Path(asked["database"]), bounds=bounds).query(asked["sql"])
        show = plain if asked["as_values"] else _text
        told = _told(found.columns, found.rows, show, cut=found.cut) | {"end": found.end}
    except (MemoryError, ProjectionError) as error:
        told = {"error": str(error) or "the query needs more memory than it may have"}
    json.dump(told, sys.stdout)


def _told(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    show: Callable[[Any], Any],
    *,
    cut: bool,
) -> dict[str, Any]:
    """Return an answer whose length is bounded."""
    texts: list[list[Any]] = []
    size = 0
    for row in rows:
        shown = [show(value) for value in row]
        size += sum(len(str(each)) for each in shown) + 8 * len(shown)
        if size > _MOST_ANSWER:
            cut = True
            break
        texts.append(shown)
    numeric = [
        any(isinstance(row[place], int | float) for row in rows)
        and all(isinstance(row[place], int | float | None) for row in rows)
        for place in range(len(columns))
    ]
    return {"columns": columns, "rows": texts, "cut": cut, "numeric": numeric}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MOST_CELL else f"{text[:_MOST_CELL]} … ({len(text):,} characters)"


if __name__ == "__main__":
    _main()
