"""What a run hands in: the model's code, its weights, and how they came about.

I/O: writes three files into one folder, each whole or not at all.
"""

import hashlib
import json
from pathlib import Path
from pprint import pformat

from aggregates.campaign import MODE
from aggregates.run import Run
from aggregates.spec import spec_of
from ledger.blobs import Blobs
from ledger.files import write_durably
from monitor.config import RunConfig, TaskConfig
from monitor.errors import MonitorError

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
    directory: Path | None,
    run: Run,
    blobs: Blobs,
    config: RunConfig | TaskConfig,
    *,
    task: bytes = b"",
) -> dict[str, str]:
    """Write the best weights, or the last if none were best, with their model's code.

    That is `task` where the run is of one. Returns each file's SHA-256; none without a directory.
    """
    if directory is None:
        return {}
    weights = run.weights.get("best") or run.weights.get("last")
    if weights is None:
        raise MonitorError(f"run {run.id} has no saved weights, so there is nothing to submit")
    spec = spec_of(weights.spec).to_dict()
    code = {"task.py": task}
    if isinstance(config, RunConfig):
        text = _MODEL.format(spec=pformat(spec, sort_dicts=False), seed=config.seed)
        code = {"model.py": text.encode()}
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
            "spec": spec,
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
