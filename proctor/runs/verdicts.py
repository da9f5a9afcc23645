"""Which verdict counts for each attempt of a campaign, and the ranking by these verdicts.

A campaign names the audits that it fed back and ranked by. Anybody who can append can name any, so
verdicts are shown from the audits that count, whether the campaign names them or not.

Source: projections/verdicts.sql, and the view campaign_progress.
Trust: what is told comes from a ledger that was just verified.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

from aggregates.transcript import Transcript
from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.verified_entries import VerifiedEntry
from proctor.home import Home
from proctor.remembering import open_remembered
from proctor.runs.replay import audited_run
from projections.projector import projected

__all__ = ["Standing", "read_standings"]

_SQL = (
    "SELECT run_id, place, audit_id, audit_signed, retrained FROM campaign_progress "
    "WHERE campaign_id = ? AND NOT abandoned"
)


@dataclass(frozen=True)
class Standing:
    """The verdict that counts for an attempt."""

    place: int | None  # None while the campaign goes on
    audit: str | None  # None: no audit counts
    signed: bool
    retrained: float | None  # share of the epochs


def read_standings(home: Home, campaign: UUID, runs: Iterable[str]) -> dict[str, Standing]:
    """Return the verdicts that count, by run; raises VerificationError for an invalid ledger."""
    ids = {UUID(run) for run in runs}
    streams = {*ids, *map(Transcript.id_of, ids)}
    wanted = {str(run) for run in ids}
    kept: list[VerifiedEntry] = []
    last: dict[UUID, VerifiedEntry] = {}  # of a stream: its length is all that the views need
    audits: set[UUID] = set()
    with open_remembered(home.ledger) as ledger:
        for entry in ledger.entries():
            if audited_run(entry) in wanted:
                audits.add(entry.stream_id)
            if entry.stream_id in streams:
                if entry.stream_version > 1:
                    last[entry.stream_id] = entry
                    continue
            elif entry.stream_id not in {campaign, *audits} and entry.name not in AUTHORITY_EVENTS:
                continue
            kept.append(entry)
    kept = sorted([*kept, *last.values()], key=lambda entry: entry.index)
    with closing(projected(kept, quarantine=True, chosen=True)) as connection:
        rows = connection.execute(_SQL, [str(campaign)]).fetchall()
    return {
        run: Standing(place, audit, bool(signed), retrained)
        for run, place, audit, signed, retrained in rows
    }
