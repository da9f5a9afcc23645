"""What the page of a run says: sentences, tables and charts.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from aggregates.rules import PRECEDENCE, RULE_TITLES
from ledger.wording import counted
from proctor.output.firings import fired_on, meant, named, remedies
from proctor.output.terminal import told_level, told_score, told_verdict
from proctor.pages.charts.curves import curves_of
from proctor.pages.charts.drawing import Chart, listed
from proctor.pages.charts.grids import layer_heatmap, rule_heatmap
from proctor.pages.rendering import number, spoken
from proctor.reports.credits import credit_charts, credit_sections
from proctor.reports.values import duration, indented, object_of, share, short, tile

__all__ = ["run_charts", "run_values"]

_Row = Mapping[str, Any]
_LOOK_FOR = {
    "R1": "High: each update changes the weights too much. Low: too little. Plateau: training no "
    "longer gains.",
    "R2": "Low: the batch is too small for the noise of the gradient. High: it is too large.",
    "R3": "The validation loss has not improved for several epochs.",
    "R4": "Training accuracy stands still although the model is healthy: it may be too small.",
    "R5": "Too many activations are dead: they never rise above zero.",
    "R6": "The gradient of some layer is close to zero, so that the layer learns nothing.",
    "R7": "Gradients are far too large, or a value is no longer a finite number.",
}
_LIMITS = {"R1": ("r1_low", "r1_high"), "R2": ("r2_low", "r2_high"), "R5": ("", "r5_high")}
_LIMITS |= {"R6": ("r6_low", ""), "R7": ("", "r7_high")}
_MEASURED = {  # what a rule compares with its limits
    "R1": "update ratio",
    "R2": "signal to noise",
    "R5": "share of dead activations",
    "R6": "smallest gradient norm of a layer",
    "R7": "largest gradient norm of a layer",
}
_AUTHORS = {
    "driver": "By the driver, which answers where the policy gave no usable answer",
    "harness": "By the harness, which carries out what was decided",
    "human": "By a person",
    "policy": "By the policy",
}
_ENDS = {
    "completed": "the run completed",
    "crashed": "the run crashed",
    "failed": "the run failed",
    "interrupted": "somebody interrupted the run",
    "restart": "the run ended so that a new run could start with other settings",
    "running": "the run has not ended",
    "stopped": "a decision stopped the run",
}
_STEPS = {  # of the audit -> the question that each answers
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
_EXAMPLES = {"train": "to train on", "validation": "to validate", "test": "for the judge only"}
_LATER = 3  # epochs after which a remedy's effect is looked at, as in the view remedy_effects
_TABLE = 400  # epochs that are also a table


def run_charts(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of a run; those without any value are left out."""
    return [*_course(data), *credit_charts(data["credits"])]


def _course(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of what happened, epoch by epoch."""
    epochs = data["epochs"]
    if not epochs:
        return []
    marks = {"rules": data["rules"], "decisions": data["decisions"]}
    found = [
        curves_of(
            "loss", "Loss", epochs, {"train_loss": "training", "val_loss": "validation"}, **marks
        )
    ]
    if any(row["val_accuracy"] is not None or row["train_accuracy"] is not None for row in epochs):
        series = {"train_accuracy": "training", "val_accuracy": "validation"}
        found.append(curves_of("accuracy", "Accuracy", epochs, series, share=True, **marks))
    if data["rules"]:
        found.append(rule_heatmap(data["rules"]))
    if any(row["lr"] is not None for row in epochs):
        series = {"lr": "learning rate"}
        found.append(curves_of("lr", "Learning rate", epochs, series, small=True, **marks))
    norms = [
        {"epoch": epoch, "layer": row["layer"], "place": row["place"], "grad_norm": norm}
        for row in data["layers"]
        for epoch, norm in zip(row["epochs"], row["norms"], strict=True)
    ]
    if any(row["grad_norm"] is not None for row in norms):
        found.append(layer_heatmap(norms))
    return found


def run_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template `run.html` shows beside the charts."""
    (summary,) = data["summary"]
    run = data["run"][0]
    columns = [name for name in data["epochs"][0] if name != "idx"] if data["epochs"] else ["epoch"]
    shown = ["decisions", "verdict", "violations", "family", "cost", "settings"]
    return {
        "summary": summary,
        "sentence": _sentence(summary, data),
        "tiles": _tiles(summary, data),
        "reasons": list(_reasons(summary, data)),
        "contents": [
            ("score", "Why the score is what it is"),
            ("course", "What happened, epoch by epoch"),
            *((name, _TITLES[name]) for name in shown),
            ("verify", "Verify this report"),
        ],
        "charts": _course(data),
        "rules": [(rule, RULE_TITLES[rule], _LOOK_FOR[rule]) for rule in PRECEDENCE],
        "epoch_columns": [(spoken(name), True) for name in columns],
        "epoch_rows": [[row[name] for name in columns] for row in data["epochs"][:_TABLE]],
        "decisions": [_decision(row, data, run) for row in data["decisions"] if not _waits(row)],
        "waiting_columns": _WAITING,
        "waiting": [
            [
                row["number"],
                row["epoch"],
                row["source"],
                ", ".join(row["cites"] or ()),
                row["deferred_to"],
                row["justification"],
            ]
            for row in data["decisions"]
            if _waits(row)
        ],
        "other_audits": [_other_audit(each) for each in data["audits"] if not each["standing"]],
        "looked": _ran(data, "coverage"),
        "violations": list(_violations(data)),
        "steps": [{**step, "asks": _STEPS.get(step["name"], "")} for step in data["steps"]],
        "credits": credit_sections(data["credits"]),
        "family_columns": _FAMILY,
        "family": [_relative(row, summary["run_id"]) for row in data["family"]],
        "cost": list(_cost(summary, data)),
        "stage_columns": _STAGES,
        "stages": [
            [
                spoken(row["stage"]),
                row["seconds"],
                row["calls"],
                row["prompt_tokens"],
                row["completion_tokens"],
                row["cost"],
            ]
            for row in (data["stages"] if data["calls"] else ())
        ],
        "settings": list(_settings(summary, run)),
        "configuration": indented(run["config"]),
    }


_TITLES = {
    "decisions": "Decisions",
    "verdict": "The eleven steps of the audit",
    "violations": "Violations",
    "family": "Restarts and forks",
    "cost": "Cost",
    "settings": "Settings",
}
_FAMILY = [
    ("run", False),
    ("how", False),
    ("goes on from", False),
    ("ended", False),
    ("policy", False),
    ("verdict", False),
    ("accuracy score", True),
    ("process score", True),
]
_WAITING = [
    ("decision", True),
    ("epoch", True),
    ("by", False),
    ("rules", False),
    ("waits for", False),
    ("why", False),
]
_STAGES = [
    ("stage", False),
    ("seconds", True),
    ("calls", True),
    ("prompt tokens", True),
    ("completion tokens", True),
    ("US dollars", True),
]


def _sentence(summary: _Row, data: Mapping[str, Any]) -> str:
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


def _tiles(summary: _Row, data: Mapping[str, Any]) -> list[dict[str, str]]:
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
    found = _violations_found(summary, data)
    return [
        tile("Verdict", told, kind if verdict else "warn", why + signed),
        tile("Accuracy score", accuracy, "bad" if failed else "", "how good the model is, 0 to 1"),
        tile(
            "Process score",
            process,
            "bad" if failed else "warn" if unexercised else "",
            unexercised_told(data["steps"])
            if unexercised
            else "how well problems were answered, 0 to 1",
        ),
        tile("Violations", *found),
        tile(
            "Best validation accuracy",
            share(summary["best_val_accuracy"]),
            "",
            _best(data, summary["best_val_accuracy"]),
        ),
        tile(
            "Evidence level",
            str(summary["level"]),
            "" if summary["level"] == "repeatable" else "warn",
            _retrained(summary, data)
            if summary["level"] == "repeatable"
            else "nobody can train it again",
        ),
    ]


def _violations_found(summary: _Row, data: Mapping[str, Any]) -> tuple[str, str, str]:
    if summary["verdict"] is None:
        return "unknown", "", "only an audit finds them"
    if not _ran(data, "coverage"):
        return "unknown", "", "the audit ended before it looked for them"
    kind = "bad" if summary["violations"] else "good"
    return str(summary["violations"]), kind, "rules of conduct that were broken"


def unexercised_told(steps: Sequence[_Row]) -> str:
    """Return that a process score was not exercised, with the judge's reason."""
    found = "".join(str(step["summary"]) for step in steps if step["name"] == "scores")
    why = re.search(r"\(unexercised: ([^()]+)\)", found)
    return f"unexercised: {why[1]}" if why else "unexercised"


def _ran(data: Mapping[str, Any], name: str) -> bool:
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


def _retrained(summary: _Row, data: Mapping[str, Any]) -> str:
    retrained = summary["retrained"]
    # A probe that failed may have ended before the retraining, and then this is what was asked for.
    probed = any(step["name"] == "probe" and step["status"] == "passed" for step in data["steps"])
    if retrained is None or not probed:
        return "a judge can train it again"
    if retrained <= 0:
        return "the judge retrained no epoch"
    if retrained >= 1:
        return "the judge retrained the whole run"
    return f"the judge retrained {retrained:.0%} of the epochs"


def _reasons(summary: _Row, data: Mapping[str, Any]) -> Iterator[str]:
    steps = {step["name"]: step for step in data["steps"]}
    if not data["verdict"]:
        yield (
            "There is no score, because no audit counts for this run. An audit checks the record, "
            "trains the run again where that is possible, and gives two scores."
        )
        yield _level(summary)
        return
    (verdict,) = data["verdict"]
    if verdict["hard_fail"]:
        gates = [step for step in data["steps"] if step["status"] == "failed"]
        named = " ".join(
            f"Step {step['step']} asks: {_STEPS.get(step['name'], spoken(step['name']))} The judge "
            f"found: {step['summary']}."
            for step in gates
        )
        yield f"Both scores are 0, because the run failed a check of the audit. {named}"
        yield _level(summary)
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
        yield _level(summary)
        return
    yield from _found(summary, data)
    yield (
        f"The process score is {told_score(verdict['process_score'])}: 1 minus "
        f"{counted(verdict['violations'], 'violation')} divided by "
        f"{counted(verdict['obligations'], 'obligation')}. An obligation is an episode of "
        "firings of one rule, however often it fires; a further firing counts only if it was "
        f"violated, so {counted(summary['firings'], 'firing')} came to "
        f"{counted(verdict['obligations'], 'obligation')}. A violation is a rule of conduct that "
        "an answer broke. "
        f"The judge's words: {_said(steps, 'coverage')}; {_said(steps, 'defensibility')}."
    )
    if summary["process_axis"] == "unexercised":
        yield (
            f"The process score is {unexercised_told(data['steps'])}. So it says little about the "
            "policy."
        )
    yield _level(summary)


def _found(summary: _Row, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the rules found wrong with the training that gave this accuracy."""
    limits = object_of(data["run"][0]["rules"])
    for (rule, side), rows in fired_on(data["rules"]).items():
        text = f"{named(rule, side)} fired in {_epochs(rows)}"
        if about := meant(rule, side):
            text += f": {about}"
        value = rows[-1]["value"]
        if value is not None and rule in _MEASURED:
            text += f" ({_MEASURED[rule]} {number(value)} in epoch {rows[-1]['epoch']}"
            text += f"{_allowed(rule, limits)})"
        if able := remedies(rule, side):
            text += f". Its {_remedies(able)}"
        yield f"{text}."
    if data["rules"] and summary["firings"] and not summary["applied"]:
        yield "No remedy was carried out, so the training went on as the rules found it."


def _epochs(rows: Sequence[_Row]) -> str:
    return f"{'epoch' if len(rows) == 1 else 'epochs'} {listed([row['epoch'] for row in rows])}"


def _remedies(able: Sequence[str]) -> str:
    verb = "remedy is" if len(able) == 1 else "remedies are"
    return f"{verb} to {' or to '.join(map(_plain, able))}"


def _allowed(rule: str, limits: _Row) -> str:
    low, high = (limits.get(name) for name in _LIMITS.get(rule, ("", "")))
    between = [f"at least {number(low)}"] if low is not None else []
    between += [f"at most {number(high)}"] if high is not None else []
    return f"; allowed: {', '.join(between)}" if between else ""


def _level(summary: _Row) -> str:
    told = told_level(summary["level"])
    text = told or "level repeatable: a judge can train the run again and compare every value"
    return f"Evidence {text}."


def _said(steps: Mapping[str, _Row], name: str) -> str:
    return str(steps[name]["summary"]) if name in steps else f"step {spoken(name)} did not run"


def _waits(row: _Row) -> bool:
    return bool(row["outcome"] == "deferred")


def _decision(row: _Row, data: Mapping[str, Any], run: _Row) -> dict[str, Any]:
    limits = object_of(run["rules"])
    cites = [str(rule) for rule in row["cites"] or ()]
    facts = [("Evidence", text) for text in _evidence(row, cites, data["rules"], limits)]
    parameters = object_of(row["params"])
    if parameters:
        facts.append(("Asked for", _told(parameters)))
    if row["deferred_to"]:
        facts.append(("Waits for", f"{row['deferred_to']}, which goes first"))
    facts += [("Changed", text) for text in _changes(row["changes"])]
    if row["reason"]:
        facts.append(("Not carried out", str(row["reason"])))
    if row["outcome"] == "applied":
        facts += [("Effect", text) for text in _effects(row, data)]
    facts.append(("Ledger entry", str(row["idx"])))
    cited = ", ".join(f"{rule} ({RULE_TITLES.get(rule, 'unknown')})" for rule in cites)
    return {**row, "cited": cited, "facts": facts, "title": _plain(row["direction"])}


def _plain(name: Any) -> str:
    """Return a name of the records in words."""
    return " ".join("learning rate" if word == "lr" else word for word in spoken(name).split())


def _told(value: Any) -> str:
    """Return a value of a decision or of a change."""
    if isinstance(value, dict):
        return ", ".join(f"{_plain(name)} {_told(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_told, value))
    return "none" if value is None else number(value)


def _evidence(
    row: _Row, cites: Sequence[str], rules: Sequence[_Row], limits: _Row
) -> Iterator[str]:
    """Yield what each cited rule had measured when it last fired before the decision."""
    for rule in cites:
        fired = [
            each
            for each in rules
            if each["rule"] == rule and each["fired"] and each["epoch"] <= row["epoch"]
        ]
        if not fired:
            yield f"{rule} had not fired"
            continue
        last = fired[-1]
        text = f"{rule} fired in epoch {last['epoch']}"
        if last["value"] is not None:
            side = {"low": "too low", "high": "too high"}.get(last["side"], spoken(last["side"]))
            text += f": {_MEASURED.get(rule, 'value')} {number(last['value'])}, {side}"
        yield f"{text}{_allowed(rule, limits)}, {counted(last['streak'], 'epoch')} in a row"


def _changes(text: Any) -> Iterator[str]:
    changes = object_of(text)
    for each in changes if isinstance(changes, list) else ():
        if isinstance(each, dict):
            before, after = _told(each.get("from")), _told(each.get("to"))
            yield f"{_plain(each.get('what'))}: {before} to {after}"


def _effects(row: _Row, data: Mapping[str, Any]) -> Iterator[str]:
    for effect in data["effects"]:
        if effect["decision"] == row["number"]:
            rule = effect["rule"]
            yield {
                True: f"it worked: {rule} did not fire {_LATER} epochs later",
                False: f"it did not work: {rule} fired again within {_LATER} epochs",
            }.get(effect["worked"], f"not known for {rule}: fewer than {_LATER} epochs followed")
    losses = {each["epoch"]: each["val_loss"] for each in data["epochs"]}
    later = min(row["epoch"] + _LATER, max(losses, default=row["epoch"]))
    before, after = losses.get(row["epoch"]), losses.get(later)
    if before is not None and after is not None and later > row["epoch"]:
        yield (
            f"validation loss {number(before)} in epoch {row['epoch']}, {number(after)} in epoch "
            f"{later}"
        )


def _other_audit(audit: _Row) -> dict[str, Any]:
    if audit["scored_idx"] is None:
        return {**audit, "text": "it is not finished."}
    verdict = "a gate failed" if audit["hard_fail"] else "no gate failed"
    signed = "signed" if audit["signed"] else "unsigned"
    why = "it checked less, or no judge signed it, or a later one checked as much"
    if audit["complete"] is False:
        why = "something was added to the run after it"
    scores = f"accuracy {told_score(audit['accuracy_score'])}, process "
    return {
        **audit,
        "text": f"{why}. It said: {verdict}; {scores}{told_score(audit['process_score'])}; "
        f"{signed}.",
    }


def _violations(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the violations by who caused them and by what would have avoided them."""
    rows, asked = data["violations"], bool(data["calls"])
    sides = fired_on(data["rules"])
    columns = [("kind", False), ("rule", False), ("epoch", True), ("decision", True)]
    columns.append(("what", False))
    groups: dict[tuple[str, str], list[list[Any]]] = {}
    for row in rows:
        groups.setdefault((str(row["emitter"]), str(row["cause"])), []).append(
            [spoken(row["kind"])] + [row[each] for each in ("rule", "epoch", "decision", "detail")]
        )
    for (emitter, cause), own in sorted(groups.items()):
        about = {row[1] for row in own}
        able = [
            f"The {_remedies(remedies(*each))} where {named(*each)} fires."
            for each in sides
            if each[0] in about and remedies(*each)
        ]
        author = _AUTHORS.get(emitter, "By an unknown author")
        yield {
            "title": f"{author}: {counted(len(own), 'violation')}",
            "text": " ".join([cause_told(cause, asked=asked), *able]),
            "columns": columns,
            "rows": own,
        }


def cause_told(cause: str, *, asked: bool) -> str:
    """Return what would have avoided a violation; `asked`: a language model was asked."""
    return {
        "harness": "What would have avoided them: a repair of the harness. It did something else "
        "than what was decided, or nothing.",
        "human": "What would have avoided them: another decision by this person.",
        "policy": "What would have avoided them: another policy, or a better model. It was told "
        "of such a violation before and repeated it, or it was not asked about this rule."
        if asked
        else "What would have avoided them: a policy that carries out a remedy in time.",
        "prompt": "What would have avoided them: perhaps another prompt. A language model was "
        "asked, and nothing had told it of such a violation.",
    }.get(cause, cause)


def _relative(row: _Row, run: str) -> list[Any]:
    this = row["run_id"] == run
    how = "this run" if this else "restart" if row["parent_run"] else "the first run"
    if row["forked_after"] is not None:
        how = f"{'this run, a ' if this else ''}fork after epoch {row['forked_after']}"
    return [
        short(row["run_id"]),
        how,
        short(row["parent_run"]),
        row["state"],
        row["policy_name"],
        "not judged" if row["verdict"] is None else row["verdict"],
        row["accuracy_score"],
        row["process_score"],
    ]


def _cost(summary: _Row, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    ends = [summary[name] for name in ("started_at", "ended_at")]
    began, ended = (None if each is None else datetime.fromisoformat(each) for each in ends)
    if began is not None and ended is not None:
        yield "Training", f"{duration((ended - began).total_seconds())}, from start to end"
    elif began is not None:
        yield "Training", "the run has not ended"
    yield "Epochs", str(summary["epochs"])
    for calls in data["calls"]:
        model = calls["model"] or "no model"
        yield "Requests to a language model", f"{number(calls['calls'])} ({model})"
        yield (
            "Tokens",
            f"{number(calls['prompt_tokens'])} in, {number(calls['completion_tokens'])} out",
        )
        price = "unknown" if calls["cost"] is None else f"{calls['cost']:.4f} US dollars"
        yield (
            "Price",
            price + (f"; {calls['unpriced']} of unknown price" if calls["unpriced"] else ""),
        )
    if not data["calls"]:
        yield "Requests to a language model", "none"


def _settings(summary: _Row, run: _Row) -> Iterator[tuple[str, str]]:
    environment, info = object_of(run["environment"]), object_of(run["data"])
    yield "Run", str(run["run_id"])
    yield "Dataset", str(summary["dataset"])
    sizes = info.get("sizes")
    if isinstance(sizes, dict) and any(sizes.values()):
        told = (f"{number(size)} {_EXAMPLES.get(name, name)}" for name, size in sizes.items())
        yield "Examples", ", ".join(told)
    if summary["seed"] is not None:
        yield "Seed", str(summary["seed"])
    yield "Policy", str(summary["policy_name"])
    yield "Limits of the rules", str(summary["profile"])
    if run["checkpoint"]:
        yield "Version of the system that decided", f"checkpoint {run['checkpoint']}"
    for name, title in (("torch", "PyTorch"), ("platform", "Machine"), ("numerics", "Numerics")):
        if environment.get(name) is not None:
            yield title, str(environment[name])
    yield "Started", str(summary["started_at"])[:19] + " UTC"
