"""The process in which a task's code runs: `python -m judge.confinement.task_child FOLDER`.

It reads what it is to run, drops the rights that it does not need, and then answers requests on
its standard input and output until there are no more. Nothing that the task prints gets there.

Trust: whatever is written after "ready" may be the task's word.
I/O: FOLDER/request.json and task.py in; then two pipes.
"""

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

from judge.confinement.child import leave, raised_at
from judge.confinement.kernel import limit_resources
from judge.confinement.landlock import readable_places
from judge.confinement.pipes import receive, send
from judge.confinement.withdrawal import give_up

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
    in_force = give_up(
        (*readable_places(), *map(Path, asked["readable"])),
        root=folder / "root",
        memory_bytes=limits["memory_bytes"],
    )
    _send(answers, {"ready": ["limits", *in_force]}, b"")
    worker: Any = None
    _compile_nothing(torch)
    try:
        torch.set_num_threads(config.threads)
        worker = TaskWorker(source, config, keep=tuple(asked["keep"]), stored=stored)
        _send(answers, {}, b"")
        while header := receive(requests, MESSAGE.size):
            sizes = MESSAGE.unpack(header)
            request, fields = json.loads(receive(requests, sizes[0]))
            _send(answers, *worker.ask(request, fields, receive(requests, sizes[1])))
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
    return {**raised_at(error, name), "words": _words(error)}


def _words(error: BaseException) -> str:
    """Return what an exception says, which is foreign code, too."""
    try:
        return str(error)[:2_000].encode("utf-8", "backslashreplace").decode()
    except BaseException:
        return "what it says cannot be read"


def _send(pipe: int, fields: dict[str, Any], blob: bytes) -> None:
    text = json.dumps(fields, ensure_ascii=False).encode()
    for part in (MESSAGE.pack(len(text), len(blob)), text, blob):
        send(pipe, part)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave()
