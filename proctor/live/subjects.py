"""Campaigns, comparisons and lines: their lists, and the page of each.

A page has what a report of the same subject has: the same queries, sentences, charts and tables, on
the tables of the whole ledger.

Source: proctor/reports/contents.py and pages.py.
I/O: none; the caller's function asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from ledger.wording import counted
from proctor.home import Home
from proctor.live.queries import ON_PAGE
from proctor.live.tables import Ask
from proctor.output.columns import Column, cells, field, figure
from proctor.output.terminal import plain
from proctor.pages.rendering import object_of, seen, spoken, when
from proctor.reports.contents import rows_about
from proctor.reports.line_proposals import find_diffs, read_diff
from proctor.reports.pages import values_of
from proctor.reports.subjects import Subject

MOST_READ = 20_000  # rows of one query
_MOST_ROWS = 300  # of a table
_ONE_RUN = "one run and its restarts"
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of subject, and how it is listed."""

    name: str
    title: str  # of the list
    query: str  # of the list; $1 and $2 are the limit and the offset
    columns: Sequence[Column]  # of the list

    @property
    def path(self) -> str:
        """The address of the list."""
        return f"{self.name}s"


def _names(row: _Row) -> str:
    policies = object_of(row["policies"])
    names = [seen(each.get("name")) for each in policies if isinstance(each, dict)]
    return ", ".join(names) or counted(len(policies), "policy")


def _planned(row: _Row) -> int:
    return prod(len(object_of(row[each])) for each in ("policies", "conditions", "seeds"))


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "campaign",
            "Campaigns",
            "WITH own AS (SELECT * FROM campaign_starts ORDER BY idx DESC LIMIT $1 OFFSET $2), "
            "kept AS (SELECT campaign_id, run_id, parent_run FROM attempts "
            "ANTI JOIN abandoned_attempts USING (campaign_id, run_id) "
            "WHERE campaign_id IN (SELECT campaign_id FROM own)), "
            "figures AS (SELECT k.campaign_id, COUNT(*) AS attempts, "
            "COUNT(*) FILTER (k.parent_run IS NULL) AS beginnings, "
            "MAX(s.accuracy_score) AS best FROM kept AS k "
            "LEFT JOIN counting_audits AS c USING (run_id) "
            "LEFT JOIN audit_scores AS s ON s.audit_id = c.audit_id AND s.idx = c.idx GROUP BY ALL)"
            " SELECT o.campaign_id AS id, t.time, COALESCE(e.reason, 'running') AS state, o.mode, "
            "(o.policy ->> '$.name') AS policy, COALESCE(f.attempts, 0) AS attempts, "
            "o.max_attempts, f.best, "
            "(o.config ->> '$.edits') = 'restart' AND COALESCE(f.beginnings, 0) < 2 AS one_run "
            "FROM own AS o JOIN events AS t USING (idx) "
            "LEFT JOIN campaign_ends AS e USING (campaign_id) "
            "LEFT JOIN figures AS f USING (campaign_id) ORDER BY o.idx DESC",
            [
                field("State", "state"),
                field("Policy", "policy"),
                field("Mode", lambda row: _ONE_RUN if row["one_run"] else spoken(row["mode"])),
                field("Attempts", lambda row: f"{row['attempts']} of {row['max_attempts']}"),
                figure("Best accuracy score", "best"),
                field("Started", lambda row: when(row["time"])),
            ],
        ),
        Kind(
            "comparison",
            "Comparisons",
            "WITH own AS (SELECT * FROM comparison_starts ORDER BY idx DESC LIMIT $1 OFFSET $2) "
            "SELECT o.comparison_id AS id, t.time, o.policies, o.conditions, o.seeds, "
            "e.idx AS ended, (SELECT COUNT(*) FROM comparison_results AS r "
            "WHERE r.comparison_id = o.comparison_id) AS done, "
            "(SELECT COUNT(r.problem) FROM comparison_results AS r "
            "WHERE r.comparison_id = o.comparison_id) AS failed "
            "FROM own AS o JOIN events AS t USING (idx) "
            "LEFT JOIN comparison_ends AS e USING (comparison_id) ORDER BY o.idx DESC",
            [
                field("State", lambda row: "running" if row["ended"] is None else "ended"),
                field("Policies", _names),
                field("Conditions", lambda row: ", ".join(map(seen, object_of(row["conditions"])))),
                figure("Seeds", lambda row: len(object_of(row["seeds"]))),
                field("Cells finished", lambda row: f"{row['done']} of {_planned(row)}"),
                figure("Failed", "failed"),
                field("Started", lambda row: when(row["time"])),
            ],
        ),
        Kind(
            "line",
            "Lines",
            "WITH own AS (SELECT * FROM line_starts ORDER BY idx DESC LIMIT $1 OFFSET $2), "
            "ends AS (SELECT p.line_id, COUNT(*) AS proposals, "
            "COUNT(*) FILTER (c.outcome = 'promoted') AS promoted, "
            "COUNT(*) FILTER (c.outcome = 'rejected') AS rejected, "
            "COUNT(*) FILTER (c.outcome IS NULL) AS open FROM infra_submissions AS p "
            "LEFT JOIN infra_conclusions AS c USING (proposal_id) "
            "WHERE p.line_id IN (SELECT line_id FROM own) GROUP BY p.line_id) "
            "SELECT o.line_id AS id, t.time, o.branch, (SELECT COUNT(*) FROM checkpoint_starts "
            "AS c WHERE c.line_id = o.line_id) AS checkpoints, (SELECT COUNT(*) "
            "FROM evolution_rounds AS r JOIN evolutions AS v USING (evolution_id) "
            "WHERE v.line_id = o.line_id) AS rounds, COALESCE(e.proposals, 0) AS proposals, "
            "COALESCE(e.promoted, 0) AS promoted, COALESCE(e.rejected, 0) AS rejected, "
            "COALESCE(e.open, 0) AS open, (SELECT COUNT(*) FROM alarms AS a "
            "WHERE a.line_id = o.line_id AND a.open) AS alarms "
            "FROM own AS o JOIN events AS t USING (idx) LEFT JOIN ends AS e USING (line_id) "
            "ORDER BY o.idx DESC",
            [
                field("Branch", "branch"),
                figure("Checkpoints", "checkpoints"),
                field("Proposals promoted", lambda row: f"{row['promoted']} of {row['proposals']}"),
                figure("Rejected", "rejected"),
                figure("Open proposals", "open"),
                figure("Rounds", "rounds"),
                figure("Open alarms", "alarms"),
                field("Opened", lambda row: when(row["time"])),
            ],
        ),
    )
}


def list_subjects(ask: Ask, kind: Kind, page: int) -> list[tuple[str, Sequence[Any]]]:
    """Return the ids and the cells of a page of the list, and one more if there are more."""
    rows = ask(kind.query, ON_PAGE + 1, (page - 1) * ON_PAGE)
    return [
        (str(row["id"]), told) for row, told in zip(rows, cells(kind.columns, rows), strict=True)
    ]


def read_subject(ask: Ask, kind: Kind, found: str, home: Home) -> dict[str, Any] | None:
    """Return what the page of a subject shows; None: there is no such subject."""
    subject = Subject(kind.name, found)
    rows = rows_about(subject, lambda sql: ask(sql, *([found] if "$1" in sql else ())))
    if not next(iter(rows.values())):
        return None
    data = plain(rows)
    data["diffs"] = find_diffs(data, partial(read_diff, home))
    values = {"data": data, **values_of(kind.name, data)}
    for part in values.values():
        if isinstance(part, dict) and len(part.get("rows", ())) > _MOST_ROWS:
            part |= {"rows": part["rows"][:_MOST_ROWS], "cut": len(part["rows"])}
    return values
