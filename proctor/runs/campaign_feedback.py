"""What an attempt is told of the earlier ones, and the verdicts that it is made from.

Both are functions of recorded audits alone, so that whoever has the events can make them again.
Accuracy on the test set is left out: it is not to be learned from.

A campaign names the audits that it fed back and ranked by. Anybody who can append can name any, so
verdicts are shown from the audits that count, whether the campaign names them or not.

Source: projections/verdicts.sql, and the view campaign_progress.
I/O: what is called read_...() reads the log or the home.  Units: epochs from 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

from aggregates.audit import Audit
from aggregates.violations import LISTED, listed_violations, violations_found
from judge.auditing.coverage import Violation
from judge.auditing.report import AuditReport, Kind, Scores, StepResult
from ledger.application import LedgerApplication
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import ask

MOST_ATTEMPTS = 8  # the latest; a prompt has no room for more
MOST_EPOCHS = 8  # of each kind of violation, the first
DEFERRED_TOO_LONG = "unresolved_deferral"  # see judge/auditing/coverage.sql
_STANDINGS = (
    "SELECT run_id, place, audit_id AS audit, COALESCE(audit_signed, FALSE) AS signed, retrained, "
    "why_not FROM campaign_progress WHERE campaign_id = ? AND NOT abandoned"
)


def make_feedback(reports: Sequence[AuditReport]) -> dict[str, Any]:
    """Return what the next attempt is told, from the verdicts on all that came before, in order."""
    numbered = list(enumerate(reports, start=1))
    return {"attempts": [_attempt(number, report) for number, report in numbered[-MOST_ATTEMPTS:]]}


def _attempt(number: int, report: AuditReport) -> dict[str, Any]:
    scores, kinds = report.scores, report.by_kind()
    epochs: dict[Kind, set[int]] = {kind: set() for kind in kinds}
    for found in report.violations:
        if found.epoch is not None:
            epochs[found.kind, found.rule, found.emitter].add(found.epoch)
    return {
        "number": number,
        "scores": {
            "process_score": scores.process_score,
            "validation_accuracy": scores.validation_accuracy,
        },
        "violations": [
            {
                "kind": kind,
                "rule": rule or None,
                "emitter": emitter,
                "count": kinds[kind, rule, emitter],
                "epochs": sorted(epochs[kind, rule, emitter])[:MOST_EPOCHS],
            }
            for kind, rule, emitter in sorted(kinds, key=lambda each: [one or "" for one in each])
        ],
        "deferred_too_long": sorted({r or "" for kind, r, _ in kinds if kind == DEFERRED_TOO_LONG}),
    }


def read_verdict(log: LedgerApplication, audit: str) -> AuditReport:
    """Return the verdict of an audit as it is recorded; raises ProctorError if there is none."""
    events: list[Any] = list(log.events.get(UUID(audit)))
    if not events or type(events[-1]) is not Audit.Scored:
        raise ProctorError(f"there is no whole audit {audit}")
    return verdict_of(events)


def verdict_of(events: Sequence[Any]) -> AuditReport:
    """Return an audit's verdict as its events hold it: long texts are cut there.

    Of very many violations they only have the number of some, see aggregates/violations.py.
    """
    started, scored = events[0], events[-1]
    steps = [event for event in events if type(event) is Audit.StepCompleted]
    listed = listed_violations(vars(scored))
    total = violations_found(vars(scored), map(vars, steps))
    violations, unlisted = list[Violation](), dict[Kind, int]()
    for place, each in enumerate(listed):
        times, row = each["times"], {key: each[key] for key in each if key != "times"}
        if place < LISTED or row["epoch"] is not None:
            violations.append(Violation(**{**row, "detail": row["detail"] or ""}))
        else:
            unlisted[row["kind"], row["rule"], row["emitter"]] = times
    target: Mapping[str, Any] = steps[-1].evidence if steps else {}
    names = {field.name for field in fields(Scores)} - {"target_accuracy"}
    return AuditReport(
        run_id=started.run,
        audit_id=str(started.originator_id),
        tree_head=started.tree_head or None,
        config=started.config,
        environment=started.environment,
        steps=tuple(StepResult(s.step, s.name, s.status, s.summary, s.evidence) for s in steps),
        scores=Scores(
            **{name: getattr(scored, name) for name in names},
            target_accuracy=target.get("target_accuracy"),
        ),
        violations=tuple(violations),
        unlisted=unlisted,
        total=total if scored.further is None else None,
    )


def read_standings(home: Home, campaign: UUID) -> dict[str, dict[str, Any]]:
    """Return the verdicts that count, by run, from tables of a ledger that holds.

    There is no `place` while the campaign goes on and where the run does not fit, and no `audit`
    where none counts; `retrained` is a share of the epochs.
    """
    return {row["run_id"]: row for row in ask(home, _STANDINGS, campaign)}


def read_attempt_draws(home: Home, campaign: UUID) -> list[dict[str, Any]]:
    """Return the runs that ask what a campaign asks and are none of its attempts."""
    return ask(home, "SELECT * FROM campaign_draws WHERE campaign_id = ? ORDER BY idx", campaign)
