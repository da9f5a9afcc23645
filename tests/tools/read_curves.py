"""Prints the curves in a folder as TensorBoard and MLflow read them; run by the tests.

It runs in the environment of the tools and imports nothing of Proctor.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def of_tensorboard(folder: Path) -> dict[str, Any]:
    """Return [step, time, value] of each curve of each run."""
    found: dict[str, Any] = {}
    for own in sorted(folder.iterdir()):
        reader = EventAccumulator(str(own))
        reader.Reload()
        found[own.name] = {
            tag: [[point.step, point.wall_time, point.value] for point in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]
        }
    return found


def of_mlflow(folder: Path) -> dict[str, Any]:
    """Return the same, with parameters, tags and status."""
    client = MlflowClient(tracking_uri=folder.resolve().as_uri())
    experiment = client.get_experiment_by_name("proctor")
    found: dict[str, Any] = {}
    for run in client.search_runs([experiment.experiment_id]):
        curves = {
            name: [
                [point.step, point.timestamp, point.value]
                for point in client.get_metric_history(run.info.run_id, name)
            ]
            for name in run.data.metrics
        }
        found[run.data.tags["proctor.run"]] = {
            "curves": curves,
            "params": run.data.params,
            "status": run.info.status,
        }
    return found


place = Path(sys.argv[1])
told = {"tensorboard": of_tensorboard(place / "tb"), "mlflow": of_mlflow(place / "mlflow")}
print(json.dumps(told))
