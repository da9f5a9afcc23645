"""What the page of a campaign says: sections of sentences, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from typing import Any

from ledger.wording import counted
from proctor.pages.charts.curves import attempt_curves, curves_of
from proctor.pages.charts.drawing import Chart
from proctor.reports.section_parts import (
    Data,
    chart_part,
    cost_section,
    run_name,
    table_part,
    violations_section,
)
from proctor.reports.values import (
    indented,
    object_of,
    share,
    short,
    tile,
    violations_found,
)

__all__ = ["campaign_charts", "campaign_values"]


def campaign_charts(data: Data) -> list[Chart]:
    """Return the charts of a campaign."""
    counting = [row for row in data["attempts"] if not row["abandoned"]]
    found = []
    if any(row["process_score"] is not None for row in counting):
        rows = [{**row, "attempt": row["number"]} for row in counting]
        series = {"accuracy_score": "accuracy score", "process_score": "process score"}
        found.append(curves_of("scores", "Scores", rows, series, over="attempt", share=True))
    if any(row["val_accuracy"] is not None for row in data["epochs"]):
        found.append(attempt_curves(data["epochs"]))
    return found


def campaign_values(data: Data) -> dict[str, Any]:
    """Return what the template `sections.html` shows of a campaign."""
    (campaign,) = data["campaign"]
    counting = [row for row in data["attempts"] if not row["abandoned"]]
    best = min(
        (row for row in counting if row["place"]), key=lambda row: row["place"], default=None
    )
    policy = object_of(campaign["policy"])
    name = policy.get("name") if isinstance(policy, dict) else None
    learned = "each after the first was told what the judge had found before"
    if not data["feedback"]:
        learned = "none was told anything of another one"
    state = "The campaign has not ended."
    if campaign["end_reason"]:
        early = campaign["end_reason"] != "completed"
        state = "The campaign has ended" + (f": {campaign['end_reason']}." if early else ".")
    columns = [("attempt", True), ("run", False), ("ended", False), ("place", True)]
    columns += [("verdict", False), ("accuracy score", True), ("process score", True)]
    columns += [("validation accuracy", True), ("violations", True), ("decisions", True)]
    rows = [
        [row["number"], run_name(row), row["state"]]
        + [row["place"], "abandoned" if row["abandoned"] else row["verdict"]]
        + [row[each] for each in ("accuracy_score", "process_score", "validation_accuracy")]
        + [row["violations"], row["decisions"]]
        for row in data["attempts"]
    ]
    told: list[Any] = [
        {
            "kind": "text",
            "title": f"Feedback that attempt {row['number']} got (entry {row['idx']})",
            "text": indented(row["feedback"]),
        }
        for row in data["feedback"]
    ]
    told += [
        {
            "kind": "text",
            "title": f"Advice in the prompt of attempt {row['number']} (version {row['version']})",
            "text": str(row["advice"]) or "none",
        }
        for row in data["advice"]
    ]
    return {
        "heading": f"Campaign {campaign['campaign_id'][:8]}",
        "sentence": f"The policy “{name}” attempted one training task "
        f"{counted(len(counting), 'time')}; {learned}. The judge audited each attempt, and its "
        f"verdicts rank them. {state}",
        "tiles": [
            tile("Attempts", str(len(counting)), "", f"at most {campaign['max_attempts']}"),
            tile(
                "Best attempt",
                str(best["number"]) if best else "none",
                "good" if best else "warn",
                f"run {short(best['run_id'])}" if best else "no ranking yet",
            ),
            tile(
                "Its validation accuracy",
                share(best["validation_accuracy"]) if best else "none",
                "",
                "measured by the judge",
            ),
            tile(
                "Violations",
                violations_found(data["found"]),
                "bad" if any(row["violations"] for row in data["found"]) else "",
                "rules of conduct that were broken, in all attempts",
            ),
        ],
        "sections": [
            (
                "Attempts",
                "attempts",
                "The best attempt has place 1: attempts that passed their audit come first, then "
                "the process score decides, then the validation accuracy. An abandoned attempt was "
                "cut off and made again.",
                [*map(chart_part, campaign_charts(data)), table_part("Attempts", columns, rows)],
            ),
            (
                "What attempts were told",
                "feedback",
                "" if told else "No attempt was told anything of an earlier one.",
                told,
            ),
            violations_section(data),
            cost_section(data),
            (
                "Settings",
                "settings",
                "",
                [
                    {
                        "kind": "text",
                        "title": "Configuration",
                        "text": indented(campaign["config"]),
                    },
                    {"kind": "text", "title": "Policy", "text": indented(campaign["policy"])},
                ],
            ),
        ],
    }
