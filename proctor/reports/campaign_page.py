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
    Row,
    chart_part,
    cost_section,
    note_part,
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
from proctor.runs.standings import told_attempts, told_code

__all__ = ["campaign_charts", "campaign_values"]


def _unfit(number: int) -> Any:
    return note_part(
        f"{counted(number, 'attempt')} {'does' if number == 1 else 'do'} not fit: what the run "
        "itself recorded contradicts its place here. It has no place in the ranking.",
        "bad",
    )


def _draws(data: Data) -> Any:
    """Return the table of further runs that ask the same."""
    return table_part(
        "Further runs with the same policy, configuration and seed",
        [("run", False), ("campaign", False), ("ended", False)],
        [[run_name(row), row["made_by"], row["end_reason"]] for row in data["draws"]],
    )


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


def _counting(data: Data) -> list[Row]:
    """Return the attempts that figures are made of: made to their end, by runs that fit."""
    return [row for row in data["attempts"] if row["fits"] and not row["abandoned"]]


def campaign_values(data: Data) -> dict[str, Any]:
    """Return what the template `sections.html` shows of a campaign."""
    (campaign,) = data["campaign"]
    counting = _counting(data)
    unfit = sum(not row["fits"] for row in data["attempts"])
    best = min(
        (row for row in counting if row["place"]), key=lambda row: row["place"], default=None
    )
    policy = object_of(campaign["policy"])
    name = policy.get("name") if isinstance(policy, dict) else None
    informed = {row["number"] for row in data["feedback"]}
    later = {row["number"] for row in counting} - {1}
    learned = "each after the first was told what the judge had found before"
    if not later & informed:
        learned = "none was told anything of another one"
    elif later - informed:
        learned = f"{len(later & informed)} of them were told what the judge had found before"
    audited = sum(row["audit_id"] is not None for row in counting)
    judged = "The judge audited each attempt, and its verdicts rank them."
    if audited < len(counting):
        judged = f"An audit that counts is there for {audited} of them; the verdicts rank them."
    state = "The campaign has not ended."
    if campaign["end_reason"]:
        early = campaign["end_reason"] != "completed"
        state = "The campaign has ended" + (f": {campaign['end_reason']}." if early else ".")
    columns = [("attempt", True), ("run", False), ("ended", False), ("place", True)]
    columns += [("verdict", False), ("accuracy score", True), ("process score", True)]
    columns += [("validation accuracy", True), ("violations", True), ("decisions", True)]
    columns += [("does not fit", False)]
    rows = [
        [row["number"], run_name(row), row["state"]]
        + [row["place"], "abandoned" if row["abandoned"] else row["verdict"]]
        + [row[each] for each in ("accuracy_score", "process_score", "validation_accuracy")]
        + [row["violations"], row["decisions"], "; ".join(row["why_not"]) or None]
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
        f"{counted(len(counting), 'time')}; {learned}. {judged} {state}",
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
                [
                    *([_unfit(unfit)] if unfit else []),
                    *map(note_part, filter(None, [told_code(counting)])),
                    note_part(told_attempts(data["draws"], campaign["campaign_id"])),
                    *map(chart_part, campaign_charts(data)),
                    table_part("Attempts", columns, rows),
                    *([_draws(data)] if data["draws"] else []),
                ],
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
