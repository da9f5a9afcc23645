"""What the page of a run says first: its sentence, its tiles, and why the scores are as they are.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.wording import listed
from proctor.output.firings import (
    fired_on,
    meant,
    named,
    nobody_decides,
    remedies,
    told_watched,
)
from proctor.output.terminal import told_verdict
from proctor.pages.rendering import number, object_of, spoken
from proctor.reports.run_decisions import allowed_range, measured, remedies_told
from proctor.reports.tables import Row, violations_found
from proctor.runs.metrics import with_columns
from proctor.runs.story import told_share

_ENDS = {
    "completed": "the run completed",
    "crashed": "the run crashed",
    "failed": "the run failed",
    "interrupted": "somebody interrupted the run",
    "restart": "the run ended so that a new run could start with other settings",
    "running": "the run has not ended",
    "stopped": "a decision stopped the run",
}
_ANSWERS = {
    "applied": "changed the training",
    "refused": "could not be carried out",
    "deferred": "put the problem off",
}
_MEANS = {
    "held": "no check failed the run",
    "consistent": "every check that was possible passed",
    "failed": "so both scores are 0",
}
STEP_QUESTIONS = {  # of the audit -> the question that each answers
    "deliverables": "Are the files of the submission there, as they were recorded?",
    "load_model": "Does the submitted code build a model of the required kind?",
    "weights": "Are these the weights that the run saved as its best?",
    "run_config": "Are the settings those that the ledger has?",
    "ledger": "Is the record intact, and do its rules follow from its measurements?",
    "architecture": "Is the model what the recorded changes lead to?",
    "probe": "Do the measurements repeat, also when the judge trains the run again?",
    "coverage": "Was every problem that a rule found answered in time?",
    "defensibility": "Does each decision answer its rule, within the allowed bounds?",
    "test_accuracy": "How good is the model on examples that the training never saw?",
    "scores": "What follows from all of this?",
}


def verdict_values(summary: Row, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template `run.html` shows first: how the run ended, and its scores."""
    steps = {step["name"]: str(step["summary"]) for step in data["steps"]}
    verdict = data["verdict"][0] if data["verdict"] else None
    unexercised = summary["process_axis"] == "unexercised" and summary["verdict"] != "failed"
    return {
        "ended": _ENDS.get(summary["state"], summary["state"]),
        "sides": ", ".join(named(*each) for each in fired_on(data["rules"])),
        "answers": [(summary[name], words) for name, words in _ANSWERS.items() if summary[name]],
        "this": next(row for row in data["family"] if row["run_id"] == data["run"][0]["run_id"]),
        "next": _next(summary, data["steps"]),
        "told_verdict": told_verdict(summary["verdict"], violations=bool(summary["violations"])),
        "verdict_means": _MEANS.get(summary["verdict"], "no audit counts for this run"),
        "unexercised": (nobody_decides(summary, data["rules"]) or unexercised_told(data["steps"]))
        if unexercised
        else "",
        "violations_found": violations_found(data["verdict"]),
        "best_told": _best(data, summary),
        "retrained_told": _retrained(summary)
        if summary["level"] == "repeatable"
        else "nobody can train it again",
        "verdict": verdict,
        "said": {
            name: steps.get(name, f"step {spoken(name)} did not run") for name in STEP_QUESTIONS
        },
        "found_by_rules": list(_found(summary, data)),
        "firings_told": _firings(summary, data),
        "level_told": told_watched(summary, data["rules"]),
    }


def _next(summary: Row, steps: Sequence[Row]) -> str:
    """Return what a reader of the first screen should know or do next; empty if it is all there."""
    if summary["verdict"] is None:
        running = summary["state"] == "running"
        todo = f"`proctor judge {summary['run_id'][:8]}` audits the run and gives two scores"
        return f"Not judged: {'the run has not ended' if running else todo}."
    failed = (step for step in steps if step["status"] == "failed")
    return " ".join(
        f"Step {step['step']} of the audit failed. It asks: "
        f"{STEP_QUESTIONS.get(step['name'], spoken(step['name']))} The judge found: "
        f"{step['summary']}."
        for step in failed
    )


def unexercised_told(steps: Sequence[Row]) -> str:
    """Return that a process score was not exercised, with the judge's reason."""
    found = "".join(str(step["summary"]) for step in steps if step["name"] == "scores")
    why = re.search(r"\(unexercised: ([^()]+)\)", found)
    return f"unexercised: {why[1]}" if why else "unexercised"


def step_ran(data: Mapping[str, Any], name: str) -> bool:
    """Return whether the audit came to a step."""
    ran = ("passed", "violations", "failed")
    return any(step["name"] == name and step["status"] in ran for step in data["steps"])


def _best(data: Mapping[str, Any], summary: Row) -> str:
    """Return where the best value is, and where the weights are from if that is not the same."""
    best, column = summary["best_val_metric"], f"val_{summary['metric']}"
    at = [
        row["epoch"]
        for row in with_columns(data["epochs"])
        if best is not None and row.get(column) == best
    ]
    if not at:
        return "not measured"
    kept = [row["epoch"] for row in data["weights"]]
    if not kept or kept[0] in at:
        return f"in epoch {kept[0] if kept else at[0]}"
    return f"in epoch {at[0]}; the weights are of epoch {kept[0]}, which has the lowest loss"


def _retrained(summary: Row) -> str:
    if summary["retrained"] is None:
        return "a judge can train it again"
    failed = summary["verdict"] == "failed"
    return f"the judge retrained {told_share(summary['retrained'], failed=failed)}"


def _firings(summary: Row, data: Mapping[str, Any]) -> str:
    """Return how many firings there were, and how many of them needed an answer and got one."""
    fired = summary["firings"]
    waived = sum(bool(row["fired"] and row["waived"]) for row in data["rules"])
    for row in data["coverage"]:
        needed, answered = row["needed"], row["answered"]
        if needed is not None and answered is not None and 0 <= needed <= fired - waived:
            return (
                f"Rules fired {fired} times: {fired - waived - needed} could be put off for a good "
                f"reason (such as a remedy that is at its limit), {waived} are of waived rules, "
                f"and {needed} needed an answer, of which {answered} got one in time. "
            )
    return f"Rules fired {fired} times. "


def _found(summary: Row, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the rules found wrong with the training that gave this accuracy."""
    limits = object_of(data["run"][0]["rules"])
    fired = fired_on(data["rules"])
    for (rule, side), rows in fired.items():
        text = f"{named(rule, side)} fired in {_epochs(rows)}"
        if about := meant(rule, side):
            text += f": {about}"
        value = rows[-1]["value"]
        if value is not None and measured(rule, limits) and side != "guessing":
            text += f" ({measured(rule, limits)} {number(value)} in epoch {rows[-1]['epoch']}"
            text += f"{allowed_range(rule, limits)})"
        if able := remedies(rule, side, limits):
            text += f". Its {remedies_told(able)}"
        yield f"{text}."
    if fired and not summary["applied"]:
        yield "No remedy was carried out, so the training went on as the rules found it."


def _epochs(rows: Sequence[Row]) -> str:
    return f"{'epoch' if len(rows) == 1 else 'epochs'} {listed([row['epoch'] for row in rows])}"
