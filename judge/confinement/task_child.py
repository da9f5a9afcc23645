"""The process in which a task's code runs: `python -m judge.confinement.task_child FOLDER`.

It reads what it is to run, drops the rights that it does not need, and then answers requests on
its standard input and output until there are no more. Nothing that the task prints gets there.

Trust: whatever is written after "ready" may be the task's word.
I/O: FOLDER/request.json and task.py in; then two pipes.
"""

import json
import os
import platform
import struct
import sys
from pathlib import Path
from typing import Any

from judge.confinement.kernel import limit_resources
from judge.confinement.landlock import hide_files, readable_places
from judge.confinement.seccomp import SUBMISSION, filter_system_calls
from judge.confinement.withdrawal import (
    THREADS,
    count_tasks,
    limit_address_space,
    limit_tasks,
    withdraw,
)

_TRIED = 2**20  # bytes of a file: Python tries the folder for temporary files before it is closed
MESSAGE = struct.Struct(">QQ")  # bytes of JSON, bytes of tensors


def main(folder: Path) -> None:
    """Give up all rights, load the task, and answer requests."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    asked = json.loads((folder / "request.json").read_bytes())
    source = (folder / "task.py").read_bytes()
    limits: dict[str, int] = asked["limits"]
    limit_resources(**limits, file_bytes=_TRIED)
    (folder / "root").mkdir()
    in_force = ["limits"]
    # Imported here: the limits come first.
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
    places = (*readable_places(), *map(Path, asked["readable"]))
    if platform.system() == "Linux":
        others = count_tasks()
        in_force += withdraw(places, root=folder / "root")
        limit_address_space(limits["memory_bytes"])
        limit_tasks(others + THREADS)
    if hide_files(places):
        in_force.append("hidden files")
    if filter_system_calls(SUBMISSION):
        in_force.append("system-call filter")
    _send(answers, {"ready": in_force}, b"")
    worker: Any = None
    _compile_nothing(torch)
    try:
        torch.set_num_threads(config.threads)
        worker = TaskWorker(source, config, keep=tuple(asked["keep"]), stored=stored)
        _send(answers, {}, b"")
        while header := _receive(requests, MESSAGE.size):
            sizes = MESSAGE.unpack(header)
            request, fields = json.loads(_receive(requests, sizes[0]))
            _send(answers, *worker.ask(request, fields, _receive(requests, sizes[1])))
    except BaseException as error:  # foreign code may raise SystemExit as well
        _send(answers, {"problem": describe(error, config.name)}, b"")
        os._exit(1)


def _compile_nothing(torch: Any) -> None:
    """Have torch.compile() return what it is given: a compiler writes files and starts programs."""

    def as_it_is(model: Any = None, **_: Any) -> Any:
        return (lambda decorated: decorated) if model is None else model

    torch.compile = as_it_is
    torch.nn.Module.compile = lambda *_, **__: None


def describe(error: BaseException, name: str) -> dict[str, Any]:
    """Return an exception's type, its last line in the task's file, and its words."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == name else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return {"type": type(error).__name__, "line": line, "words": _words(error)}


def _words(error: BaseException) -> str:
    """Return what an exception says, which is foreign code, too."""
    try:
        return str(error)[:2_000].encode("utf-8", "backslashreplace").decode()
    except BaseException:
        return "what it says cannot be read"


def _receive(pipe: int, length: int) -> bytes:
    """Return that many bytes; fewer where the other end has closed the pipe."""
    found = bytearray()
    while len(found) < length and (chunk := os.read(pipe, min(length - len(found), 2**20))):
        found += chunk
    return bytes(found)


def _send(pipe: int, fields: dict[str, Any], blob: bytes) -> None:
    text = json.dumps(fields, ensure_ascii=False).encode()
    for part in (MESSAGE.pack(len(text), len(blob)), text, blob):
        view = memoryview(part)
        while view:
            view = view[os.write(pipe, view) :]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
