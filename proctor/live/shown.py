"""What a page shows of runs besides their rows: charts, and settings as names and values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from proctor.live import drawing

__all__ = ["compared", "curves_of", "sampled", "settings_of"]


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


def sampled(values: Sequence[float | None], most: int) -> Sequence[float | None]:
    """Return so many of the values, evenly chosen, and the last."""
    step = -(-len(values) // most) or 1
    return [*values[:-1:step], *values[-1:]]


def _curve(label: str, epochs: Sequence[Mapping[str, Any]], column: str) -> drawing.Curve:
    return drawing.Curve(label, [(row["epoch"], row[column]) for row in epochs])


def curves_of(found: Mapping[str, Any]) -> list[Markup]:
    """Return the charts of a run."""
    epochs = found["epochs"]
    fired = sorted({row["epoch"] for row in found["rules"] if row["fired"] and not row["waived"]})
    done = {row["epoch"]: str(row["number"]) for row in reversed(found["done"])}
    chosen = (
        ("loss", "Loss", {"train_loss": "training", "val_loss": "validation"}, True),
        (
            "accuracy",
            "Accuracy",
            {"train_accuracy": "training", "val_accuracy": "validation"},
            False,
        ),
        (
            "gradients",
            "Gradient norm",
            {"max_layer_grad_norm": "largest layer", "min_layer_grad_norm": "smallest layer"},
            True,
        ),
        ("lr", "Learning rate", {"lr": "learning rate"}, True),
    )
    return [
        drawing.curves(
            name,
            title,
            [_curve(label, epochs, column) for column, label in columns.items()],
            logarithmic=logarithmic,
            fired=fired,
            done=done,
        )
        for name, title, columns, logarithmic in chosen
        if any(row[column] is not None for row in epochs for column in columns)
    ]


def compared(runs: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Return the charts of several runs."""
    chosen = (
        ("val_loss", "Validation loss", True),
        ("val_accuracy", "Validation accuracy", False),
        ("train_loss", "Training loss", True),
        ("lr", "Learning rate", True),
    )
    return [
        drawing.curves(
            column,
            title,
            [_curve(_label(run), run["measured"], column) for run in runs],
            logarithmic=logarithmic,
        )
        for column, title, logarithmic in chosen
        if any(row[column] is not None for run in runs for row in run["measured"])
    ]


def _label(run: Mapping[str, Any]) -> str:
    return f"{run['run_id'][:8]} {run['policy_name'] or ''} seed {run['seed']}"
