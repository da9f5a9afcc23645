"""The process in which submitted code runs: `python -I -m judge.confinement.child FOLDER`.

It reads its inputs and opens its outputs, drops the rights that it does not need, and only then
runs the submitted code. The judge does not trust anything written after that.

I/O: FOLDER/request.json, model.py, weights.safetensors and batch.safetensors in; report.json,
fresh.safetensors, logits.safetensors and started out.
Shapes: batch (B, 3, 32, 32), logits (B, classes).
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn, get_args

from judge.confinement.kernel import limit_resources
from judge.confinement.landlock import readable_places
from judge.confinement.withdrawal import give_up

SOURCE = "model.py"  # the name under which the submission is compiled
Phrase = Literal[
    "model.py defines no function load_model",
    "load_model() does not return a torch.nn.Module",
    "the model cannot be switched to evaluation mode",
]
PHRASES: tuple[Phrase, ...] = get_args(Phrase)
NO_FUNCTION, NO_MODULE, NO_EVALUATION = PHRASES


class UnfitModelError(TypeError):
    """One of PHRASES: words of ours, not of the submission."""


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
    portions: list[int] = request.pop("portions")
    limit_resources(**request)
    source, weights, inputs = (
        (folder / name).read_bytes()
        for name in (SOURCE, "weights.safetensors", "batch.safetensors")
    )
    report, fresh, logits = (
        _Output(folder / name)
        for name in ("report.json", "fresh.safetensors", "logits.safetensors")
    )
    started = os.open(folder / "started", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    root = folder / "root"
    root.mkdir()
    # Imported here: the limits come first. monitor.model is what an honest model.py imports.
    import safetensors.torch as tensors  # noqa: PLC0415
    import torch  # noqa: PLC0415

    import monitor.model  # noqa: F401, PLC0415

    torch.set_num_threads(1)
    batch = tensors.load(inputs)["batch"]
    in_force = give_up(readable_places(), root=root, memory_bytes=request["memory_bytes"])
    said: dict[str, Any] = {"isolation": ["limits", *in_force], "problem": None}

    def begin(stage: str) -> None:
        said["stage"] = stage
        report.write(json.dumps(said).encode())

    os.write(started, b"1")  # from here on whatever fails is the submission's
    os.close(started)
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
            answers = [model(portion) for portion in torch.split(batch, portions)]
            logits.write(tensors.save({"logits": torch.cat(answers).contiguous()}))
        begin("done")
    except BaseException as error:  # foreign code may raise SystemExit as well
        said["problem"] = describe(error)
        report.write(json.dumps(said).encode())


def describe(error: BaseException) -> dict[str, Any]:
    """Return an exception's type and its last line in model.py; what it says is left out."""
    if isinstance(error, UnfitModelError):
        return {"phrase": str(error)}
    return raised_at(error, SOURCE)


def raised_at(error: BaseException, name: str) -> dict[str, Any]:
    """Return an exception's type and its last line in the file that was compiled under a name."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == name else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return {"type": type(error).__name__, "line": line}


def load_submitted_model(source: bytes) -> Any:
    """Run a model.py and return what its load_model() returns; raises whatever it raises."""
    from torch import nn  # noqa: PLC0415 - see main()

    module = ModuleType("submission")
    sys.modules["submission"] = module
    exec(compile(source, SOURCE, "exec"), vars(module))  # noqa: S102 - what this process is for
    load_model = vars(module).get("load_model")
    if not callable(load_model):
        raise UnfitModelError(NO_FUNCTION)
    model = load_model()
    if not isinstance(model, nn.Module):
        raise UnfitModelError(NO_MODULE)
    return model


def _check_evaluates(model: Any) -> None:
    if any(module.training for module in model.modules()):
        raise UnfitModelError(NO_EVALUATION)


def leave() -> NoReturn:
    """End without taking Python apart, which takes half a second where torch is loaded."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # foreign code may have put another one there
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave()
