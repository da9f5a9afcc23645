"""What the pages ask of the tables. Each query starts from the rows of one page or of one run.

Views that join everything (audits, run_summary) are not used: they take a fifth of a second in a
ledger of 300,000 entries, also for a single run.

Source: projections/schema.sql, projections/views.sql, projections/verdicts.sql.
I/O: none; the caller's function asks.
"""

from collections.abc import Sequence
from typing import Any

from aggregates.violations import LISTED
from proctor.live.tables import Ask
from proctor.output.terminal import told_verdict
from proctor.runs.story import PARTS
from proctor.runs.worth import MEASURED, WORTH

ON_PAGE = 30  # rows
_MOST_RELATIVES = 50  # runs of each kind that a run's page names
_MOST_MARKS = 4_000  # firings and carried-out decisions that charts show, the last ones
_MOST_LAYERS = 200  # of the last epoch
_MOST_NAMED = 50  # entries that cannot be read
_MOST_EPOCHS = 2_000  # of one run that are read; of a longer one, evenly chosen ones
ORDERS = {
    "newest": "r.started_idx DESC",
    "oldest": "r.started_idx",
    "best": "m.best DESC NULLS LAST, r.started_idx DESC",
}
STATES = ("running", "completed", "crashed", "failed", "interrupted", "restart", "stopped")
_BEST = (
    " LEFT JOIN (SELECT run_id, MAX(val_accuracy) FILTER (ISFINITE(val_accuracy)) AS best "
    "FROM epochs GROUP BY run_id) AS m ON m.run_id = r.run_id"
)
_CAUSE = (  # as in violation_causes, but for prompts
    "CASE WHEN emitter IN ('driver', 'harness') THEN 'harness' "
    "WHEN emitter = 'human' THEN 'human' ELSE 'policy' END"
)
_TEXT = "CONCAT_WS(' ', r.run_id, r.dataset, r.policy_name, r.campaign, r.checkpoint)"
_VERDICTS = (
    "SELECT k.run_id, k.audit_id, k.signed, k.retrained, s.idx, s.hard_fail, s.accuracy_score, "
    "s.process_score, s.process_axis_exercised AS exercised, s.test_accuracy "
    "FROM counting_audits AS k JOIN audit_scores AS s ON s.audit_id = k.audit_id AND s.idx = k.idx "
    "WHERE k."
)


_WANTED = (  # $1 is a text, $2 a state; empty for any
    f"($1 = '' OR CONTAINS(LOWER({_TEXT}), LOWER($1))) "
    "AND ($2 = '' OR COALESCE(r.end_reason, 'running') = $2)"
)


def count_runs(ask: Ask, *, text: str, state: str) -> dict[str, int]:
    """Return how many runs there are, are running, and are wanted; and how many lines."""
    [found] = ask(
        "SELECT COUNT(*) AS runs, COUNT(*) FILTER (r.end_reason IS NULL) AS running, "
        f"COUNT(*) FILTER ({_WANTED}) AS wanted, "
        "(SELECT COUNT(*) FROM line_starts) AS lines FROM runs AS r",
        text,
        state,
    )
    return found


def list_runs(ask: Ask, *, text: str, state: str, order: str, page: int) -> list[dict[str, Any]]:
    """Return a page of runs with their figures."""
    join = _BEST if order == "best" else ""
    rows = ask(
        "SELECT r.run_id, r.started_at, r.ended_at, COALESCE(r.end_reason, 'running') AS state, "
        "r.level, r.dataset, r.seed, r.policy_name, r.epochs_planned, r.campaign, r.parent_run, "
        "r.metric "
        f"FROM runs AS r{join} WHERE {_WANTED} ORDER BY {ORDERS[order]} LIMIT $3 OFFSET $4",
        text,
        state,
        ON_PAGE,
        (page - 1) * ON_PAGE,
    )
    return _with_figures(ask, rows)


_FIGURES = """
WITH own AS (SELECT UNNEST($1) AS run_id),
measured AS (
    SELECT run_id, COUNT(*) AS epochs,
        MAX(val_accuracy) FILTER (ISFINITE(val_accuracy)) AS best_accuracy,
        LIST(COALESCE(val_loss, train_loss) ORDER BY epoch) AS losses
    FROM epochs WHERE run_id IN (FROM own) GROUP BY run_id
),
fired AS (
    SELECT run_id, COUNT(*) AS firings FROM rule_evaluations
    WHERE fired AND run_id IN (FROM own) GROUP BY run_id
),
decided AS (
    SELECT run_id, COUNT(*) AS decisions FROM decisions WHERE run_id IN (FROM own) GROUP BY run_id
)
SELECT run_id, COALESCE(epochs, 0) AS epochs, best_accuracy, best, COALESCE(losses, []) AS losses,
    COALESCE(firings, 0) AS firings, COALESCE(decisions, 0) AS decisions
FROM own LEFT JOIN measured USING (run_id) LEFT JOIN fired USING (run_id)
LEFT JOIN decided USING (run_id) LEFT JOIN best_metrics USING (run_id)"""


def _with_figures(ask: Ask, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = [row["run_id"] for row in rows]
    figures = {row["run_id"]: row for row in ask(_FIGURES, ids)}
    verdicts = {row["run_id"]: row for row in ask(f"{_VERDICTS}run_id IN (SELECT UNNEST(?))", ids)}
    return [
        {
            **row,
            **figures[row["run_id"]],
            "best": figures[row["run_id"]][
                "best_accuracy" if row["metric"] == "accuracy" else "best"
            ],
            "verdict": _in_words(verdicts.get(row["run_id"]), row["level"]),
        }
        for row in rows
    ]


def _in_words(verdict: dict[str, Any] | None, level: str) -> dict[str, Any] | None:
    """Return a verdict with the words of other pages, and whether it is good or bad."""
    if verdict is None:
        return None
    name = "failed" if verdict["hard_fail"] else "held" if level == "repeatable" else "consistent"
    told, kind = told_verdict(name, violations=verdict["process_score"] != 1)
    return {**verdict, "told": told, "kind": kind}


def _first(ask: Ask, sql: str, *parameters: Any) -> dict[str, Any] | None:
    return next(iter(ask(sql, *parameters)), None)


def read_epochs(ask: Ask, run: str) -> list[dict[str, Any]]:
    """Return a run's measurements; of very many epochs, evenly chosen ones and the last."""
    return ask(
        f"WITH own AS (SELECT *, MAX(epoch) OVER () AS last FROM ({PARTS['epochs']})) "
        "SELECT * FROM own "
        f"WHERE epoch % (last // {_MOST_EPOCHS} + 1) = 0 OR epoch = last ORDER BY epoch",
        run,
    )


def read_run(ask: Ask, run: str) -> dict[str, Any] | None:
    """Return what the page of a run shows, without its decisions; None: there is no such run."""
    found = _first(ask, "SELECT * FROM runs WHERE run_id = ? ORDER BY started_idx LIMIT 1", run)
    if found is None:
        return None
    verdict = _first(ask, f"{_VERDICTS}run_id = ?", run)
    audit, scored = (None, None) if verdict is None else (verdict["audit_id"], verdict["idx"])
    return {
        "run": found,
        "verdict": _in_words(verdict, found["level"]),
        "epochs": read_epochs(ask, run),
        "steps": ask(PARTS["audit_steps"], audit),
        "violations": ask(
            f"SELECT kind, rule, epoch, decision, emitter, detail, {_CAUSE} AS cause "
            "FROM audit_violations "
            f"WHERE audit_id = ? AND idx = ? AND place < {LISTED} ORDER BY place",
            audit,
            scored,
        ),
        "causes": ask(
            f"SELECT emitter, kind, rule, {_CAUSE} AS cause, "
            "CAST(SUM(times) AS BIGINT) AS violations FROM audit_violations "
            "WHERE audit_id = ? AND idx = ? GROUP BY ALL ORDER BY ALL",
            audit,
            scored,
        ),
        "found": ask("SELECT violations, more_violations FROM audits WHERE audit_id = ?", audit),
        "fork": _first(ask, PARTS["fork_of"], run),
        "transcript": _first(ask, _TRANSCRIPT, run),
        **{name: ask(sql, run) for name, sql in _OF_RUN.items()},
    }


# A column `total` is how many rows there are, of which the first or the last are shown.
_LAST_EPOCH = "epoch = (SELECT MAX(epoch) FROM epochs WHERE run_id = $1)"
_OF_RUN = {
    "rules": "SELECT * FROM (SELECT epoch, rule, fired, side, streak, waived, outcome, "
    "COUNT(*) FILTER (fired) OVER () AS total FROM rule_heatmap "
    f"WHERE run_id = $1 AND (fired OR {_LAST_EPOCH}) ORDER BY epoch DESC LIMIT {_MOST_MARKS}) "
    "ORDER BY epoch",
    "done": "SELECT * FROM (SELECT decision AS number, epoch, outcome, COUNT(*) OVER () AS total "
    "FROM remedies WHERE run_id = $1 AND outcome IN ('applied', 'restart') "
    f"ORDER BY decision DESC LIMIT {_MOST_MARKS}) ORDER BY number",
    # One row with all of them: which were not measured is told of the whole run.
    "carried_out": "SELECT COALESCE(LIST(decision ORDER BY decision), []) AS numbers "
    "FROM remedies WHERE run_id = $1 AND outcome = 'applied'",
    "waived": PARTS["waived"],
    "provocations": f"SELECT * FROM ({PARTS['provocations']}) LIMIT {_MOST_RELATIVES}",
    "layers": "SELECT layer, rank, grad_norm, update_ratio, COUNT(*) OVER () AS total "
    f"FROM layer_metrics WHERE run_id = $1 AND {_LAST_EPOCH} ORDER BY place LIMIT {_MOST_LAYERS}",
    "forks": "SELECT run_id, epoch, COUNT(*) OVER () AS total FROM forks WHERE parent = $1 "
    f"ORDER BY epoch, idx LIMIT {_MOST_RELATIVES}",
    "following": "SELECT run_id, COUNT(*) OVER () AS total FROM run_starts WHERE parent_run = $1 "
    f"ORDER BY idx LIMIT {_MOST_RELATIVES}",
    "parts_of": "SELECT 'campaign' AS kind, campaign_id AS id, number AS place FROM attempts "
    "WHERE run_id = $1 UNION ALL SELECT 'comparison', comparison_id, NULL "
    "FROM comparison_runs WHERE run_id = $1 UNION ALL SELECT 'line', c.line_id, NULL "
    "FROM run_starts AS s JOIN checkpoint_starts AS c ON c.checkpoint_id = s.checkpoint "
    "WHERE s.run_id = $1 LIMIT 20",
}
_TRANSCRIPT = (
    "SELECT COUNT(*) AS calls, SUM(c.cost) AS cost, SUM(c.seconds) AS seconds "
    "FROM transcripts AS t JOIN calls AS c USING (transcript_id) "
    "WHERE t.run_id = ? HAVING COUNT(*) > 0"
)


def read_compared(ask: Ask, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what a comparison shows of runs, in this order; of those that there are."""
    found = ask(
        "SELECT r.run_id, r.level, r.dataset, r.seed, r.policy_name, r.policy, r.config, r.metric, "
        "COALESCE(r.end_reason, 'running') AS state FROM runs AS r "
        "WHERE r.run_id IN (SELECT UNNEST(?))",
        list(runs),
    )
    rows = {row["run_id"]: row for row in _with_figures(ask, found)}
    return {run: {**rows[run], "measured": read_epochs(ask, run)} for run in runs if run in rows}


def read_decisions(ask: Ask, run: str, *, after: int) -> list[dict[str, Any]]:
    """Return a page of a run's decisions, and one more if there are more."""
    return ask(
        "SELECT o.*, (SELECT LIST({rule: e.rule, worked: e.worked} ORDER BY e.rule) "
        "FROM remedy_effects AS e WHERE e.run_id = $1 AND e.decision = o.number) AS effects "
        "FROM decision_outcomes AS o WHERE o.run_id = $1 AND o.number > $2 "
        f"ORDER BY o.number LIMIT {ON_PAGE + 1}",
        run,
        after,
    )


def effects_of(decisions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the effects of some decisions, as a report has them."""
    return [
        {"decision": row["number"], **each} for row in decisions for each in row["effects"] or ()
    ]


def read_worth(ask: Ask, run: str) -> list[dict[str, Any]]:
    """Return what a run's decisions were worth, as far as that was measured."""
    return ask(WORTH, run) if ask(MEASURED, run) else []


def find_decisions(
    ask: Ask, *, text: str, rule: str, outcome: str, before: int
) -> list[dict[str, Any]]:
    """Return decisions of all runs, the newest first, one more than a page if there are more."""
    return ask(
        "SELECT p.*, COALESCE((SELECT LIST(c.rule ORDER BY c.rule) FROM citations AS c "
        "WHERE c.idx = p.idx), []) AS cites FROM ("
        "SELECT d.idx, d.run_id, d.number, d.epoch, d.source, d.direction, d.justification, "
        "CASE WHEN d.event_type = 'rule_triggered_no_action' THEN 'deferred' "
        "ELSE COALESCE(r.outcome, 'open') END AS outcome FROM decisions AS d "
        "LEFT JOIN remedies AS r ON r.run_id = d.run_id AND r.decision = d.number "
        "WHERE d.idx < $1 AND ($2 = '' OR CONTAINS(LOWER(CONCAT_WS(' ', d.run_id, d.source, "
        "d.direction, d.params, d.justification)), LOWER($2))) "
        "AND ($3 = '' OR d.idx IN (SELECT c.idx FROM citations AS c WHERE c.rule = $3)) "
        f"AND ($4 = '' OR outcome = $4) ORDER BY d.idx DESC LIMIT {ON_PAGE + 1}"
        ") AS p ORDER BY p.idx DESC",
        before,
        text,
        rule,
        outcome,
    )


_CALLS = (
    "SELECT c.idx, t.run_id, c.number, c.epoch, c.agent, c.action, c.rules, c.model, c.rung, "
    "c.request, c.request_bytes, c.response, c.response_bytes, c.status, c.finish_reason, "
    "c.total_tokens, c.seconds, c.cost, c.outcome, c.problem, c.cached "
    "FROM transcripts AS t JOIN calls AS c USING (transcript_id) "
)


def find_calls(
    ask: Ask, *, text: str, run: str, outcome: str, before: int, most: int = ON_PAGE + 1
) -> list[dict[str, Any]]:
    """Return calls whose description has a text, the newest first."""
    return ask(
        _CALLS + "WHERE c.idx < $1 AND ($2 = '' OR CONTAINS(LOWER(CONCAT_WS(' ', t.run_id, c.agent,"
        " c.action, c.model, c.outcome, c.problem, c.rules)), LOWER($2))) "
        "AND ($3 = '' OR t.run_id = $3) AND ($4 = '' OR c.outcome = $4) "
        "ORDER BY c.idx DESC LIMIT $5",
        before,
        text,
        run,
        outcome,
        most,
    )


def read_call(ask: Ask, idx: int) -> dict[str, Any] | None:
    """Return the call that is the ledger's entry of this index."""
    return _first(ask, f"{_CALLS} WHERE c.idx = ?", idx)


def describe_ledger(ask: Ask) -> dict[str, Any]:
    """Return what the ledger holds, and what of it cannot be read."""
    return {
        "kinds": ask(
            "SELECT SPLIT_PART(name, '.', 1) AS kind, COUNT(*) AS events, "
            "COUNT(DISTINCT stream_id) AS streams, MAX(time) AS newest "
            "FROM events GROUP BY kind ORDER BY events DESC"
        ),
        "unreadable": ask(f"SELECT idx, reason FROM unreadable ORDER BY idx LIMIT {_MOST_NAMED}"),
        "unreadable_count": ask("SELECT COUNT(*) AS entries FROM unreadable")[0]["entries"],
        "keys": ask(
            "SELECT idx, name, (body ->> '$.role') AS role, (body ->> '$.vkey') AS vkey "
            "FROM authority_events WHERE name LIKE 'key.%' ORDER BY idx LIMIT 200"
        ),
        "newest": ask(
            "SELECT idx, time, stream_id, version, name FROM events ORDER BY idx DESC LIMIT 20"
        ),
    }


def describe_tables(ask: Ask) -> list[dict[str, Any]]:
    """Return tables and views with their comments and columns."""
    return ask(
        "SELECT v.view_name AS name, v.comment, "
        "LIST({name: c.column_name, type: c.data_type, comment: c.comment} "
        "ORDER BY c.column_index) AS columns "
        "FROM duckdb_views() AS v JOIN duckdb_columns() AS c "
        "ON c.table_name = v.view_name AND c.schema_name = v.schema_name "
        "WHERE NOT v.internal AND v.schema_name = 'main' "
        "GROUP BY v.view_name, v.comment ORDER BY v.view_name"
    )
