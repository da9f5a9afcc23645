"""What a page shows of runs besides their rows: charts, and settings as names and values."""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from proctor.output.terminal import dotted
from proctor.pages.charts.curves import Curve, curves
from proctor.pages.charts.drawing import Chart
from proctor.reports.run_page import CURVES, curve, metric_curves
from proctor.runs.metrics import CHARTED, metric_names, with_columns

_MOST_SETTINGS = 200


def settings_of(text: str | None) -> dict[str, str]:
    """Return what a JSON object says, by dotted names."""
    try:
        said = json.loads(text or "{}")
        found = islice(dotted(said if isinstance(said, dict) else {"value": said}), _MOST_SETTINGS)
        return {name: each if isinstance(each, str) else json.dumps(each) for name, each in found}
    except (RecursionError, ValueError):
        return {"value": str(text)}


def all_settings_of(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a run and of who decided in it."""
    policy = settings_of(run["policy"])
    return {
        **settings_of(run["config"]),
        **{f"policy.{name}": value for name, value in policy.items()},
    }


def charts_of(found: Mapping[str, Any]) -> list[Chart]:
    """Return the curves of a run."""
    told = {**found, "decisions": found["done"]}
    first, *rest = ([*curve(name, told)] for name in CURVES)
    charts = [first, metric_curves(told, found["run"]["metric"]), *rest]
    return [chart for each in charts for chart in each]


def compared(runs: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of several runs."""
    rows = [(run, with_columns(run["measured"])) for run in runs]
    everything = [row for run in runs for row in run["measured"]]
    names = metric_names(everything, first=runs[0]["metric"])[:CHARTED] if runs else []
    chosen = (
        ("val_loss", "Validation loss"),
        ("val_accuracy", "Validation accuracy"),
        *((f"val_{name}", f"Validation {name}") for name in names),
        ("train_loss", "Training loss"),
        ("lr", "Learning rate"),
    )
    return [
        curves(
            f"compared-{place}",
            title,
            [
                Curve(_label(run), [(row["epoch"], row.get(column)) for row in own])
                for run, own in rows
            ],
            share=column == "val_accuracy",
        )
        for place, (column, title) in enumerate(chosen, start=1)
        if any(row.get(column) is not None for _, own in rows for row in own)
    ]


def _label(run: Mapping[str, Any]) -> str:
    return f"{run['run_id'][:8]} {run['policy_name'] or ''} seed {run['seed']}"
