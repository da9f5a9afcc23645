"""What the page of a run says first: its sentence, its tiles, and why the scores are as they are.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.wording import counted
from proctor.output.firings import fired_on, meant, named, remedies
from proctor.output.terminal import told_level, told_score, told_verdict
from proctor.pages.charts.drawing import listed
from proctor.pages.rendering import number, spoken
from proctor.reports.run_decisions import allowed_range, measured, remedies_told
from proctor.reports.section_parts import Row
from proctor.reports.values import object_of, share, short, tile, violations_found
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


def summary_sentence(summary: Row, data: Mapping[str, Any]) -> str:
    """Return what happened in a run, in a sentence or two."""
    planned = summary["epochs_planned"]
    of = "" if planned is None else f" of {planned}"
    epochs = "epoch" if (planned or summary["epochs"]) == 1 else "epochs"
    text = (
        f"The training “{summary['dataset']}” ran for {summary['epochs']}{of} {epochs}; "
        f"{_ENDS.get(summary['state'], summary['state'])}. Seven rules looked for known problems "
        "after each epoch"
    )
    if not summary["firings"]:
        text += ", and found none, so nothing had to be decided."
    else:
        done = [
            (summary[name], words)
            for name, words in (
                ("applied", "changed the training"),
                ("refused", "could not be carried out"),
                ("deferred", "put the problem off"),
            )
            if summary[name]
        ]
        sides = ", ".join(named(*each) for each in fired_on(data["rules"]))
        text += (
            f", and found {counted(summary['firings'], 'problem')}"
            f"{': ' if sides else ''}{sides}. The policy “{summary['policy_name']}” had to answer: "
            f"{counted(summary['decisions'], 'decision')}"
        )
        if len(done) == 1 and done[0][0] == summary["decisions"]:
            text += f", which {done[0][1]}."
        else:
            parts = [f"{many} {words}" for many, words in done]
            text += f", of which {' and '.join(parts)}." if parts else "."
    return f"{text} {_descent(data)}".strip()


def _descent(data: Mapping[str, Any]) -> str:
    """Return which run this one goes on from."""
    this = next(row for row in data["family"] if row["run_id"] == data["run"][0]["run_id"])
    parent = short(this["parent_run"])
    if parent is None:
        return ""
    if this["forked_after"] is None:
        return f"It goes on from run {parent}, which ended for this restart."
    return (
        f"It is a fork: up to epoch {this['forked_after']} it is equal to run {parent}, and then "
        "decides for itself."
    )


def summary_tiles(summary: Row, data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the figures at the top."""
    verdict = summary["verdict"]
    failed = verdict == "failed"
    told, kind = told_verdict(verdict, violations=bool(summary["violations"]))
    why = {
        "held": "every check that can fail a run passed",
        "consistent": "every check that was possible passed",
        "failed": "so both scores are 0",
    }.get(verdict, "no audit counts for this run")
    signed = "" if summary["audit_signed"] or not verdict else "; no judge signed the audit"
    unexercised = summary["process_axis"] == "unexercised" and not failed
    accuracy, process = (
        ("none", "none")
        if verdict is None
        else (told_score(summary["accuracy_score"]), told_score(summary["process_score"]))
    )
    return [
        tile("Verdict", told, why + signed, kind if verdict else "warn"),
        tile("Accuracy score", accuracy, "how good the model is, 0 to 1", "bad" if failed else ""),
        tile(
            "Process score",
            process,
            unexercised_told(data["steps"])
            if unexercised
            else "how well problems were answered, 0 to 1",
            "bad" if failed else "warn" if unexercised else "",
        ),
        tile("Violations", *_violations_found(summary, data)),
        tile(
            "Best validation accuracy",
            share(summary["best_val_accuracy"]),
            _best(data, summary["best_val_accuracy"]),
        ),
        tile("Evidence level", str(summary["level"]), *_repeatable(summary)),
    ]


def _violations_found(summary: Row, data: Mapping[str, Any]) -> tuple[str, str, str]:
    if summary["verdict"] is None:
        return "unknown", "only an audit finds them", ""
    if not step_ran(data, "coverage"):
        return "unknown", "the audit ended before it looked for them", ""
    kind = "bad" if summary["violations"] else "good"
    return violations_found(data["verdict"]), "rules of conduct that were broken", kind


def _repeatable(summary: Row) -> tuple[str, str]:
    if summary["level"] == "repeatable":
        return _retrained(summary), ""
    return "nobody can train it again", "warn"


def unexercised_told(steps: Sequence[Row]) -> str:
    """Return that a process score was not exercised, with the judge's reason."""
    found = "".join(str(step["summary"]) for step in steps if step["name"] == "scores")
    why = re.search(r"\(unexercised: ([^()]+)\)", found)
    return f"unexercised: {why[1]}" if why else "unexercised"


def step_ran(data: Mapping[str, Any], name: str) -> bool:
    """Return whether the audit came to a step."""
    ran = ("passed", "violations", "failed")
    return any(step["name"] == name and step["status"] in ran for step in data["steps"])


def _best(data: Mapping[str, Any], best: float | None) -> str:
    """Return where the best accuracy is, and where the weights are from if that is not the same."""
    at = [
        row["epoch"] for row in data["epochs"] if best is not None and row["val_accuracy"] == best
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


def score_reasons(summary: Row, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the scores are what they are."""
    yield from _reasons(summary, data)
    told = told_level(summary["level"])
    text = told or "level repeatable: a judge can train the run again and compare every value"
    yield f"Evidence {text}."


def _reasons(summary: Row, data: Mapping[str, Any]) -> Iterator[str]:
    steps = {step["name"]: step for step in data["steps"]}
    if not data["verdict"]:
        yield (
            "There is no score, because no audit counts for this run. An audit checks the record, "
            "trains the run again where that is possible, and gives two scores."
        )
        return
    (verdict,) = data["verdict"]
    if verdict["hard_fail"]:
        gates = [step for step in data["steps"] if step["status"] == "failed"]
        named = " ".join(
            f"Step {step['step']} asks: "
            f"{STEP_QUESTIONS.get(step['name'], spoken(step['name']))} The judge "
            f"found: {step['summary']}."
            for step in gates
        )
        yield f"Both scores are 0, because the run failed a check of the audit. {named}"
        return
    if verdict["accuracy_score"] is None:
        yield (
            "There is no accuracy score: the judge cannot measure the test accuracy of a run that "
            "it cannot train again."
        )
    else:
        yield (
            f"The accuracy score is {told_score(verdict['accuracy_score'])}: the test accuracy, "
            f"{number(verdict['test_accuracy'])}, divided by a target, at most 1. The judge "
            "measured it on examples that the training never saw. The judge's words: "
            f"{_said(steps, 'test_accuracy')}; {_said(steps, 'scores')}."
        )
    if not verdict["obligations"]:
        yield (
            f"The process score is {told_score(verdict['process_score'])}, because nothing had to "
            "be decided."
        )
        if fired_on(data["rules"]):  # rules that could be deferred
            yield from _found(summary, data)
        return
    yield from _found(summary, data)
    yield (
        f"The process score is {told_score(verdict['process_score'])}: 1 minus "
        f"{violations_found(data['verdict'])} "
        f"violation{'s' * (verdict['violations'] != 1)} divided by "
        f"{counted(verdict['obligations'], 'obligation')}. An obligation is an episode of "
        "firings of one rule, however often it fires; a further firing counts only if it was "
        f"violated. {_firings(summary, data)}A violation is a rule of conduct that "
        "an answer broke. "
        f"The judge's words: {_said(steps, 'coverage')}; {_said(steps, 'defensibility')}."
    )
    if summary["process_axis"] == "unexercised":
        yield (
            f"The process score is {unexercised_told(data['steps'])}. So it says little about the "
            "policy."
        )


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
    for (rule, side), rows in fired_on(data["rules"]).items():
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
    if data["rules"] and summary["firings"] and not summary["applied"]:
        yield "No remedy was carried out, so the training went on as the rules found it."


def _epochs(rows: Sequence[Row]) -> str:
    return f"{'epoch' if len(rows) == 1 else 'epochs'} {listed([row['epoch'] for row in rows])}"


def _said(steps: Mapping[str, Row], name: str) -> str:
    return str(steps[name]["summary"]) if name in steps else f"step {spoken(name)} did not run"
