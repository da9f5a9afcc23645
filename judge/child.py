"""The process in which submitted code runs: `python -I -m judge.child FOLDER`.

Reads its inputs and opens its outputs first, gives up what it does not need, and only then runs
what was submitted. Whatever it writes afterwards is the submission's word, not the judge's.

I/O: FOLDER/request.json, model.py, weights.safetensors and batch.safetensors in; report.json,
fresh.safetensors and logits.safetensors out.  Shapes: batch (B, 3, 32, 32), logits (B, classes).
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from judge.confine import filter_system_calls, limit_resources

MAX_WORDS = 400  # characters of an error


class _Output:
    """A file that was opened before the submission ran, rewritten from its start."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, content: bytes) -> None:
        os.ftruncate(self._fd, 0)
        view, offset = memoryview(content), 0
        while offset < len(content):
            offset += os.pwrite(self._fd, view[offset:], offset)


def main(folder: Path) -> None:
    """Examine the submission in `folder`, stage by stage; the report names the last one begun."""
    request = json.loads((folder / "request.json").read_bytes())
    limit_resources(**request)
    # Imported here: the limits come first. monitor.model is what an honest model.py imports.
    import safetensors.torch as tensors  # noqa: PLC0415
    import torch  # noqa: PLC0415

    import monitor.model  # noqa: F401, PLC0415

    torch.set_num_threads(1)
    source = (folder / "model.py").read_bytes()
    weights = (folder / "weights.safetensors").read_bytes()
    batch = tensors.load((folder / "batch.safetensors").read_bytes())["batch"]
    report, fresh, logits = (
        _Output(folder / name)
        for name in ("report.json", "fresh.safetensors", "logits.safetensors")
    )
    said: dict[str, Any] = {"isolation": filter_system_calls(), "problem": None}

    def begin(stage: str) -> None:
        said["stage"] = stage
        report.write(json.dumps(said).encode())

    try:
        begin("load")
        model = load_submitted_model(source)
        said["parameters"] = [[n, list(p.shape)] for n, p in model.named_parameters()]
        said["modules"] = [[n, type(m).__name__] for n, m in model.named_modules()]
        state = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
        fresh.write(tensors.save(state))
        begin("weights")
        model.load_state_dict(tensors.load(weights), strict=True)
        model.eval()
        _check_evaluates(model)
        begin("logits")
        with torch.no_grad():
            logits.write(tensors.save({"logits": model(batch).contiguous()}))
        begin("done")
    except BaseException as error:  # foreign code may raise SystemExit as well
        said["problem"] = f"{type(error).__name__}: {error}"[:MAX_WORDS]
        report.write(json.dumps(said).encode())


def load_submitted_model(source: bytes) -> Any:
    """Run a model.py and return what its load_model() returns; raises whatever it raises."""
    from torch import nn  # noqa: PLC0415 - see main()

    module = ModuleType("submission")
    sys.modules["submission"] = module
    exec(compile(source, "model.py", "exec"), vars(module))  # noqa: S102 - what this process is for
    load_model = vars(module).get("load_model")
    if not callable(load_model):
        raise TypeError("model.py defines no function load_model")
    model = load_model()
    if not isinstance(model, nn.Module):
        raise TypeError(f"load_model() returns a {type(model).__name__}, not a torch Module")
    return model


def _check_evaluates(model: Any) -> None:
    if any(module.training for module in model.modules()):
        raise RuntimeError("the model does not go into evaluation mode")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
