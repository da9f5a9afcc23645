"""What a run hands in: the model's code, its weights, and how they came about.

I/O: writes three files into one folder, each whole or not at all.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat

from aggregates.campaign import MODE
from aggregates.run import Run
from ledger.blobs import Blobs
from ledger.files import write_durably
from monitor.config import RunConfig, TaskConfig
from monitor.errors import MonitorError
from monitor.session import SavedWeights

FILES = ("model.py", "run_config.json", "weights.safetensors")
TASK_FILES = ("run_config.json", "task.py", "weights.safetensors")


_MODEL = '''"""The submitted model, without its weights, which are in weights.safetensors."""

from aggregates.spec import ModelSpec
from monitor.model import ResidualCNN

SPEC = {spec}


def load_model() -> ResidualCNN:
    """Return the model, He-initialised."""
    return ResidualCNN(ModelSpec.from_dict(SPEC), seed={seed})
'''


def write_submission(
    directory: Path,
    run: Run,
    blobs: Blobs,
    config: RunConfig,
    *,
    saved: Mapping[str, SavedWeights],
) -> dict[str, str]:
    """Write the best weights (the last, if none were best) and return each file's SHA-256."""
    weights = _submitted(run, saved)
    text = _MODEL.format(spec=pformat(weights.spec.to_dict(), sort_dicts=False), seed=config.seed)
    return _write(directory, run, blobs, config, weights=weights, code={"model.py": text.encode()})


def write_task_submission(
    directory: Path,
    run: Run,
    blobs: Blobs,
    config: TaskConfig,
    source: bytes,
    *,
    saved: Mapping[str, SavedWeights],
) -> dict[str, str]:
    """Write the task's file and the best weights, or the last; return each file's SHA-256."""
    weights = _submitted(run, saved)
    return _write(directory, run, blobs, config, weights=weights, code={"task.py": source})


def _submitted(run: Run, saved: Mapping[str, SavedWeights]) -> SavedWeights:
    weights = saved.get("best") or saved.get("last")
    if weights is None:
        raise MonitorError(f"run {run.id} has no saved weights, so there is nothing to submit")
    return weights


def _write(
    directory: Path,
    run: Run,
    blobs: Blobs,
    config: RunConfig | TaskConfig,
    *,
    weights: SavedWeights,
    code: Mapping[str, bytes],
) -> dict[str, str]:
    about = {
        "mode": MODE,
        "run": str(run.id),
        # Edits change the model on the way, so what a run started from may differ from its weights.
        "started_from": {
            "config": config.to_dict(),
            "config_hash": config.hash,
            "spec": run.initial_spec.to_dict(),
        },
        "weights": {
            "kind": weights.kind,
            "epoch": weights.epoch,
            "sha256": weights.sha256,
            "spec": weights.spec.to_dict(),
        },
    }
    contents = {
        **code,
        "run_config.json": (json.dumps(about, indent=2, sort_keys=True) + "\n").encode(),
        "weights.safetensors": blobs.get(weights.sha256),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_durably(directory / name, content)
    except OSError as error:
        raise MonitorError(f"the submission cannot be written to {directory}: {error}") from error
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
