"""Rule coverage: which firings were answered, and what the answers violate.

The checks are in SQL (coverage.sql), over tables that the judge itself fills from entries that it
has just verified.

I/O: computes in memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from aggregates.playbook import FACTORS, MAX_LR, MIN_LR, REMEDIES, RESTORING
from aggregates.spec import MAX_BLOCKS, MAX_WIDTH
from judge.auditing.effects import Ineffective, find_effects
from judge.auditing.replayed import Replay
from judge.errors import StepError
from ledger.verification.verified_entries import VerifiedEntry
from projections.errors import ProjectionError
from projections.mapping import TABLES
from projections.projector import project

READ = (  # the tables that coverage.sql reads
    "citations",
    "decisions",
    "epochs",
    "remedies",
    "rule_evaluations",
    "run_ends",
    "run_starts",
)
_BATCH_BYTES = 400_000  # of bodies; their rows take some 10 MB
_CHECKS = Path(__file__).with_name("coverage.sql")
_EFFECTS_SQL = """
-- Remedies that did not remedy a rule that they cite.
CREATE TEMP TABLE coverage_ineffective (run_id VARCHAR, number INTEGER, rule VARCHAR, why VARCHAR);
-- Where a rule was silent only because such a remedy had restarted it.
CREATE TEMP TABLE coverage_false_silence (run_id VARCHAR, epoch INTEGER, rule VARCHAR);
-- The largest learning rate to come within the limit, by the settings of an epoch.
CREATE TEMP TABLE coverage_peaks (run_id VARCHAR, epoch INTEGER, lr DOUBLE);
"""
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
    # Firings of rules that are not waived, without those that were excused and deferred; for each,
    # whether it begins an episode.
    firings: Mapping[tuple[str, int], bool]  # by rule and epoch
    answered: int  # of these
    rules_answered: tuple[str, ...]  # of firings that put the run to the test
    tested: int  # firings with an epoch after them that a policy or a human answered
    remedied: bool  # whether a remedy for a fired rule took effect
    waived: int = 0  # firings of rules that are waived
    excused: int = 0  # firings that could be put off for a good reason, and were

    @property
    def episodes(self) -> int:
        """How many episodes the firings belong to."""
        return sum(self.firings.values())

    def why_unexercised(self, *, firings: int = 1, rules: int = 1) -> str | None:
        """Return why the answers say little about a policy, None if it was exercised.

        `firings` and `rules` are the least numbers that have to be answered.
        """
        if not self.firings:
            return "no rule fired that wanted an answer"
        if not self.tested:
            return "no policy answered a firing before the last epoch"
        if self.tested < firings:
            return f"answered firings: {self.tested}, the minimum is {firings}"
        if len(self.rules_answered) < rules:
            return f"answered rules: {len(self.rules_answered)}, the minimum is {rules}"
        return None if self.remedied else "no remedy took effect"

    def obligations(self, violations: Iterable[Violation]) -> int:
        """Return the number of obligations: see docs/explanation/scores.md.

        An episode is one, however often its rule fires. A further firing counts if it was violated,
        so that a firing that is answered well adds nothing to the denominator.
        """
        violated = {(violation.rule, violation.epoch) for violation in violations}
        return sum(begins or place in violated for place, begins in self.firings.items())


def create_inputs(connection: DuckDBPyConnection) -> None:
    """Add the tables that the checks need besides those of projections."""
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
        [[name for name, each in REMEDIES.items() if each.moves == "lr" or name in RESTORING]],
    )
    connection.execute(_EFFECTS_SQL)


def add_effects(
    connection: DuckDBPyConnection,
    run_id: str,
    found: Sequence[Ineffective],
    silent: Sequence[tuple[int, str]],
    peaks: Mapping[int, float],
) -> None:
    """Tell the checks what the remedies of a run changed, as find_effects() returns it."""
    connection.execute(
        "INSERT INTO coverage_ineffective SELECT ?, unnest(?), unnest(?), unnest(?)",
        [run_id, [e.decision for e in found], [e.rule for e in found], [e.why for e in found]],
    )
    connection.execute(
        "INSERT INTO coverage_false_silence SELECT ?, unnest(?), unnest(?)",
        [run_id, [epoch for epoch, _ in silent], [rule for _, rule in silent]],
    )
    connection.execute(
        "INSERT INTO coverage_peaks SELECT ?, unnest(?), unnest(?)",
        [run_id, list(peaks), list(peaks.values())],
    )


def measure_coverage(connection: DuckDBPyConnection, run_id: str) -> Coverage:
    """Perform the checks, and return what they say of one run."""
    connection.execute(_CHECKS.read_text(encoding="utf-8"))
    rows = connection.execute(
        _KINDS_SQL + " WHERE run_id = ? ORDER BY epoch, decision, kind, rule", [run_id]
    ).fetchall()
    firings = connection.execute(
        "SELECT rule, epoch, answered, tests, begins FROM coverage_obliging WHERE run_id = ?",
        [run_id],
    ).fetchall()
    [(remedied,)] = connection.execute(
        "SELECT count(*) > 0 FROM coverage_effects WHERE run_id = ?", [run_id]
    ).fetchall()
    [(fired, counted)] = connection.execute(
        "SELECT (SELECT count(*) FROM rule_evaluations WHERE fired AND run_id = $1),"
        " (SELECT count(*) FROM coverage_firings WHERE run_id = $1)",
        [run_id],
    ).fetchall()
    tested = [rule for rule, _, answered, tests, _ in firings if answered and tests]
    return Coverage(
        violations=tuple(Violation(*row) for row in rows),
        firings={(rule, epoch): begins for rule, epoch, _, _, begins in firings},
        answered=sum(answered for _, _, answered, _, _ in firings),
        rules_answered=tuple(sorted(set(tested))),
        tested=len(tested),
        remedied=remedied,
        waived=fired - counted,
        excused=counted - len(firings),
    )


def project_coverage(entries: Sequence[VerifiedEntry], replay: Replay) -> Coverage:
    """Build the tables of this run alone, in memory, and perform the checks of coverage."""
    run_id = str(replay.run.id)
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        load(connection, entries)
        create_inputs(connection)
        add_effects(connection, run_id, *find_effects(replay))
        return measure_coverage(connection, run_id)


def create_tables(connection: DuckDBPyConnection) -> None:
    """Create the tables that the checks read, and the position of the projector, alone."""
    connection.execute("CREATE SCHEMA log; USE log")
    for table in (*READ, "position"):
        columns = ", ".join(f'"{name}" {kind}' for name, (kind, _) in TABLES[table].items())
        connection.execute(f"CREATE TABLE {table} ({columns})")
    connection.execute("INSERT INTO position VALUES (0, NULL, '')")


def load(connection: DuckDBPyConnection, entries: Iterable[VerifiedEntry]) -> None:
    """Fill the tables of an empty database; raise StepError naming an entry that does not fit."""
    create_tables(connection)
    try:
        project(connection, entries, batch_bytes=_BATCH_BYTES, tables=READ, gaps=True)
    except ProjectionError as error:
        raise StepError(f"the run's entries cannot be loaded into the tables: {error}") from error
