"""The process in which foreign code or files are: `python -m judge.confinement.worker FOLDER`.

It reads what it is to do, gives up the rights that it does not need, and only then touches what is
foreign: a submission's model, a task's code, or the bytes of images. Its answers go into a pipe,
and nothing that foreign code prints gets there.

Trust: whatever is written after "ready" may be the foreign code's word.
I/O: FOLDER/request.json and the files of its kind in; then two pipes.
Shapes: batch (B, 3, 32, 32), logits (B, classes).
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn, get_args

from judge.confinement.kernel import limit_resources
from judge.confinement.landlock import readable_places
from judge.confinement.pipes import ENCODER, MESSAGE, receive, send
from judge.confinement.withdrawal import THREADS, give_up

SOURCE = "model.py"  # the name under which a submission is compiled
Phrase = Literal[
    "model.py defines no function load_model",
    "load_model() does not return a torch.nn.Module",
    "the model cannot be switched to evaluation mode",
]
NO_FUNCTION, NO_MODULE, NO_EVALUATION = get_args(Phrase)
_AT_ONCE = 2**16  # bytes that a pipe takes at once
_Requests = Iterator[tuple[str, dict[str, Any], bytes]]  # name, fields and tensors
_Answers = Iterator[tuple[dict[str, Any], bytes]]
_Serve = Callable[[_Requests], _Answers]


class UnfitModelError(TypeError):
    """One of the phrases above: words of ours, not of the submission."""


def main(folder: Path) -> NoReturn:
    """Give up all rights, then answer requests until there are no more."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    asked = json.loads((folder / "request.json").read_bytes())
    limits: dict[str, int] = asked["limits"]
    limit_resources(**limits)
    (folder / "root").mkdir()
    serve = _KINDS[asked["kind"]](folder, asked)
    in_force = give_up(
        (*readable_places(), *map(Path, asked["readable"])),
        root=folder / "root",
        memory_bytes=limits["memory_bytes"],
        threads=THREADS if asked["kind"] != "images" else None,  # which runs no code of anybody's
    )
    _send(answers, {"ready": ["limits", *in_force]}, b"")
    try:
        for fields, blob in serve(_received(requests)):
            _send(answers, fields, blob)
    except BaseException as error:  # foreign code may raise SystemExit as well
        _send(answers, {"problem": describe(error, asked["name"])}, b"")
        leave(1)
    leave(0)


def _submission(folder: Path, asked: Mapping[str, Any]) -> _Serve:
    """Examine a submission: answer when its model is made, has its weights, and has computed."""
    source, weights, inputs = (
        (folder / name).read_bytes()
        for name in (SOURCE, "weights.safetensors", "batch.safetensors")
    )
    # Imported here, as below: the limits come first. An honest model.py imports monitor.model.
    import safetensors.torch as tensors  # noqa: PLC0415
    import torch  # noqa: PLC0415

    import monitor.model  # noqa: F401, PLC0415

    torch.set_num_threads(1)
    batch = tensors.load(inputs)["batch"]

    def serve(_: _Requests) -> _Answers:
        model = load_submitted_model(source)
        made = {
            "parameters": [[n, list(p.shape)] for n, p in model.named_parameters()],
            "modules": [[n, type(m).__name__] for n, m in model.named_modules()],
        }
        state = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
        yield made, tensors.save(state)
        model.load_state_dict(tensors.load(weights), strict=True)
        model.eval()
        if any(module.training for module in model.modules()):
            raise UnfitModelError(NO_EVALUATION)
        yield {}, b""
        with torch.no_grad():
            logits = [model(portion) for portion in torch.split(batch, asked["portions"])]
        yield {}, tensors.save({"logits": torch.cat(logits).contiguous()})

    return serve


def load_submitted_model(source: bytes) -> Any:
    """Run a model.py and return what its load_model() returns; raises whatever it raises."""
    from torch import nn  # noqa: PLC0415

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


def _task(folder: Path, asked: Mapping[str, Any]) -> _Serve:
    """Answer as a task's worker (monitor/task_worker.py)."""
    source = (folder / "task.py").read_bytes()
    import torch  # noqa: PLC0415
    import torch._inductor.config  # noqa: PLC0415 - torch imports it on its way to determinism

    from monitor.config import TaskConfig  # noqa: PLC0415
    from monitor.stored import open_stored  # noqa: PLC0415
    from monitor.task_worker import TaskWorker  # noqa: PLC0415

    config = TaskConfig.from_dict(asked["config"])
    # Open files stay open: what it trains on needs no place that it could read later.
    stored = None if asked["stored"] is None else open_stored(Path(asked["stored"]))
    if "optimizer" in asked["keep"]:  # the first of a process imports what no longer can be read
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()

    def serve(requests: _Requests) -> _Answers:
        _compile_nothing(torch)
        torch.set_num_threads(config.threads)
        worker = TaskWorker(source, config, keep=tuple(asked["keep"]), stored=stored)
        yield {}, b""
        for request, fields, blob in requests:
            yield worker.ask(request, fields, blob)

    return serve


def _compile_nothing(torch: Any) -> None:
    """Have torch.compile() return what it is given: a compiler writes files and starts programs."""

    def as_it_is(model: Any = None, **_: Any) -> Any:
        return (lambda decorated: decorated) if model is None else model

    torch.compile = as_it_is
    torch.nn.Module.compile = lambda *_, **__: None


def _images(_: Path, asked: Mapping[str, Any]) -> _Serve:
    """Decode image files to pixels."""
    from monitor.errors import DataLimitError, DatasetError  # noqa: PLC0415
    from monitor.images import decode_image  # noqa: PLC0415

    with suppress(DatasetError):
        decode_image(b"", most_pixels=1)  # loads the decoders

    def serve(requests: _Requests) -> _Answers:
        for printed in (1, 2):
            os.dup2(0, printed)  # decoders warn of odd files without end
        for _, fields, content in requests:
            try:
                most = fields.get("most_pixels", asked["most_pixels"])
                yield {}, decode_image(content, most_pixels=most)
            except DatasetError as error:
                yield {"refused": str(error), "large": isinstance(error, DataLimitError)}, b""

    return serve


_KINDS = {"submission": _submission, "task": _task, "images": _images}


def describe(error: BaseException, name: str) -> dict[str, Any]:
    """Return an exception's type, its last line in the file of a name, and its words."""
    if isinstance(error, UnfitModelError):
        return {"phrase": str(error)}
    if isinstance(error.__cause__, StopIteration):  # which no generator lets out as it is
        error = error.__cause__
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == name else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        words = str(error)[:2_000].encode("utf-8", "backslashreplace").decode()
    except BaseException:  # what an exception says is foreign code, too
        words = "what it says cannot be read"
    return {"type": type(error).__name__, "line": line, "words": words}


def _received(pipe: int) -> _Requests:
    while header := receive(pipe, MESSAGE.size):
        sizes = MESSAGE.unpack(header)
        request, fields = json.loads(receive(pipe, sizes[0])) if sizes[0] else ("", {})
        yield request, fields, receive(pipe, sizes[1])


def _send(pipe: int, fields: dict[str, Any], blob: bytes) -> None:
    text = ENCODER.encode(fields).encode() if fields else b""
    head = MESSAGE.pack(len(text), len(blob)) + text
    for part in (head + blob,) if len(blob) < _AT_ONCE else (head, blob):
        send(pipe, part)


def leave(status: int) -> NoReturn:
    """End without taking Python apart, which takes half a second where torch is loaded."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # foreign code may have put another one there
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
