"""What the page of a run says: sentences, tables and charts.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from aggregates.rules import PRECEDENCE, RULE_TITLES
from ledger.wording import counted
from proctor.output.terminal import told_level, told_score
from proctor.pages.charts.curves import curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.grids import layer_heatmap, rule_heatmap
from proctor.pages.rendering import number, spoken
from proctor.reports.values import duration, indented, object_of, share, tile

__all__ = ["run_charts", "run_values"]

_Row = Mapping[str, Any]
_LOOK_FOR = {
    "R1": "Each update changes the weights too much or too little, or training no longer gains.",
    "R2": "The batch is too small or too large for the noise of the gradient.",
    "R3": "The validation loss has not improved for several epochs.",
    "R4": "Training accuracy stands still although the model is healthy: it may be too small.",
    "R5": "Too many activations are dead: they never rise above zero.",
    "R6": "The gradient of some layer is close to zero, so that the layer learns nothing.",
    "R7": "Gradients are far too large, or a value is no longer a finite number.",
}
_LIMITS = {"R1": ("r1_low", "r1_high"), "R2": ("r2_low", "r2_high"), "R5": ("", "r5_high")}
_LIMITS |= {"R6": ("r6_low", ""), "R7": ("", "r7_high")}
_CAUSES = {
    "harness": "The harness must change: what it did, or did not carry out, broke the rule.",
    "human": "A person decided so.",
    "policy": "Another policy, or other weights of the model: it repeated the violation although "
    "feedback had named it, or no model was asked.",
    "prompt": "Another prompt may help: a model was asked and had not been told of it.",
}
_EMITTERS = {
    "driver": "The driver speaks where the policy gave no usable answer.",
    "harness": "The harness carries out what was decided.",
    "human": "A person decided.",
    "policy": "The policy decided.",
}
_LEVELS = {"repeatable": "A judge can train the run again and compare every value."}
_LATER = 3  # epochs after which a remedy's effect is looked at, as in the view remedy_effects
_TABLE = 400  # epochs that are also a table


def run_charts(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of a run; those without any value are left out."""
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
        "sentence": _sentence(summary),
        "tiles": _tiles(summary, data),
        "reasons": list(_reasons(summary, data)),
        "contents": [
            ("score", "Why the score is what it is"),
            ("course", "What happened"),
            *((name, _TITLES[name]) for name in shown),
            ("verify", "Verify this report"),
        ],
        "charts": run_charts(data),
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
        "violations": list(_violations(data["violations"])),
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
            for row in data["stages"]
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
    ("which", False),
    ("comes from", False),
    ("forked after epoch", True),
    ("ended", False),
    ("policy", False),
    ("verdict", False),
    ("accuracy score", True),
    ("process score", True),
]
_WAITING = [
    ("number", True),
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


def _sentence(summary: _Row) -> str:
    planned = summary["epochs_planned"]
    of = "" if planned is None else f" of {planned} planned"
    fired, made = summary["firings"], summary["decisions"]
    text = (
        f"A model was trained on {summary['dataset']} under watch: "
        f"{counted(summary['epochs'], 'epoch')}{of}; the run is {summary['state']}. "
    )
    if not fired:
        return f"{text}In no epoch did a rule find a problem, so nothing had to be decided."
    return (
        f"{text}Rules that watch the training fired {counted(fired, 'time')}. Policy "
        f"{summary['policy_name']} was to decide what to do: {counted(made, 'decision')}, of which "
        f"{summary['applied']} changed the training, {summary['refused']} could not be carried "
        f"out and {summary['deferred']} put the problem off."
    )


def _tiles(summary: _Row, data: Mapping[str, Any]) -> list[dict[str, str]]:
    verdict = summary["verdict"]
    judged = verdict is not None
    said = {
        "held": ("passed", "no gate failed", "good"),
        "consistent": ("consistent", "no gate that is possible failed", "good"),
        "failed": ("failed", "a gate failed: both scores are 0", "bad"),
    }.get(verdict, ("not judged", "no audit counts for this run", "warn"))
    signed = "" if not judged else "signed by a judge" if summary["audit_signed"] else "unsigned"
    best = summary["best_val_accuracy"]
    unexercised = summary["process_axis"] == "unexercised"
    accuracy = told_score(summary["accuracy_score"]) if judged else "none"
    process = told_score(summary["process_score"]) if judged else "none"
    return [
        tile("Verdict", said[0], said[2], ", ".join(each for each in (said[1], signed) if each)),
        tile("Accuracy score", accuracy, "", "how good the model is, from 0 to 1"),
        tile(
            "Process score",
            process,
            "warn" if unexercised and judged else "",
            "says little: the run did not exercise it"
            if unexercised and judged
            else "how well problems were answered, from 0 to 1",
        ),
        tile(
            "Violations",
            str(summary["violations"]) if judged else "none known",
            "" if not judged else "bad" if summary["violations"] else "good",
            "found by the audit" if judged else "only an audit finds them",
        ),
        tile("Best validation accuracy", share(best), "", _best(data["epochs"], best)),
        tile(
            "Evidence level",
            str(summary["level"]),
            "" if summary["level"] == "repeatable" else "warn",
            _retrained(summary)
            if summary["level"] == "repeatable"
            else "nobody can train it again",
        ),
    ]


def _best(epochs: Sequence[_Row], best: float | None) -> str:
    at = [row["epoch"] for row in epochs if best is not None and row["val_accuracy"] == best]
    return f"in epoch {at[0]}" if at else "not measured"


def _retrained(summary: _Row) -> str:
    retrained = summary["retrained"]
    if retrained is None:
        return "a judge can train it again"
    if retrained <= 0:
        return "the judge retrained no epoch"
    if retrained >= 1:
        return "the judge retrained the whole run"
    return f"the judge retrained {retrained:.0%} of the epochs"


def _reasons(summary: _Row, data: Mapping[str, Any]) -> Iterator[str]:
    level = told_level(summary["level"]) or f"level repeatable: {_LEVELS['repeatable']}"
    steps = {step["name"]: step for step in data["steps"]}
    if not data["verdict"]:
        yield (
            "There is no score: no audit counts for this run. An audit checks the record, trains "
            "the run again where that is possible, and gives two scores."
        )
        yield f"Evidence {level}"
        return
    (verdict,) = data["verdict"]
    gates = [step for step in data["steps"] if step["status"] == "failed"]
    if verdict["hard_fail"]:
        named = "; ".join(f"step {step['step']}, {spoken(step['name'])}" for step in gates)
        yield f"Both scores are 0 because a gate failed ({named}): {_found(gates)}"
    elif verdict["accuracy_score"] is None:
        yield (
            "There is no accuracy score: the judge cannot measure the test accuracy of a run that "
            "it cannot train again."
        )
    else:
        yield (
            f"Accuracy score {told_score(verdict['accuracy_score'])}: the test accuracy "
            f"{number(verdict['test_accuracy'])}, which the judge measured on examples that the "
            "training never saw, divided by the target; at most 1. The judge says: "
            f"{_said(steps, 'test_accuracy')}; {_said(steps, 'scores')}."
        )
    if not verdict["hard_fail"]:
        yield (
            f"Process score {told_score(verdict['process_score'])}: 1 less violations divided by "
            f"obligations. The rules made {counted(verdict['obligations'], 'obligation')}; the "
            f"audit found {counted(verdict['violations'], 'violation')}. The judge says: "
            f"{_said(steps, 'coverage')}; {_said(steps, 'defensibility')}."
        )
        if summary["process_axis"] == "unexercised":
            yield (
                "The process score says little here, for the reason that the judge gives: the run "
                "did not show how good decisions are."
            )
    yield f"Evidence {level}"


def _found(steps: Sequence[_Row]) -> str:
    return " ".join(str(step["summary"]) for step in steps)


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
        told = ", ".join(f"{spoken(name)} {value}" for name, value in parameters.items())
        facts.append(("Asked for", told))
    if row["deferred_to"]:
        facts.append(("Waits for", f"{row['deferred_to']}, which goes first"))
    facts += [("Changed", text) for text in _changes(row["changes"])]
    if row["reason"]:
        facts.append(("Not carried out", str(row["reason"])))
    if row["outcome"] == "applied":
        facts += [("Effect", text) for text in _effects(row, data)]
    facts.append(("Ledger entry", str(row["idx"])))
    cited = ", ".join(f"{rule} {RULE_TITLES.get(rule, '')}".strip() for rule in cites)
    return {**row, "cited": cited, "facts": facts}


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
        parts = [f"{rule} fired in epoch {last['epoch']}"]
        if last["side"]:
            parts.append(f"{spoken(last['side'])}")
        if last["value"] is not None:
            parts.append(f"value {number(last['value'])}")
        low, high = (limits.get(name) for name in _LIMITS.get(rule, ("", "")))
        if low is not None or high is not None:
            between = [f"at least {number(low)}" if low is not None else ""]
            between.append(f"at most {number(high)}" if high is not None else "")
            parts.append("allowed: " + ", ".join(each for each in between if each))
        parts.append(f"{counted(last['streak'], 'epoch')} in a row")
        yield "; ".join(parts)


def _changes(text: Any) -> Iterator[str]:
    changes = object_of(text)
    for each in changes if isinstance(changes, list) else ():
        if isinstance(each, dict):
            yield f"{each.get('what')}: {each.get('from')} to {each.get('to')}"


def _effects(row: _Row, data: Mapping[str, Any]) -> Iterator[str]:
    for effect in data["effects"]:
        if effect["decision"] == row["number"]:
            rule = effect["rule"]
            yield {
                True: f"worked: {rule} was silent {_LATER} epochs later",
                False: f"did not work: {rule} fired again within {_LATER} epochs",
            }.get(effect["worked"], f"not known: fewer than {_LATER} epochs followed")
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


def _violations(rows: Sequence[_Row]) -> Iterator[dict[str, Any]]:
    for emitter in sorted({str(row["emitter"]) for row in rows}):
        own = [row for row in rows if str(row["emitter"]) == emitter]
        yield {
            "emitter": emitter,
            "title": f"By the {emitter}" if emitter != "human" else "By a person",
            "text": _EMITTERS.get(emitter, ""),
            "columns": [
                ("kind", False),
                ("rule", False),
                ("epoch", True),
                ("decision", True),
                ("what", False),
                ("what would have fixed it", False),
            ],
            "rows": [
                [
                    spoken(row["kind"]),
                    row["rule"],
                    row["epoch"],
                    row["decision"],
                    row["detail"],
                    _CAUSES.get(str(row["cause"]), row["cause"]),
                ]
                for row in own
            ],
        }


def _relative(row: _Row, run: str) -> list[Any]:
    parent = row["parent_run"]
    return [
        str(row["run_id"])[:8],
        "this run" if row["run_id"] == run else "",
        None if parent is None else str(parent)[:8],
        row["forked_after"],
        row["state"],
        row["policy_name"],
        row["verdict"],
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
    if isinstance(sizes, dict):
        yield "Examples", ", ".join(f"{number(size)} {name}" for name, size in sizes.items())
    yield "Seed", str(summary["seed"])
    yield "Policy", str(summary["policy_name"])
    yield "Profile of the rules", str(summary["profile"])
    yield (
        "Infrastructure",
        f"checkpoint {run['checkpoint']}" if run["checkpoint"] else "no checkpoint",
    )
    for name, title in (("torch", "PyTorch"), ("platform", "Machine"), ("numerics", "Numerics")):
        if environment.get(name) is not None:
            yield title, str(environment[name])
    yield "Started", str(summary["started_at"])[:19] + " UTC"
