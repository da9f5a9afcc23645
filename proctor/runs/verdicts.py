"""Which verdict counts for each attempt of a campaign, and the ranking by these verdicts.

A campaign names the audits that it fed back and ranked by. Anybody who can append can name any, so
verdicts are shown from the audits that count, whether the campaign names them or not.

Source: projections/verdicts.sql, and the view campaign_progress.
Trust: what is told comes from a ledger that was just verified.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from proctor.home import Home
from proctor.remembering import held_session

_SQL = (
    "SELECT run_id, place, audit_id AS audit, COALESCE(audit_signed, FALSE) AS signed, retrained, "
    "why_not FROM campaign_progress WHERE campaign_id = ? AND NOT abandoned"
)


@dataclass(frozen=True)
class Standing:
    """The verdict that counts for an attempt."""

    run_id: str
    place: int | None  # None while the campaign goes on, and where the run does not fit
    audit: str | None  # None: no audit counts
    signed: bool
    retrained: float | None  # share of the epochs
    why_not: list[str]  # the run is not what the campaign says; empty: it is


def read_standings(home: Home, campaign: UUID) -> dict[str, Standing]:
    """Return the verdicts that count, by run, from tables of a ledger that holds."""
    return {row["run_id"]: Standing(**row) for row in ask(home, _SQL, campaign)}


def read_attempt_draws(home: Home, campaign: UUID) -> list[dict[str, Any]]:
    """Return the runs that ask what a campaign asks and are none of its attempts."""
    return ask(home, "SELECT * FROM campaign_draws WHERE campaign_id = ? ORDER BY idx", campaign)


def ask(home: Home, sql: str, subject: UUID | str) -> list[dict[str, Any]]:
    """Return what the tables of a home answer about a subject, from a ledger that holds."""
    with held_session(home) as session:
        return session.query(sql, [str(subject)]).records
