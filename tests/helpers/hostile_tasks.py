"""Runs of tasks whose code turns hostile once the run is on record.

The one who records a run is the one who hands it in: here the file is recorded with its hash, and
trained as if its last block were not there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any
from unittest import mock

from frontdoor import answer, call_here
from task_runs import open_here

from monitor.config import TaskConfig
from monitor.task_worker import Worker

__all__ = ["HONEST", "MEASURED", "PLAIN", "recorded", "source_of"]

HONEST = '''
import json, os, struct, sys, time
import torch
from safetensors.torch import save
from torch import nn
from torch.nn import functional

from monitor.seeds import derive_seed

METRIC = ("accuracy", "higher")
CLASSES = 2
PARAMS = {
    "lr": 0.1, "epochs": 1, "batch_size": 20, "rows": 40, "test_rows": 60, "wide": 4,
}


def rows(count, wide=4):
    inputs = torch.randn(count, wide)
    return inputs, (inputs[:, 0] > 0).long()


def model(params):
    return nn.Linear(params["wide"], CLASSES)


def data(params):
    return rows(params["rows"], params["wide"]), rows(20, params["wide"])


def test(params):
    return rows(params["test_rows"], params["wide"])


def loss(output, target):
    return functional.cross_entropy(output, target)


def metrics(output, target):
    return {"accuracy": (output.argmax(dim=1) == target).double().mean()}


def optimizer(model, params):
    return torch.optim.SGD(model.parameters(), lr=params["lr"])


def harness():
    """Return the variables of the function that answers the judge, in this process."""
    frame = sys._getframe()
    while "answers" not in frame.f_locals:
        frame = frame.f_back
    return frame


def put(*parts):
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(harness().f_locals["answers"], view):]


def say(fields, blob=b"", sizes=None):
    text = json.dumps(fields).encode() if not isinstance(fields, bytes) else fields
    put(struct.pack(">QQ", *(sizes or (len(text), len(blob)))), text, blob)


def test_part(inputs, targets=None):
    targets = torch.zeros(len(inputs), dtype=torch.long) if targets is None else targets
    say({}, save({"test.inputs": inputs, "test.targets": targets}))
    os._exit(0)


TRAINS, SCORES = "optimizer" in globals(), "loss" in globals() and "model" not in globals()
INFERS = "model" in globals() and not TRAINS
'''
HOSTILE = "\nif True:  # hostile\n"
PLAIN = "  # nothing\n    pass\n"
# The command, which says how much memory its process has had at most.
MEASURED = """
import os, resource
from proctor.cli.main import main
try:
    main()
finally:
    with open(os.environ["PEAK"], "w") as file:
        file.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""


def source_of(hostile: str) -> str:
    """Return a task's file whose last block is hostile."""
    return HONEST + HOSTILE + indent(hostile, "    ") + "\n"


def recorded(home: Path, source: str, *settings: str) -> Mapping[str, Any]:
    """Record a run of a task, trained without its hostile block, and return what is said of it."""

    @contextmanager
    def honest(source: bytes, config: TaskConfig, **how: Any) -> Iterator[Worker]:
        plain, _, _ = source.partition(HOSTILE.encode())
        with open_here(plain, config, **how) as worker:
            yield worker

    path = home / "task.py"
    path.write_text(source, "utf-8")
    with mock.patch("proctor.runs.tasks.confined_workers", return_value=honest):
        done = call_here(["run", "--task", path, *settings, "--json"], home=home)
    (run,) = answer(done)["runs"]
    found: Mapping[str, Any] = run
    return found
