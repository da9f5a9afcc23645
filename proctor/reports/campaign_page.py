"""What the page of a campaign says: sections of sentences, tables, charts.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from typing import Any

from ledger.wording import counted
from proctor.output.columns import field, figure, figures
from proctor.pages.charts.curves import attempt_curves, curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.rendering import number
from proctor.reports.section_parts import (
    RUN,
    Data,
    Row,
    chart_part,
    cost_section,
    note_part,
    settings_section,
    table_part,
    text_part,
    unfit_part,
    violations_section,
    why_not,
)
from proctor.reports.values import (
    indented,
    object_of,
    share,
    short,
    tile,
    violations_found,
)
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
_DRAWS = [RUN, field("campaign", "made_by"), field("ended", "end_reason")]


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
    placed = sorted((row for row in counting if row["place"]), key=lambda row: row["place"])
    best = placed[0] if placed else None
    ranked = [(row["number"], row["process_score"], row["validation_accuracy"]) for row in placed]
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
    told = [
        text_part(
            f"Feedback that attempt {row['number']} got (entry {row['idx']})",
            indented(row["feedback"]),
        )
        for row in data["feedback"]
    ]
    told += [
        text_part(
            f"Advice in the prompt of attempt {row['number']} (version {row['version']})",
            str(row["advice"]) or "none",
        )
        for row in data["advice"]
    ]
    further = "Further runs with the same policy, configuration and seed"
    return {
        "heading": f"Campaign {campaign['campaign_id'][:8]}",
        "sentence": f"The policy “{name}” attempted one training task "
        f"{counted(len(counting), 'time')}; {learned}. {judged} {state}",
        "tiles": [
            tile("Attempts", len(counting), f"at most {campaign['max_attempts']}"),
            tile(
                "Best attempt",
                best["number"] if best else "none",
                f"run {short(best['run_id'])}" if best else "no ranking yet",
                "good" if best else "warn",
            ),
            tile(
                "Its validation accuracy",
                share(best["validation_accuracy"]) if best else "none",
                f"measured by the judge; its process score is {number(best['process_score'])}"
                if best
                else "",
            ),
            tile(
                "Violations",
                violations_found(data["found"]),
                "rules of conduct that were broken, in all attempts",
                "bad" if any(row["violations"] for row in data["found"]) else "",
            ),
        ],
        "sections": [
            (
                "Attempts",
                "attempts",
                "The best attempt has place 1: attempts that passed their audit come first. Then "
                f"they are ranked by {told_ranking(campaign['ranked_by'])}. An abandoned attempt "
                "was cut off and made again.",
                [
                    *unfit_part(unfit, "attempt", "It has no place in the ranking."),
                    *map(note_part, filter(None, [told_better(ranked, campaign["ranked_by"])])),
                    *map(note_part, filter(None, [told_code(counting)])),
                    note_part(told_attempts(data["draws"], campaign["campaign_id"])),
                    *map(chart_part, campaign_charts(data)),
                    table_part("Attempts", _ATTEMPTS, data["attempts"]),
                    *([table_part(further, _DRAWS, data["draws"])] if data["draws"] else []),
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
            settings_section(campaign, "config", "policy"),
        ],
    }
