"""The verdict on a run as an in-toto Statement, for tools that check supply chains.

Its subjects are the files that the run handed in. Its predicate says what the audit that counts
found, which entry of the ledger records that, and under which tree head.

Source: in-toto Statement version 1 (in-toto/attestation); the view counting_audits.
Trust: what is told comes from a ledger that was just verified.
I/O: none.
"""

import json
from contextlib import closing
from typing import Any
from uuid import UUID

import duckdb

from aggregates.audit import unchecked
from ledger.verification.reader import VerifiedLedger
from proctor.errors import ProctorError
from proctor.home import find_run
from projections.projector import projected

__all__ = ["VERDICT", "verdict_statement"]

VERDICT = "https://proctor.local/verdict/v1"  # predicate type; a name, not a place
_AUDIT = """
SELECT
    c.audit_id AS audit, c.idx, c.held, c.signed AS signed_by_judge, c.retrained,
    s.accuracy_score, s.process_score, s.process_axis_exercised, s.test_accuracy,
    s.validation_accuracy, s.obligations,
    (SELECT a.violations FROM audits AS a WHERE a.audit_id = c.audit_id AND a.scored_idx = c.idx)
        AS violations_found,
    r.config_hash, r.rules_hash, e.deliverables
FROM counting_audits AS c
JOIN audit_scores AS s USING (audit_id, idx)
JOIN run_starts AS r ON r.run_id = c.run_id
JOIN run_ends AS e ON e.run_id = c.run_id
WHERE c.run_id = ?
"""
_STEPS = """
SELECT step, name, status, evidence FROM audit_steps WHERE audit_id = ? AND idx < ? ORDER BY step
"""
_VIOLATIONS = (
    "SELECT kind, rule, epoch, emitter FROM violations "
    "WHERE run_id = ? AND (detail IS NOT NULL OR epoch IS NOT NULL) ORDER BY place"
)


def verdict_statement(ledger: VerifiedLedger, name: str) -> tuple[UUID, bytes]:
    """Return the run of this name, and the Statement of the verdict on it; or ProctorError."""
    authority = ledger.authority.stream_id
    with closing(projected(ledger.entries(), authority=authority, quarantine=True)) as tables:
        known = _rows(
            tables,
            "SELECT run_id FROM run_starts ORDER BY run_id NOT IN (SELECT run_id FROM forks), idx",
        )
        run = find_run([UUID(row["run_id"]) for row in known], name)
        if not (found := _rows(tables, _AUDIT, str(run))):
            raise ProctorError(f"no audit of run {run} counts; `proctor judge {run}` makes one")
        (told,) = found
        index, files = told.pop("idx"), json.loads(told.pop("deliverables"))
        steps = _rows(tables, _STEPS, told["audit"], index)
        shown = [{**step, "evidence": json.loads(step.pop("evidence"))} for step in steps]
        told["steps"], told["unchecked"] = steps, unchecked(shown)
        told["violations"] = _rows(tables, _VIOLATIONS, str(run))
    if not files:
        raise ProctorError(f"run {run} handed in no files that a statement could be about")
    entry, head = next(iter(ledger.entries(start=index))), ledger.head
    assert head is not None, "a ledger with an entry has a tree head"
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": each, "digest": {"sha256": files[each]}} for each in sorted(files)],
        "predicateType": VERDICT,
        "predicate": {
            "run": str(run),
            "verdict": "held" if told.pop("held") else "failed",
            **told,
            "entry": {"index": index, "sha256": entry.entry_hash.hex()},
            "tree_head": head.note,
        },
    }
    return run, json.dumps(statement, sort_keys=True).encode()


def _rows(tables: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[dict[str, Any]]:
    """Return the rows of an answer by their columns."""
    answer = tables.execute(query, values)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
