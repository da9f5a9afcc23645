"""Rule coverage: which firings were answered, and what the answers violate.

The checks are SQL views (coverage.sql) over tables that the judge itself fills from entries that it
has just verified.

I/O: the connection only.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection

from aggregates.playbook import FACTORS, MAX_LR, MIN_LR, REMEDIES
from aggregates.spec import MAX_BLOCKS, MAX_WIDTH

_VIEWS = Path(__file__).with_name("coverage.sql")
_KINDS_SQL = "SELECT kind, rule, epoch, decision, emitter, detail FROM coverage_violations"


@dataclass(frozen=True)
class Violation:
    """One violation of the process rules, and who caused it."""

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
    """The obligations of a run, and how it met them."""

    violations: tuple[Violation, ...]
    obligations: (
        int  # firings of rules that are not waived, without those that were excused and deferred
    )
    answered: int  # of these
    rules_answered: tuple[str, ...]  # of firings that put the run to the test
    tested: int  # firings with an epoch after them that a policy or a human answered
    remedied: bool  # whether a remedy for a fired rule took effect


def install_views(connection: DuckDBPyConnection) -> None:
    """Add the coverage views to a connection that has the tables of projections."""
    connection.execute(
        "CREATE TEMP TABLE coverage_bounds AS SELECT ? AS least_lr, ? AS most_lr,"
        " ? AS most_blocks, ? AS most_width",
        [MIN_LR, MAX_LR, MAX_BLOCKS, MAX_WIDTH],
    )
    connection.execute(
        "CREATE TEMP TABLE coverage_factors AS SELECT unnest(?) AS rule, unnest(?) AS least",
        [list(FACTORS), [least for least, _ in FACTORS.values()]],
    )
    connection.execute(
        "CREATE TEMP TABLE coverage_rates AS SELECT unnest(?) AS direction",
        [[direction for direction, remedy in REMEDIES.items() if remedy.moves == "lr"]],
    )
    connection.execute(_VIEWS.read_text(encoding="utf-8"))


def measure_coverage(connection: DuckDBPyConnection, run_id: str) -> Coverage:
    """Read what the views say of one run."""
    rows = connection.execute(
        _KINDS_SQL + " WHERE run_id = ? ORDER BY epoch, decision, kind, rule", [run_id]
    ).fetchall()
    firings = connection.execute(
        "SELECT rule, answered, tests FROM coverage_firings"
        " WHERE run_id = ? AND NOT (idle AND answered)",
        [run_id],
    ).fetchall()
    [(remedied,)] = connection.execute(
        "SELECT count(*) > 0 FROM coverage_effects WHERE run_id = ?", [run_id]
    ).fetchall()
    tested = [rule for rule, answered, tests in firings if answered and tests]
    return Coverage(
        violations=tuple(Violation(*row) for row in rows),
        obligations=len(firings),
        answered=sum(answered for _, answered, _ in firings),
        rules_answered=tuple(sorted(set(tested))),
        tested=len(tested),
        remedied=remedied,
    )
