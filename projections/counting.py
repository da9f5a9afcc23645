"""Which audit counts for each run, by the one rule of verdicts.sql, over a selection of entries.

Trust: the entries are a ledger's, verified or proved; what they say is hostile. The answer is as
complete as they are.
I/O: none.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

from ledger.verification.verified_entries import VerifiedEntry
from projections.projector import projected

__all__ = ["CountingAudit", "counting_audits"]

_COUNTING = "SELECT run_id, audit_id, idx, held, signed FROM counting_audits ORDER BY idx"


@dataclass(frozen=True)
class CountingAudit:
    """The audit that counts for a run."""

    run: str
    audit: UUID
    scored: int  # index of its scores
    held: bool  # all gates passed, with every check in force
    signed: bool  # by a judge


def counting_audits(entries: Iterable[VerifiedEntry]) -> dict[str, CountingAudit]:
    """Return the audits that count, by run; entries that cannot be read are set aside."""
    with closing(projected(entries, quarantine=True, gaps=True)) as tables:
        rows = tables.execute(_COUNTING).fetchall()
    return {
        run: CountingAudit(run, UUID(audit), idx, bool(held), bool(signed))
        for run, audit, idx, held, signed in rows
    }
