"""What a page shows of runs besides their rows: charts, and settings as names and values."""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from proctor.output.terminal import dotted
from proctor.pages.charts.curves import Curve, curves
from proctor.pages.charts.drawing import Chart
from proctor.reports.run_page import CURVES, curve

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
    return [chart for name in CURVES for chart in curve(name, told)]


def compared(runs: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of several runs."""
    chosen = (
        ("val_loss", "Validation loss"),
        ("val_accuracy", "Validation accuracy"),
        ("train_loss", "Training loss"),
        ("lr", "Learning rate"),
    )
    return [
        curves(
            column,
            title,
            [
                Curve(_label(run), [(row["epoch"], row[column]) for row in run["measured"]])
                for run in runs
            ],
            share=column == "val_accuracy",
        )
        for column, title in chosen
        if any(row[column] is not None for run in runs for row in run["measured"])
    ]


def _label(run: Mapping[str, Any]) -> str:
    return f"{run['run_id'][:8]} {run['policy_name'] or ''} seed {run['seed']}"
