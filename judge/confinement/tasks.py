"""A task's code in a confined process, seen from outside.

One process for each purpose: a worker that makes data, one that makes the test part, one that
trains, one that computes outputs and one that scores them. None can open files beyond Python's and
its libraries', except that those that make data may read the task's data folder: the folder's
`test` is open to the worker that makes the test part alone. They reach no network and start no
processes.

Trust: what comes back is the task's word, bounded in size and time, and of known form only where
its reader checks it.
I/O: a temporary folder, one process, its pipes.  Units: seconds, bytes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from judge.confinement.budget import Budget
from judge.confinement.process import (
    Confined,
    ForeignError,
    ProcessLimits,
    WorkerError,
    confined,
)
from judge.errors import JudgeError
from monitor.config import TaskConfig
from monitor.errors import TaskError
from monitor.task_data import OpenWorker
from monitor.task_form import Blob
from monitor.task_worker import DATA, TEST, Worker

_MAX_BLOB = 4 * 2**30  # bytes of one answer's tensors
_WITH_ROWS = ("data", "test", "rows", "outputs")  # requests that rows of tensors answer
_WORDS = 300  # characters of what a task's exception says


class ConfinedTask:
    """A worker (monitor/task_worker.py) in a process of its own."""

    def __init__(self, process: Confined, name: str, *, weights: int, quoting: bool) -> None:
        self._process, self._name, self._quoting = process, name, quoting
        self._weights = weights
        self.isolation = process.isolation
        self.ask("loading the file", None)

    def ask(
        self, request: str, fields: Mapping[str, Any] | None, blob: Blob = b"", /
    ) -> tuple[dict[str, Any], Blob]:
        """Return the answer to a request; raises TaskError saying what failed.

        Without fields nothing is asked: the worker tells by itself that it has loaded the file.
        """
        rows = request in _WITH_ROWS
        most = _MAX_BLOB if rows else self._weights if request == "weights" else 0
        try:
            if fields is not None:
                self._process.ask(request, fields, blob)
            return self._process.read(most=most, spooling=rows)
        except ForeignError as error:
            raise TaskError(self._problem(error.told, request)) from error
        except WorkerError as error:
            raise TaskError(f"{self._name}: {request} failed: {error}") from error

    def _problem(self, problem: Any, request: str) -> str:
        """Return what a task failed with; its own words only for the one who runs it."""
        told = problem if isinstance(problem, Mapping) else {}
        kind, line = str(told.get("type"))[:100], told.get("line")
        place = self._name + (f", line {line}" if type(line) is int else "")
        if not kind.isidentifier():
            kind = "an exception"
        words = "".join(c if c.isprintable() else " " for c in str(told.get("words"))[:_WORDS])
        if not self._quoting:
            return f"{place}: {request} raised {kind}"
        if kind == "TaskError":
            return words if type(line) is not int else f"{place}: {words}"
        return f"{place}: {kind}: {words}"


def confined_workers(
    *,
    limits: ProcessLimits | None = None,
    weights_bytes: int = _MAX_BLOB,
    budget: Budget | None = None,
    data_dir: Path | None = None,
    own: bool = False,
) -> OpenWorker:
    """Return what opens confined workers; `data_dir` replaces the configured data folder.

    The time and bytes of all of them come out of one budget; the owner of the code has none.
    With `own`, for the owner of the code, errors say what the task's exceptions say, and the
    configured folder is read. A judge names the folder: a recorded one could be any of its own.
    """
    most, left = limits or ProcessLimits(), budget or Budget()

    @contextmanager
    def open_worker(
        source: bytes, config: TaskConfig, *, keep: tuple[str, ...], stored: Path | None = None
    ) -> Iterator[Worker]:
        if keep in (DATA, TEST):
            if data_dir is None and config.params.get("data_dir") is not None and not own:
                raise JudgeError(
                    "the task reads files, and the judge reads no folder that a run names: give "
                    "your copy of its data folder with --data-dir"
                )
            config = _reading(config, data_dir)
        with confined(
            "task",
            {"task.py": source},
            limits=replace(most, cpu_seconds=most.seconds * config.threads + 1),
            budget=left,
            name=config.name,
            readable=_readable(config, keep),
            threads=config.threads,
            config=config.to_dict(),
            keep=keep,
            stored=None if stored is None else str(stored),
        ) as process:
            yield ConfinedTask(process, config.name, weights=weights_bytes, quoting=own)

    return open_worker


def _reading(config: TaskConfig, data_dir: Path | None) -> TaskConfig:
    """Return a configuration whose data folder, if the task has one, is replaced."""
    if data_dir is None or "data_dir" not in config.params:
        return config
    return replace(config, params={**config.params, "data_dir": str(data_dir)})


def data_places(
    config: TaskConfig, keep: tuple[str, ...], *, data_dir: Path | None = None
) -> list[Path]:
    """Return what in the data folder belongs to the parts that a worker makes."""
    places = _readable(_reading(config, data_dir), keep)
    if keep != TEST or not places:
        return places
    (folder,) = places
    own = folder / "test"
    return [own] if own.is_dir() else sorted(folder.iterdir())


def _readable(config: TaskConfig, keep: tuple[str, ...]) -> list[Path]:
    """Return what of the data folder a worker may read: only the test's reads `test` in it."""
    named = config.params.get("data_dir")
    if keep not in (DATA, TEST) or not isinstance(named, str):
        return []
    folder = Path(named)
    if not folder.is_dir():
        raise TaskError(f"data_dir {folder} is not a folder")
    if keep == TEST:
        return [folder]
    closed = (folder / "test").resolve()  # also where links lead to it, or into it
    return sorted(
        place
        for place in folder.iterdir()
        if place.name != "test"
        and not place.resolve().is_relative_to(closed)
        and not closed.is_relative_to(place.resolve())
    )
