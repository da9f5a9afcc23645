"""What the page of a run shows: figures, tables and charts.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from aggregates.rulebook import PRECEDENCE, RULE_TITLES
from proctor.output.columns import field, figure, figures
from proctor.output.firings import looked_for
from proctor.pages.charts.curves import curves_of
from proctor.pages.charts.drawing import Chart
from proctor.pages.charts.grids import layer_heatmap, rule_heatmap
from proctor.pages.charts.rows import intervals
from proctor.pages.rendering import number, object_of, spoken
from proctor.reports.run_decisions import (
    decisions_told,
    lost_epochs,
    lost_told,
    uncounted_told,
    violations_told,
    waiting_told,
)
from proctor.reports.run_verdict import STEP_QUESTIONS, step_ran, verdict_values
from proctor.reports.tables import Row, duration, short, table
from proctor.runs.metrics import CHARTED, metric_names, with_columns
from proctor.runs.story import UNBOUND, told_misplaced, told_other, waived_reasons
from proctor.runs.worth import COLUMNS, Worth, carried_out, told_how, told_unmeasured, worths

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
_SECTIONS = {
    "score": "Why the score is what it is",
    "course": "What happened, epoch by epoch",
    "decisions": "Decisions",
    "verdict": "The eleven steps of the audit",
    "violations": "Violations",
    "family": "Restarts and forks",
    "cost": "Cost",
    "settings": "Settings",
}
_WORTH = {  # of a worth -> title, axis
    "accuracy": ("Accuracy gained", "validation accuracy: decision minus alternative"),
    "loss": ("Loss saved", "validation loss: alternative minus decision"),
}


def run_charts(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of a run; those without any value are left out."""
    return [*_course(data), *_worth_charts(worths(data["worth"]))]


def curve(name: str, data: Mapping[str, Any], **more: Any) -> list[Chart]:
    """Return a chart of CURVES over the epochs of a run, if anything of it was measured."""
    title, series = CURVES[name]
    if all(row[column] is None for row in data["epochs"] for column in series):
        return []
    share = name == "accuracy"
    return [curves_of(name, title, data["epochs"], series, share=share, **_marks(data), **more)]


def metric_curves(data: Mapping[str, Any], metric: str) -> list[Chart]:
    """Return a chart for each metric beside loss and accuracy, first the one of the task."""
    rows, marks = with_columns(data["epochs"]), _marks(data)
    return [
        curves_of(f"metric-{place}", name, rows, {f"val_{name}": "validation"}, **marks)
        for place, name in enumerate(metric_names(data["epochs"], first=metric)[:CHARTED], start=1)
    ]


def _marks(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in ("rules", "decisions")} | {"lost": lost_epochs(data)}


def _course(data: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of what happened, epoch by epoch."""
    metrics = metric_curves(data, data["run"][0]["metric"])
    found = [*curve("loss", data), *curve("accuracy", data), *metrics]
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


def _worth_charts(found: Sequence[Worth]) -> list[Chart]:
    """Return the charts of what decisions were worth, if that was measured."""
    charts = []
    for name, (title, unit) in _WORTH.items():
        measured = [
            (f"{each.decision}, not {spoken(each.arm)}", getattr(each, name)) for each in found
        ]
        rows = [
            (label, told.difference, told.low, told.high)
            for label, told in measured
            if told.difference is not None
        ]
        if rows:
            caption = "Right of zero, the decision was better. The line is the interval."
            charts.append(intervals(f"credit-{name}", title, rows=rows, unit=unit, caption=caption))
    return charts


def _how(row: Row) -> str:
    if row["forked_after"] is not None:
        told = "resumed" if row["resumed"] else "fork"
        return f"{'this run, ' if row['this'] else ''}{told} after epoch {row['forked_after']}"
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
_STAGES = [
    field("stage", lambda row: spoken(row["stage"])),
    *figures("seconds", "calls", "prompt tokens", "completion tokens"),
    figure("US dollars", "cost"),
]


def run_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template `run.html` shows."""
    (summary,) = data["summary"]
    run, worth, charts = data["run"][0], worths(data["worth"]), _course(data)
    epochs = with_columns(data["epochs"][:_TABLE])
    left_out = [] if data["steps"] else ["verdict", "violations"]
    left_out += [] if len(data["family"]) > 1 else ["family"]
    columns = [name for name in epochs[0] if name not in ("idx", "run_id")] if epochs else ["epoch"]
    return {
        "heading": f"Run {summary['run_id'][:8]}: {summary['dataset']}",
        "summary": summary,
        "run": run,
        **verdict_values(summary, data),
        "sections": {key: title for key, title in _SECTIONS.items() if key not in left_out},
        "lost": lost_told(data),
        "first_charts": charts[:1],
        "charts": charts[1:],
        "rules": [(rule, RULE_TITLES[rule], looked_for(rule)) for rule in PRECEDENCE],
        "measured": table(
            "Measurements of each epoch",
            [figure(spoken(name), name) for name in columns],
            epochs,
        ),
        "decisions": decisions_told(data, run),
        "waiting": waiting_told(data),
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
        "worth": table("Each decision beside each alternative, with intervals", COLUMNS, worth),
        "worth_how": told_how(worth),
        "worth_charts": _worth_charts(worth),
        "unmeasured": told_unmeasured(summary, carried_out(data["decisions"]), worth),
        "family": table(
            "This run, those that it goes on from, and those that go on from it",
            _FAMILY,
            [{**row, "this": row["run_id"] == run["run_id"]} for row in data["family"]],
        ),
        "took": _took(summary),
        "stages": table(
            "Time and tokens by stage", _STAGES, data["stages"] if data["calls"] else ()
        ),
        "examples": _examples(run),
        "environment": object_of(run["environment"]),
    }


def _took(summary: Row) -> str | None:
    if summary["started_at"] is None:
        return None
    if summary["ended_at"] is None:
        return "the run has not ended"
    began, ended = (datetime.fromisoformat(summary[name]) for name in ("started_at", "ended_at"))
    return f"{duration((ended - began).total_seconds())}, from start to end"


def _examples(run: Row) -> str | None:
    sizes = object_of(run["data"]).get("sizes")
    if not isinstance(sizes, dict) or not any(sizes.values()):
        return None
    return ", ".join(f"{number(size)} {_EXAMPLES.get(name, name)}" for name, size in sizes.items())
