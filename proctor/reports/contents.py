"""What a report shows, as plain values: rows of the views, and nothing else.

Source: projections/*.sql.
Trust: the tables are built in memory from the entries that are given; what those say is hostile.
I/O: none.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any
from uuid import UUID

from aggregates.improvement.evolution import MODE, Evolution
from aggregates.violations import LISTED
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import ProctorError
from proctor.output.terminal import plain, records_of
from proctor.reports.subjects import Subject
from proctor.runs.metrics import EPOCHS
from proctor.runs.story import PARTS
from proctor.runs.worth import WORTH
from projections.projector import projected, settled

_FAMILY = """
SELECT s.run_id, COALESCE(f.parent, r.parent_run) AS parent_run, f.epoch AS forked_after,
    COALESCE(f.state = '', FALSE) AS resumed, s.state, s.epochs_planned, s.policy_name, s.verdict,
    s.accuracy_score, s.process_score, r.started_idx
FROM run_summary AS s JOIN runs AS r USING (run_id) LEFT JOIN forks AS f USING (run_id)
ORDER BY r.started_idx"""
_AUDITS = """
SELECT a.audit_id, a.hard_fail, a.accuracy_score, a.process_score, a.signed, a.retrained,
    a.standing, a.scored_idx, s.complete
FROM audits AS a
LEFT JOIN audit_strengths AS s ON s.audit_id = a.audit_id AND s.idx = a.scored_idx
WHERE a.run_id = $1 ORDER BY a.scored_idx"""
_VIOLATIONS = (  # those that are recorded in words: a list, and no figure is counted from it
    "SELECT run_id, kind, rule, epoch, decision, emitter, detail, told, cause "  # noqa: S608 - LISTED is a number
    f"FROM violation_causes WHERE run_id {{}} AND place < {LISTED} ORDER BY run_id, place"
)
_CAUSES = (
    "SELECT run_id, emitter, cause, kind, rule, CAST(SUM(times) AS BIGINT) AS violations "
    "FROM violation_causes WHERE run_id {} GROUP BY ALL ORDER BY ALL"
)
_FOUND = (
    "SELECT run_id, violations, more_violations FROM audits WHERE standing AND run_id {} "
    "ORDER BY run_id"
)
_CALLS = "SELECT * FROM call_summary WHERE run_id {} ORDER BY run_id"
_ATTEMPTS = "IN (SELECT run_id FROM attempts WHERE campaign_id = $1)"
_CELLS = "IN (SELECT run_id FROM comparison_runs WHERE comparison_id = $1)"

# What a report shows -> the query; $1 is the subject. A row of the first is what it is about. The
# tables may have other subjects, too, except for _FAMILY.
_QUERIES: Mapping[str, Mapping[str, str]] = {
    "run": {
        "summary": "SELECT * FROM run_summary WHERE run_id = $1",
        "run": "SELECT * FROM runs WHERE run_id = $1",
        "epochs": EPOCHS,
        # A number or an epoch that an odd ledger has many times is not multiplied with itself.
        "rules": "SELECT * EXCLUDE (precedence) FROM (SELECT DISTINCT h.epoch, h.rule, h.fired, "
        "h.side, h.streak, h.waived, h.outcome, e.value, e.ema, h.precedence "
        "FROM rule_heatmap AS h JOIN rule_evaluations AS e "
        "USING (run_id, epoch, rule, fired, streak) WHERE h.run_id = $1) "
        "ORDER BY epoch, precedence",
        "waived": PARTS["waived"],
        "layers": "SELECT layer, MIN(place) AS place, LIST(epoch ORDER BY epoch) AS epochs, "
        "LIST(grad_norm ORDER BY epoch) AS norms FROM layer_metrics WHERE run_id = $1 "
        "GROUP BY layer ORDER BY MIN(place), layer",
        "decisions": "SELECT DISTINCT ON (d.idx) o.* EXCLUDE (run_id), d.idx "
        "FROM decision_outcomes AS o JOIN decisions AS d "
        "USING (run_id, number, epoch, source, direction, params, justification) "
        "WHERE o.run_id = $1 ORDER BY number, d.idx",
        "effects": "SELECT decision, rule, epoch, worked FROM remedy_effects WHERE run_id = $1 "
        "ORDER BY decision, rule",
        "provocations": "SELECT * EXCLUDE (run_id) FROM provocation_outcomes WHERE run_id = $1",
        "weights": "SELECT epoch FROM weights WHERE run_id = $1 AND kind = 'best' "
        "ORDER BY idx DESC LIMIT 1",
        "credits": "SELECT credit_id, decision, arm, pairs, backed, why_not "
        "FROM decision_credit WHERE run_id = $1 ORDER BY decision, arm, credit_id",
        "worth": WORTH,
        "audits": _AUDITS,
        "misplaced": PARTS["misplaced"],
        "verdict": "SELECT * FROM audits WHERE run_id = $1 AND standing",
        "steps": "SELECT t.step, t.name, t.status, t.summary, t.idx FROM audit_steps AS t "
        "JOIN audits AS a ON a.audit_id = t.audit_id AND t.idx < a.scored_idx "
        "WHERE a.run_id = $1 AND a.standing ORDER BY t.step",
        "coverage": "SELECT TRY_CAST(t.evidence ->> '$.firings' AS BIGINT) AS needed, "
        "TRY_CAST(t.evidence ->> '$.answered' AS BIGINT) AS answered FROM audit_steps AS t "
        "JOIN audits AS a ON a.audit_id = t.audit_id AND t.idx < a.scored_idx "
        "WHERE a.run_id = $1 AND a.standing AND t.step = 8",
        "violations": _VIOLATIONS.format("= $1"),
        "causes": _CAUSES.format("= $1"),
        "family": _FAMILY,
        "calls": "SELECT * FROM call_summary WHERE run_id = $1",
        "stages": "SELECT * EXCLUDE (subject, kind) FROM stage_use WHERE subject = $1 "
        "ORDER BY stage",
    },
    "campaign": {
        "campaign": "SELECT * FROM campaigns WHERE campaign_id = $1",
        "attempts": "SELECT * EXCLUDE (campaign_id) FROM campaign_progress WHERE campaign_id = $1 "
        "ORDER BY number, run_id",
        "draws": "SELECT run_id, made_by, says_so, end_reason FROM campaign_draws "
        "WHERE campaign_id = $1 ORDER BY idx, run_id",
        "epochs": "SELECT e.run_id, a.number, e.epoch, e.val_loss, e.val_accuracy FROM epochs AS e "
        "JOIN attempts AS a USING (run_id) ANTI JOIN abandoned_attempts AS b "
        "ON b.campaign_id = a.campaign_id AND b.run_id = a.run_id WHERE a.campaign_id = $1 "
        "ORDER BY a.number, e.epoch",
        "violations": _VIOLATIONS.format(_ATTEMPTS),
        "found": _FOUND.format(_ATTEMPTS),
        "feedback": "SELECT number, idx, feedback FROM feedback WHERE campaign_id = $1 "
        "ORDER BY number",
        "advice": "SELECT number, version, advice FROM campaign_advice WHERE campaign_id = $1 "
        "ORDER BY number",
        "calls": _CALLS.format(_ATTEMPTS),
    },
    "comparison": {
        "comparison": "SELECT s.*, e.idx AS ended_idx FROM comparison_starts AS s "
        "LEFT JOIN comparison_ends AS e USING (comparison_id) WHERE s.comparison_id = $1",
        "cells": "SELECT policy, condition, seed, run_id, problem, state, audit_id, test_accuracy, "
        "process_score, exercised, NULL AS firings, "  # a report does not rest on the rules
        "code, fits, why_not, metric, better, test_metrics FROM comparison_cells "
        "WHERE comparison_id = $1 ORDER BY condition, seed, policy, run_id",
        "draws": "SELECT policy, condition, seed, run_id, made_by, counted, end_reason "
        "FROM comparison_draws WHERE comparison_id = $1 AND NOT counted "
        "ORDER BY condition, seed, policy, run_id",
        "violations": _VIOLATIONS.format(_CELLS),
        "found": _FOUND.format(_CELLS),
        "calls": _CALLS.format(_CELLS),
    },
    "line": {
        "line": "SELECT * FROM line_starts WHERE line_id = $1",
        "checkpoints": "SELECT s.* EXCLUDE (line_id), t.time AS created_at, "
        "w.time AS rolled_back_at FROM checkpoint_standing AS s JOIN events AS t USING (idx) "
        "LEFT JOIN events AS w ON w.idx = s.rolled_back_idx "
        "WHERE s.line_id = $1 ORDER BY s.idx",
        "metrics": "SELECT * EXCLUDE (line_id) FROM checkpoint_metrics WHERE line_id = $1 "
        "ORDER BY idx",
        "trends": "SELECT * EXCLUDE (line_id) FROM metric_trends WHERE line_id = $1 "
        "ORDER BY metric",
        "proposals": "SELECT p.* EXCLUDE (line_id), s.tainted, s.taint_reasons, e.improvements, "
        "e.regressions, e.reasons, e.level FROM infra_proposals AS p "
        "LEFT JOIN proposal_standing AS s USING (proposal_id) "
        "LEFT JOIN infra_evaluations AS e USING (proposal_id) "
        "WHERE p.line_id = $1 ORDER BY p.idx",
        "rounds": "SELECT r.* EXCLUDE (evolution_id) FROM evolution_rounds AS r "
        "JOIN evolutions AS e USING (evolution_id) WHERE e.line_id = $1 ORDER BY r.idx",
        "orders": "SELECT o.idx, o.what, o.rounds FROM evolution_orders AS o "
        "JOIN evolutions AS e USING (evolution_id) WHERE e.line_id = $1 ORDER BY o.idx",
        # Of all lines; rows_about() chooses. How long a proposal waited for people is no cost.
        "spent": "SELECT subject, SUM(seconds) AS seconds, CAST(SUM(calls) AS BIGINT) AS calls, "
        "CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens, "
        "CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens, SUM(cost) AS cost "
        "FROM stage_use WHERE kind = 'proposal' AND stage NOT IN ('branch', 'conclude') "
        "GROUP BY subject ORDER BY subject",
        "models": "SELECT t.run_id AS subject, "  # noqa: S608 - MODE is our own
        "ARG_MAX(c.model, c.number) AS model "
        "FROM transcripts AS t JOIN calls AS c USING (transcript_id) "
        f"WHERE t.mode = '{MODE}' "
        "GROUP BY t.run_id ORDER BY t.run_id",
        "answers": "SELECT t.proposal_id AS subject, COUNT(*) AS answers, "
        "SUM(t.cpu_seconds) AS cpu_seconds, "
        "TRY_CAST(SUM(TRY_CAST(t.metrics ->> '$.prompt_tokens' AS DOUBLE)) AS BIGINT) "
        "AS prompt_tokens, "
        "TRY_CAST(SUM(TRY_CAST(t.metrics ->> '$.tokens' AS DOUBLE)) AS BIGINT) "
        "AS completion_tokens "
        "FROM infra_task_scores AS t JOIN infra_submissions AS s USING (proposal_id) "
        "WHERE s.line_id = $1 AND NOT t.cached GROUP BY t.proposal_id ORDER BY t.proposal_id",
        # On tasks that no proposal has seen, but for evaluations on the set in the repository.
        "evaluated": "SELECT checkpoint_id, seed IS NOT NULL AS held_out, NULL AS sha256, "
        "SUM(right_answers) / SUM(tasks) AS success, "
        "CAST(IF(ANY_VALUE(seed) IS NULL, MAX(tasks), SUM(tasks)) AS BIGINT) AS tasks "
        "FROM checkpoint_evaluations WHERE line_id = $1 AND purpose <> 'confirmation' "
        "GROUP BY ALL UNION ALL SELECT d.checkpoint_id, TRUE, d.sha256, AVG(d.success), "
        "MAX(LEN(JSON_KEYS(d.tasks))) FROM drift_measurements AS d "
        "JOIN checkpoint_starts AS c USING (line_id, checkpoint_id) "
        "WHERE d.line_id = $1 AND d.task_set = 'hidden' AND d.commit = c.commit "
        "GROUP BY ALL ORDER BY ALL",
        "halts": "SELECT * EXCLUDE (line_id, envelope) FROM line_halts WHERE line_id = $1 "
        "ORDER BY idx",
        "alarms": "SELECT * EXCLUDE (line_id) FROM alarms WHERE line_id = $1 ORDER BY idx",
        "drift": "SELECT d.idx, d.checkpoint_id, d.task_set, d.sha256, d.success, "
        "d.commit = c.commit AS of_checkpoint FROM drift_measurements AS d "
        "LEFT JOIN checkpoint_starts AS c USING (line_id, checkpoint_id) "
        "WHERE d.line_id = $1 ORDER BY d.idx",
        "production": "SELECT run_id, checkpoint_id, started_idx, deficit FROM production_charts "
        "WHERE line_id = $1 ORDER BY started_idx",
        "valleys": "SELECT valley_id, idx, what, steps, reason FROM valleys WHERE line_id = $1 "
        "ORDER BY idx",
        "bisections": "SELECT b.bisection_id, b.idx, b.good, b.suspects, e.culprit, e.posterior, "
        "e.reason FROM bisections AS b LEFT JOIN bisection_ends AS e USING (bisection_id) "
        "WHERE b.line_id = $1 ORDER BY b.idx",
        "runs": "SELECT run_id, checkpoint, idx, tainted, taint_reasons, eligible, why_not "
        "FROM run_standing WHERE run_id IN (SELECT l.run_id FROM run_lineage AS l "
        "JOIN runs AS r ON r.run_id = l.ancestor JOIN checkpoint_starts AS c "
        "ON c.checkpoint_id = r.checkpoint WHERE c.line_id = $1) ORDER BY idx",
    },
}


def contents_of(
    entries: Sequence[VerifiedEntry], subject: Subject, *, authority: UUID
) -> dict[str, Any]:
    """Return everything that a report shows; raises ProctorError if its subject cannot be read.

    `authority` is the stream that decides on the ledger's keys.
    """
    found_in = projected(entries, authority=authority, quarantine=True, gaps=True)
    with closing(found_in) as tables:
        tables.execute("SET threads = 1")  # sums of floats depend on their order
        with settled(tables, "audit_strengths", "audits"):
            found = rows_about(
                subject,
                lambda sql: records_of(tables, sql, [subject.id] if "$1" in sql else None),
            )
        unreadable = [idx for (idx,) in tables.execute("SELECT idx FROM unreadable").fetchall()]
    first, *_ = found
    if not found[first]:
        raise ProctorError(f"{subject.kind} {subject.id} cannot be shown: its start cannot be read")
    told: dict[str, Any] = plain(found)
    return {**told, "unreadable": unreadable}


def rows_about(
    subject: Subject, ask: Callable[[str], list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that a page about a subject shows; `ask` answers a query, `$1` in it."""
    found = {name: ask(sql) for name, sql in _QUERIES[subject.kind].items()}
    if subject.kind == "line":
        for row in found["rounds"]:  # its calls name a round by this
            name = Evolution.round_id(UUID(subject.id), row["round"])
            row["subject"] = row["proposal_id"] or str(name)
        own = {row["proposal_id"] for row in found["proposals"]}
        own |= {row["subject"] for row in found["rounds"]}
        for part in ("spent", "models"):
            found[part] = [row for row in found[part] if row["subject"] in own]
    return found
