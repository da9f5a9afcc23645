"""The harness of a task's run: model and data of somebody else, in processes of their own.

I/O: reads the task's file; appends to the log; reads and writes the home; starts processes.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

from aggregates.run import Run
from judge.confinement.tasks import confined_workers
from ledger.application import LedgerApplication
from monitor.config import TaskConfig
from monitor.errors import TaskError
from monitor.task_loop import load_task_data, train_task
from monitor.tasks import MAX_SOURCE, TaskText, read_task
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.labels import find_label, record_installed
from proctor.runs.run_settings import read_pairs
from proctor.runs.training import MakePolicy, Told, Watching

__all__ = ["configure_task", "read_task_file", "run_task"]


def read_task_file(path: Path) -> TaskText:
    """Read a task's file without running it; raises ProctorError or TaskError."""
    try:
        with path.open("rb") as file:
            source = file.read(MAX_SOURCE + 1)
    except OSError as error:
        raise ProctorError(f"{path} cannot be read: {error.strerror}") from error
    return read_task(source, path.name)


def configure_task(path: Path, settings: list[str]) -> TaskConfig:
    """Return the configuration of a task's run; raises ConfigurationError naming the key."""
    given: dict[str, Any] = read_pairs(settings)
    if isinstance(folder := given.get("data_dir"), str) and folder:
        given["data_dir"] = str(Path(folder).resolve())  # judge and replay may start elsewhere
    return read_task_file(path).configure(given)


def run_task(
    home: Home,
    log: LedgerApplication,
    path: Path,
    config: TaskConfig,
    *,
    make_policy: MakePolicy,
    watching: Watching,
) -> Run:
    """Train a task to its end and return its run; nothing is recorded before its data is there."""
    text = read_task_file(path)
    if text.sha256 != config.task:
        raise TaskError(f"{path} was changed while the command started; run it again")
    open_worker = confined_workers(own=True)
    data = load_task_data(text.source, config, open_worker)
    run_id = uuid4()
    prepared = make_policy(run_id, Told())
    record_installed(log, may=home.may_append)
    with home.running(run_id):
        if prepared.transcript is not None:
            prepared.transcript.open({"name": prepared.policy.name, **prepared.policy.describe()})
        watching.on_start(run_id, config)
        label = find_label(log)
        if label.remark is not None:
            watching.say(label.remark)
        return train_task(
            config,
            text.source,
            prepared.policy,
            data=data,
            open_worker=open_worker,
            log=log,
            blobs=home.blobs,
            checkpoint=label.checkpoint,
            run_id=run_id,
            submission_dir=home.submission(run_id),
            on_epoch=watching.on_epoch,
        )
