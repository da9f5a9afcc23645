"""The tables that curation reads: in memory, from entries that have just been verified.

Trust: entries are verified before they come here; the DuckDB file of a home is never asked.
I/O: none.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import duckdb

from judge.errors import CurationError
from ledger.verification.reader import VerifiedLedger
from projections.identity import read_position
from projections.projector import projected, settled


@dataclass(frozen=True)
class Tables:
    """All tables and views as of one index."""

    connection: duckdb.DuckDBPyConnection
    as_of: int  # index of the last entry
    head: str  # its hash, hexadecimal; it fixes all before it

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the rows of an answer, each by its columns."""
        cursor = self.connection.execute(sql, parameters or None)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def settled(self) -> AbstractContextManager[None]:
        """Compute what speaks for and against runs and decisions once, for several questions."""
        views = ("audit_strengths", "run_standing", "curated_runs", "curated_decisions")
        return settled(self.connection, *views)


@contextmanager
def open_tables(ledger: VerifiedLedger, *, as_of: int | None = None) -> Iterator[Tables]:
    """Give the tables over entries 0 to `as_of` (by default, all), both included.

    Raises CurationError where there is no such entry, or where one that an operator signed cannot
    be read: what it said would be let in for want of reading it.
    """
    last = ledger.size - 1 if as_of is None else as_of
    if not 0 <= last < ledger.size:
        raise CurationError(
            f"entry {last} not found; the ledger has {ledger.size} entries, numbered from 0"
        )
    with closing(
        projected(
            islice(ledger.entries(), last + 1),
            authority=ledger.authority.stream_id,
            quarantine=True,
        )
    ) as connection:
        tables = Tables(connection, last, str(read_position(connection)[1]))
        _verify_readable(tables)
        yield tables


def _verify_readable(tables: Tables) -> None:
    """Raise CurationError for an operator's word that cannot be read: nobody else can say it.

    What others say is about a stream of theirs: the view unread_runs keeps out what that touches.
    """
    odd = tables.ask(
        "SELECT e.idx, e.name, u.reason FROM unreadable AS u JOIN events AS e USING (idx) "
        "WHERE u.signed_as = 'operator' ORDER BY e.idx LIMIT 1"
    )
    for row in odd:
        raise CurationError(
            f"entry {row['idx']} ({row['name']}) is signed by an operator and cannot be read, and "
            f"it may exclude runs: {row['reason']}"
        )
