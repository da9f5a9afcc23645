"""Which audit counts for each run, by the one rule of verdicts.sql, over a selection of entries.

Models handed over and lineages select streams_of() a run.

Trust: the entries are a ledger's, verified or proved; what they say is hostile. The answer is as
complete as they are.
I/O: none.
"""

from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

from aggregates.transcript import Transcript
from ledger.handover.selection import Wanted
from ledger.mapper import readable_body
from ledger.verification.verified_entries import VerifiedEntry
from projections.projector import projected

ENDS = ("run.started", "run.ended")  # what a verdict needs of a run, beside its last event
_ENDS_OF_TRANSCRIPT = ("transcript.started",)  # and its last event

_COUNTING = "SELECT run_id, audit_id, idx, held, signed FROM counting_audits ORDER BY idx"


@dataclass(frozen=True)
class CountingAudit:
    """The audit that counts for a run."""

    run: str
    audit: UUID
    scored: int  # index of its scores
    held: bool  # all gates passed, with every check in force
    signed: bool  # by a judge


def counting_audits(
    entries: Iterable[VerifiedEntry], *, authority: UUID
) -> dict[str, CountingAudit]:
    """Return the audits that count, by run; entries that cannot be read are set aside.

    `authority` is the stream that decides on the ledger's keys.
    """
    found = projected(entries, authority=authority, quarantine=True, gaps=True)
    with closing(found) as tables:
        rows = tables.execute(_COUNTING).fetchall()
    return {
        run: CountingAudit(run, UUID(audit), idx, bool(held), bool(signed))
        for run, audit, idx, held, signed in rows
    }


def streams_of(
    entries: Iterable[VerifiedEntry], run: UUID, *, own: Collection[str] | None = None
) -> Wanted:
    """Return the streams that a run's verdict follows from, beside the authority stream.

    `own` names the events of the run itself that are wanted; all by default.
    """
    audits = [
        entry.stream_id
        for entry in entries
        if entry.name == "audit.started"
        and (readable_body(entry.body) or {}).get("run") == str(run)
    ]
    return {
        run: own,
        Transcript.id_of(run): _ENDS_OF_TRANSCRIPT,
        **dict.fromkeys(audits),
    }
