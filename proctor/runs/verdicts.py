"""Which verdict counts for each attempt of a campaign, and the ranking by these verdicts.

A campaign names the audits that it fed back and ranked by. Anybody who can append can name any, so
verdicts are shown from the audits that count, whether the campaign names them or not.

Source: projections/verdicts.sql, and the view campaign_progress.
Trust: what is told comes from a ledger that was just verified.
"""

from typing import Any
from uuid import UUID

from proctor.home import Home
from proctor.remembering import held_session

_SQL = (
    "SELECT run_id, place, audit_id AS audit, COALESCE(audit_signed, FALSE) AS signed, retrained, "
    "why_not FROM campaign_progress WHERE campaign_id = ? AND NOT abandoned"
)


def read_standings(home: Home, campaign: UUID) -> dict[str, dict[str, Any]]:
    """Return the verdicts that count, by run, from tables of a ledger that holds.

    There is no `place` while the campaign goes on and where the run does not fit, and no `audit`
    where none counts; `retrained` is a share of the epochs.
    """
    return {row["run_id"]: row for row in ask(home, _SQL, campaign)}


def read_attempt_draws(home: Home, campaign: UUID) -> list[dict[str, Any]]:
    """Return the runs that ask what a campaign asks and are none of its attempts."""
    return ask(home, "SELECT * FROM campaign_draws WHERE campaign_id = ? ORDER BY idx", campaign)


def ask(home: Home, sql: str, subject: UUID | str) -> list[dict[str, Any]]:
    """Return what the tables of a home answer about a subject, from a ledger that holds."""
    with held_session(home) as session:
        return session.query(sql, [str(subject)]).records
