"""What the page of a run says: sentences, tables and charts.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from aggregates.rules import PRECEDENCE, RULE_TITLES
from proctor.output.columns import field, figure, figures
from proctor.pages.charts.curves import curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.grids import layer_heatmap, rule_heatmap
from proctor.pages.rendering import number, spoken
from proctor.reports.credits import credit_charts, credit_sections
from proctor.reports.run_decisions import decisions_told, uncounted_told, violations_told
from proctor.reports.run_verdict import (
    STEP_QUESTIONS,
    score_reasons,
    step_ran,
    summary_sentence,
    summary_tiles,
)
from proctor.reports.section_parts import Row, table_part
from proctor.reports.values import duration, indented, object_of, short
from proctor.runs.story import UNBOUND, told_misplaced, told_other, waived_reasons
from proctor.runs.worth import told_unmeasured, worths

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
CURVES = {  # name -> title, and each column with its label
    "loss": ("Loss", {"train_loss": "training", "val_loss": "validation"}),
    "accuracy": ("Accuracy", {"train_accuracy": "training", "val_accuracy": "validation"}),
    "gradients": (
        "Gradient norm",
        {"max_layer_grad_norm": "largest layer", "min_layer_grad_norm": "smallest layer"},
    ),
    "lr": ("Learning rate", {"lr": "learning rate"}),
}
_EXAMPLES = {"train": "to train on", "validation": "to validate", "test": "for the judge only"}
_TABLE = 400  # epochs that are also a table


def run_charts(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of a run; those without any value are left out."""
    return [*_course(data), *credit_charts(worths(data["worth"]))]


def curve(name: str, data: Mapping[str, Any], **more: Any) -> list[Chart]:
    """Return a chart of CURVES over the epochs of a run, if anything of it was measured."""
    title, series = CURVES[name]
    if all(row[column] is None for row in data["epochs"] for column in series):
        return []
    marks = {"rules": data["rules"], "decisions": data["decisions"]}
    return [
        curves_of(name, title, data["epochs"], series, share=name == "accuracy", **marks, **more)
    ]


def _course(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of what happened, epoch by epoch."""
    found = [*curve("loss", data), *curve("accuracy", data)]
    if data["rules"]:
        found.append(rule_heatmap(data["rules"], waived_reasons(data["waived"])))
    found += curve("lr", data, small=True)
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
    waiting = [row for row in data["decisions"] if row["outcome"] == "deferred"]
    columns = [name for name in data["epochs"][0] if name != "idx"] if data["epochs"] else ["epoch"]
    shown = ["decisions", "verdict", "violations", "family", "cost", "settings"]
    return {
        "summary": summary,
        "sentence": summary_sentence(summary, data),
        "tiles": summary_tiles(summary, data),
        "reasons": list(score_reasons(summary, data)),
        "contents": [
            ("score", "Why the score is what it is"),
            ("course", "What happened, epoch by epoch"),
            *((name, _TITLES[name]) for name in shown),
            ("verify", "Verify this report"),
        ],
        "charts": _course(data),
        "rules": [(rule, RULE_TITLES[rule], _LOOK_FOR[rule]) for rule in PRECEDENCE],
        "measured": table_part(
            "Measurements of each epoch",
            [figure(spoken(name), name) for name in columns],
            data["epochs"][:_TABLE],
        ),
        "decisions": decisions_told(data, run),
        "waiting": table_part("These decisions changed nothing", _WAITING, waiting),
        "other_audits": [
            {
                **each,
                "text": "it was begun and not ended"
                if each["scored_idx"] is None
                else told_other(each),
            }
            for each in data["audits"]
            if not each["standing"]
        ],
        "misplaced": told_misplaced(data["misplaced"]) if data["misplaced"] else "",
        "unbound": UNBOUND if data["verdict"] and not data["verdict"][0]["bound"] else "",
        "looked": step_ran(data, "coverage"),
        "violations": list(violations_told(data)),
        "uncounted": uncounted_told(data),
        "steps": [{**step, "asks": STEP_QUESTIONS.get(step["name"], "")} for step in data["steps"]],
        "credits": credit_sections(data),
        "unmeasured": told_unmeasured(summary, data["decisions"], worths(data["worth"])),
        "family": table_part(
            "This run, those that it goes on from, and those that go on from it",
            _FAMILY,
            [{**row, "this": row["run_id"] == run["run_id"]} for row in data["family"]],
        ),
        "cost": list(_cost(summary, data)),
        "stages": table_part(
            "Time and tokens by stage", _STAGES, data["stages"] if data["calls"] else ()
        ),
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


def _how(row: Row) -> str:
    if row["forked_after"] is not None:
        return f"{'this run, a ' if row['this'] else ''}fork after epoch {row['forked_after']}"
    return "this run" if row["this"] else "restart" if row["parent_run"] else "the first run"


_FAMILY = [
    field("run", lambda row: short(row["run_id"])),
    field("how", _how),
    field("goes on from", lambda row: short(row["parent_run"])),
    field("ended", "state"),
    field("policy", "policy_name"),
    field("verdict", lambda row: "not judged" if row["verdict"] is None else row["verdict"]),
    *figures("accuracy score", "process score"),
]
_WAITING = [
    figure("decision", "number"),
    figure("epoch"),
    field("by", "source"),
    field("rules", lambda row: ", ".join(row["cites"] or ())),
    field("waits for", "deferred_to"),
    field("why", "justification"),
]
_STAGES = [
    field("stage", lambda row: spoken(row["stage"])),
    *figures("seconds", "calls", "prompt tokens", "completion tokens"),
    figure("US dollars", "cost"),
]


def _cost(summary: Row, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
        price = "unknown" if calls["cost"] is None else f"{number(calls['cost'])} US dollars"
        yield (
            "Price",
            price + (f"; {calls['unpriced']} of unknown price" if calls["unpriced"] else ""),
        )
    if not data["calls"]:
        yield "Requests to a language model", "none"


def _settings(summary: Row, run: Row) -> Iterator[tuple[str, str]]:
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
