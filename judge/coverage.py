"""Rule coverage: which firings were answered, and what the answers violate.

The questions are SQL (coverage.sql) over tables that the judge has filled itself from entries that
it has just verified.

I/O: the connection only.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection

_VIEWS = Path(__file__).with_name("coverage.sql")
_KINDS_SQL = "SELECT kind, rule, epoch, decision, emitter, detail FROM coverage_violations"


@dataclass(frozen=True)
class Violation:
    """One lapse of the process, and whose it is."""

    kind: str
    rule: str | None
    epoch: int | None
    decision: int | None
    emitter: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as audit.scored holds them."""
        return asdict(self)


@dataclass(frozen=True)
class Coverage:
    """What a run was obliged to, and what it made of it."""

    violations: tuple[Violation, ...]
    obligations: int  # firings of rules that are not waived
    answered: int  # of these
    rules_answered: tuple[str, ...]


def install_views(connection: DuckDBPyConnection) -> None:
    """Add the coverage views to a connection that has the tables of projections."""
    connection.execute(_VIEWS.read_text(encoding="utf-8"))


def measure_coverage(connection: DuckDBPyConnection, run_id: str) -> Coverage:
    """Read what the views say of one run."""
    rows = connection.execute(
        _KINDS_SQL + " WHERE run_id = ? ORDER BY epoch, decision, kind, rule", [run_id]
    ).fetchall()
    firings = connection.execute(
        "SELECT rule, answered FROM coverage_firings WHERE run_id = ?", [run_id]
    ).fetchall()
    answered = [rule for rule, done in firings if done]
    return Coverage(
        violations=tuple(Violation(*row) for row in rows),
        obligations=len(firings),
        answered=len(answered),
        rules_answered=tuple(sorted(set(answered))),
    )
