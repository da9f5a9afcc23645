"""Tasks that are trained in the process of a test, without a ledger."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiny_training import MemoryBlobs, ScriptedPolicy

from aggregates.run import Run
from monitor.answering import Policy
from monitor.config import TaskConfig
from monitor.stored import open_stored
from monitor.task_data import TaskData, load_task_data
from monitor.task_loop import train_task
from monitor.task_worker import TaskWorker, Worker
from monitor.tasks import read_task

TABULAR = Path(__file__).parents[2].joinpath("docs/examples/tasks/tabular.py").read_text("utf-8")
SMALL: Mapping[str, Any] = {"rows": 200, "test_rows": 50, "epochs": 2, "hidden": 8}
OPTIMIZER = 'torch.optim.AdamW(model.parameters(), lr=params["lr"], weight_decay=0.01)'


class Log:
    """Keeps what each epoch measured."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []

    def save(self, run: Run) -> None:
        """Take the run's new events."""
        for event in run.collect_events():
            if isinstance(event, Run.EpochMeasured):
                self.epochs.append(dict(event.measured))


@contextmanager
def open_here(
    source: bytes, config: TaskConfig, *, keep: tuple[str, ...], stored: Path | None = None
) -> Iterator[Worker]:
    """Open a worker in this process: for code that is trusted, as that of tests."""
    parts = None if stored is None else open_stored(stored)
    yield TaskWorker(source, config, keep=keep, stored=parts)


def data_of(source: str, decoded: Path = Path(), **settings: Any) -> TaskData:
    """Return what a task's data() and test() give."""
    config = read_task(source.encode(), "task.py").configure({**SMALL, **settings})
    return load_task_data(source.encode(), config, open_here, decoded=decoded)


def train(
    source: str, policy: Policy | None = None, decoded: Path = Path(), **settings: Any
) -> tuple[Run, list[dict[str, Any]]]:
    """Train a task; return its run and what was measured in each epoch."""
    log = Log()
    run = train_task(
        read_task(source.encode(), "task.py").configure({**SMALL, **settings}),
        source.encode(),
        policy or ScriptedPolicy(),
        data=data_of(source, decoded, **settings),
        open_worker=open_here,
        log=log,
        blobs=MemoryBlobs(),
    )
    return run, log.epochs
