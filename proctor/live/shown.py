"""What a page shows of runs besides their rows: charts, and settings as names and values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.pages.charts.curves import Curve, curves
from proctor.pages.charts.drawing import Chart
from proctor.reports.run_page import CURVES, curve

__all__ = ["all_settings_of", "charts_of", "compared", "sampled", "settings_of"]


def settings_of(text: str | None) -> dict[str, str]:
    """Return what a JSON object says, by dotted names."""
    found: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else str(key))
        elif len(found) < 200:
            found[name or "value"] = value if isinstance(value, str) else json.dumps(value)

    try:
        walk(json.loads(text or "{}"), "")
    except (RecursionError, ValueError):
        found["value"] = str(text)
    return found


def all_settings_of(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a run and of who decided in it."""
    policy = settings_of(run["policy"])
    return {
        **settings_of(run["config"]),
        **{f"policy.{name}": value for name, value in policy.items()},
    }


def sampled(values: Sequence[float | None], most: int) -> Sequence[float | None]:
    """Return so many of the values, evenly chosen, and the last."""
    step = -(-len(values) // most) or 1
    return [*values[:-1:step], *values[-1:]]


def charts_of(found: Mapping[str, Any]) -> list[Chart]:
    """Return the curves of a run."""
    decisions = [{**row, "outcome": "applied"} for row in found["done"]]
    return [chart for name in CURVES for chart in curve(name, {**found, "decisions": decisions})]


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
