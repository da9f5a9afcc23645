"""The questions of the cookbook on many rows: a made-up DuckDB file, filled by SQL alone.

Each run has about a thousand rows, as one of forty epochs has in a ledger: 400 measurements of
layers, 280 words of the rules, 120 of activations, its entries, decisions, audit and calls. Some
runs diverge, some go on from others, and those under the last of 32 checkpoints are tainted.

I/O: cookbook.sql; a DuckDB file in the folder that is given.  Units: seconds.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb

from projections.cookbook import recipes
from projections.projector import create_schema
from projections.reading import query
from studies.speed.timing import timed
from studies.statistics import Table

__all__ = ["ROWS", "CookbookTimes", "fill", "measure"]

ROWS = 10_000_000
_ROWS_A_RUN = 1_000  # about
_SOURCE = Path(__file__).with_suffix(".sql")


@dataclass(frozen=True, kw_only=True)
class CookbookTimes:
    """What was measured; of each question the quickest of its rounds."""

    rows: int  # in all tables
    seconds: dict[str, float]  # wall clock, by question
    processor: dict[str, float]  # of all threads, by question

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        yield Table(
            title=f"{self.rows:,} rows",
            columns=("question", "s", "s of processors"),
            rows=tuple(
                (q, f"{s:.2f}", f"{self.processor[q]:.2f}") for q, s in self.seconds.items()
            ),
        )


def measure(folder: Path, *, rows: int = ROWS, rounds: int = 3) -> CookbookTimes:
    """Ask every question of the cookbook in a made-up file of about so many rows."""
    database = folder / "cookbook.duckdb"
    filled = fill(database, rows=rows)
    seconds: dict[str, float] = {}
    processor: dict[str, float] = {}
    for recipe in recipes():
        found = [timed(partial(query, database, recipe.sql)) for _ in range(rounds)]
        seconds[recipe.title] = min(each.wall for each in found)
        processor[recipe.title] = min(each.processor for each in found)
    return CookbookTimes(rows=filled, seconds=seconds, processor=processor)


def fill(database: Path, *, rows: int = ROWS) -> int:
    """Make the file, which must not be there; return how many rows its tables have."""
    with closing(duckdb.connect(str(database))) as connection:
        create_schema(connection)
        connection.execute("SET VARIABLE runs = ?", [max(rows // _ROWS_A_RUN, 1)])
        connection.execute(_SOURCE.read_text(encoding="utf-8"))
        found = connection.execute(
            "SELECT SUM(estimated_size) FROM duckdb_tables() WHERE schema_name = 'log'"
        ).fetchall()
        return int(found[0][0])
