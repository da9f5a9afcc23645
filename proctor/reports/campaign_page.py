"""What the page of a campaign shows: figures, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from proctor.output.columns import field, figure, figures
from proctor.pages.charts.curves import attempt_curves, curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.rendering import number, object_of, spoken
from proctor.reports.tables import RUN, Data, Row, of_several_runs, short, table, why_not
from proctor.runs.standings import told_attempts, told_better, told_code, told_ranking

_ATTEMPTS = [
    figure("attempt", "number"),
    RUN,
    field("ended", "state"),
    figure("place"),
    field("verdict", lambda row: "abandoned" if row["abandoned"] else row["verdict"]),
    *figures("accuracy score", "process score", "validation accuracy", "violations", "decisions"),
    field("does not fit", why_not),
]
_DRAWS = [RUN, field("campaign", lambda row: short(row["made_by"])), field("ended", "end_reason")]


def campaign_charts(data: Data) -> list[Chart]:
    """Return the charts of a campaign."""
    counting = _counting(data)
    found = []
    if any(row["process_score"] is not None for row in counting):
        rows = [{**row, "attempt": row["number"]} for row in counting]
        series = {"accuracy_score": "accuracy score", "process_score": "process score"}
        found.append(curves_of("scores", "Scores", rows, series, over="attempt", share=True))
    runs = {row["run_id"] for row in counting}
    epochs = [row for row in data["epochs"] if row["run_id"] in runs]
    if any(row["val_accuracy"] is not None for row in epochs):
        found.append(attempt_curves(epochs))
    return found


def _changes(data: Data) -> Iterator[Row]:
    """Yield what changed from each attempt to the next: scores, and what was violated."""
    broken: dict[str, set[str]] = {}
    for row in data["violations"]:
        told = f"{spoken(row['kind'])} {row['rule'] or ''}".strip()
        broken.setdefault(row["run_id"], set()).add(told)
    for before, after in pairwise(_counting(data)):
        was, now = (broken.get(row["run_id"], set()) for row in (before, after))
        yield {
            "attempts": f"{before['number']} to {after['number']}",
            "gone": ", ".join(sorted(was - now)) or "none",
            "new": ", ".join(sorted(now - was)) or "none",
            **{
                key: _change(before[key], after[key])
                for key in ("process_score", "validation_accuracy", "violations", "decisions")
            },
        }


def _change(before: Any, after: Any) -> str | None:
    return None if before is None or after is None else f"{number(before)} to {number(after)}"


_CHANGES = [
    field("attempts"),
    field("process score"),
    field("validation accuracy"),
    field("violations"),
    field("decisions"),
    field("no longer violated", "gone"),
    field("newly violated", "new"),
]


def _counting(data: Data) -> list[Row]:
    """Return the attempts that figures are made of: made to their end, by runs that fit."""
    return [row for row in data["attempts"] if row["fits"] and not row["abandoned"]]


def campaign_values(data: Data) -> dict[str, Any]:
    """Return what the template `campaign.html` shows."""
    (campaign,) = data["campaign"]
    counting = _counting(data)
    placed = sorted((row for row in counting if row["place"]), key=lambda row: row["place"])
    ranked = [(row["number"], row["process_score"], row["validation_accuracy"]) for row in placed]
    policy = object_of(campaign["policy"])
    later = {row["number"] for row in counting} - {1}
    return {
        "heading": f"Campaign {campaign['campaign_id'][:8]}",
        "campaign": campaign,
        "policy": policy.get("name") if isinstance(policy, dict) else None,
        "counting": len(counting),
        "unfit": sum(not row["fits"] for row in data["attempts"]),
        "best": placed[0] if placed else None,
        "later": len(later),
        "informed": len(later & {row["number"] for row in data["feedback"]}),
        "audited": sum(row["audit_id"] is not None for row in counting),
        "ranking": told_ranking(campaign["ranked_by"]),
        "notes": [
            told_better(ranked, campaign["ranked_by"]),
            told_code(counting),
            told_attempts(data["draws"], campaign["campaign_id"]),
        ],
        "charts": campaign_charts(data),
        "changes": table("What changed from attempt to attempt", _CHANGES, _changes(data)),
        "attempts": table("Attempts", _ATTEMPTS, data["attempts"]),
        "draws": table(
            "Further runs with the same policy, configuration and seed", _DRAWS, data["draws"]
        ),
        **of_several_runs(data, campaign, config="Configuration", policy="Policy"),
    }
