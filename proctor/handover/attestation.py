"""The verdict on a run as an in-toto Statement, for tools that check supply chains.

Its subjects are the files that the run handed in. Its predicate says what the audit that counts
found, which entry of the ledger records that, and under which tree head.

Source: in-toto Statement version 1 (in-toto/attestation); the view counting_audits.
Trust: what is told comes from a ledger that was just verified.
I/O: none.
"""

import json
from contextlib import closing
from uuid import UUID

from aggregates.audit import unchecked
from ledger.handover.sigstore_bundle import statement, subjects
from ledger.verification.reader import VerifiedLedger
from proctor.errors import ProctorError
from proctor.handover.evidence import events_of
from proctor.output.terminal import records_of
from projections.projector import projected, settled

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


def verdict_statement(ledger: VerifiedLedger, run: UUID) -> bytes:
    """Return the Statement of the verdict on a run; or raise ProctorError."""
    entries, authority = events_of(ledger, run), ledger.authority.stream_id
    with (
        closing(projected(entries, authority=authority, quarantine=True, gaps=True)) as tables,
        settled(tables, "audit_strengths"),
    ):
        if not (found := records_of(tables, _AUDIT, [str(run)])):
            raise ProctorError(f"no audit of run {run} counts; `proctor judge {run}` makes one")
        (told,) = found
        index, files = told.pop("idx"), json.loads(told.pop("deliverables"))
        steps = records_of(tables, _STEPS, [told["audit"], index])
        shown = [{**step, "evidence": json.loads(step.pop("evidence"))} for step in steps]
        told["steps"], told["unchecked"] = steps, unchecked(shown)
        told["violations"] = records_of(tables, _VIOLATIONS, [str(run)])
    if not files:
        raise ProctorError(f"run {run} handed in no files that a statement could be about")
    assert ledger.head is not None, "a ledger with an entry has a tree head"
    (entry,) = (each for each in entries if each.index == index)
    predicate = {
        "run": str(run),
        "verdict": "held" if told.pop("held") else "failed",
        **told,
        "entry": {"index": index, "sha256": entry.entry_hash.hex()},
        "tree_head": ledger.head.note,
    }
    return statement(VERDICT, predicate, subjects(files))
