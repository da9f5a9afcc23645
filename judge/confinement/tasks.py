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

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from judge.confinement.budget import Budget
from judge.confinement.interpreter import variables
from judge.confinement.pipes import ready, send
from judge.confinement.sandbox import ISOLATION, Printed, end_group, undumpable
from judge.confinement.task_child import MESSAGE
from judge.errors import ConfinementError, JudgeError
from ledger.held_folder import HeldFolder
from monitor.config import TaskConfig
from monitor.dispatch import current_variables
from monitor.errors import TaskError
from monitor.stored import PIECE, Spooled
from monitor.task_data import OpenWorker
from monitor.task_form import Blob
from monitor.task_worker import DATA, TEST, Worker

_MAX_TEXT = 16 * 2**20  # bytes of one answer's JSON
_MAX_VALUES = 1_000_000  # in it: a byte of JSON can cost a hundred in Python
_MAX_DEPTH = 32
_MAX_BLOB = 4 * 2**30  # bytes of one answer's tensors
_IN_MEMORY = 2 * PIECE  # bytes of them; larger ones go into a file
_WITH_ROWS = ("data", "test", "rows", "outputs")  # requests that rows of tensors answer
_MOST_SECONDS = 30 * 24 * 3_600  # that are passed to the kernel
_CHUNK = 2**20  # bytes that are read or written at once
_WORDS = 300  # characters of what a task's exception says


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """How much a task's process may use."""

    seconds: float = 7 * 24 * 3_600.0
    memory_bytes: int = 32 * 2**30
    output_bytes: int = 2**20  # of what it prints
    weights_bytes: int = _MAX_BLOB


class ConfinedTask:
    """A worker (monitor/task_worker.py) in a process of its own."""

    def __init__(
        self,
        process: Any,
        config: TaskConfig,
        *,
        limits: TaskLimits,
        budget: Budget,
        quoting: bool,
    ) -> None:
        self._process, self._config, self._quoting = process, config, quoting
        self._budget = budget
        os.set_blocking(process.stdin.fileno(), False)
        self._deadline = time.monotonic() + limits.seconds
        self._limits = limits
        self._printed = Printed(
            process.stderr, limit=limits.output_bytes, stop=lambda: end_group(process)
        )
        self._started = False
        self.isolation = self._begin()

    def _begin(self) -> str:
        try:
            said, _ = self._read("start")
        except TaskError as error:
            words = self._printed.read()[-2_000:].decode("utf-8", "replace")
            raise ConfinementError(
                f"the process for the task's code did not start: {error}. {words}"
            ) from error
        self._started = True
        self._read("loading the file")
        ready = said.get("ready", ())
        return ", ".join(name for name in ISOLATION if name in ready)

    def ask(
        self, request: str, fields: Mapping[str, Any], blob: Blob = b"", /
    ) -> tuple[dict[str, Any], Blob]:
        """Return the answer to a request; raises TaskError saying what failed."""
        text = json.dumps([request, dict(fields)]).encode()
        try:
            self._send(MESSAGE.pack(len(text), len(blob)) + text, request)
            for start in range(0, len(blob), _CHUNK):
                stop = min(start + _CHUNK, len(blob))
                part = blob[start:stop] if isinstance(blob, bytes) else blob.read(start, stop)
                self._send(part, request)
        except BrokenPipeError:
            pass  # the answer says why, or its absence
        return self._read(request)

    def _read(self, request: str) -> tuple[dict[str, Any], Blob]:
        text_size, blob_size = MESSAGE.unpack(self._receive(MESSAGE.size, request))
        if text_size > _MAX_TEXT or blob_size > self._most_tensors(request):
            raise TaskError(f"{self._name}: the answer to {request} is too large")
        self._budget.take(text_size + blob_size)
        text = self._receive(text_size, request)
        try:
            said = _read_json(text)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{self._name}: the answer to {request} is malformed") from error
        if not isinstance(said, dict):
            raise TaskError(f"{self._name}: the answer to {request} is malformed")
        if "problem" in said:
            raise TaskError(self._problem(said["problem"], request))
        if blob_size <= _IN_MEMORY or request not in _WITH_ROWS:
            return said, self._receive(blob_size, request)
        spooled = Spooled(blob_size)
        for chunk in self._chunks(blob_size, request):
            spooled.write(chunk)
        return said, spooled

    def _most_tensors(self, request: str) -> int:
        """Return how many bytes of tensors may answer a request."""
        if request in _WITH_ROWS:
            return _MAX_BLOB
        return self._limits.weights_bytes if request == "weights" else 0

    def _receive(self, length: int, request: str) -> bytes:
        return b"".join(self._chunks(length, request))

    def _chunks(self, length: int, request: str) -> Iterator[bytes]:
        out = self._process.stdout.fileno()
        while length:
            self._wait(out, request)
            chunk = os.read(out, min(length, _CHUNK))
            if not chunk:
                raise TaskError(f"{self._name}: {request} failed: {self._how()}")
            length -= len(chunk)
            yield chunk

    def _send(self, data: bytes, request: str) -> None:
        pipe = self._process.stdin.fileno()
        send(pipe, data, wait=lambda: self._wait(pipe, request, writing=True))

    def _wait(self, pipe: int, request: str, *, writing: bool = False) -> None:
        """Wait until a pipe can be read or written; raises TaskError at the deadline."""
        while True:
            left = min(self._deadline - time.monotonic(), self._budget.seconds_left())
            if left <= 0:
                raise TaskError(
                    f"{self._name}: {request} took more than {self._limits.seconds:g} seconds"
                )
            if ready(pipe, seconds=left, writing=writing):
                return

    def _how(self) -> str:
        if self._printed.exceeded:
            return f"it printed more than {self._limits.output_bytes:,} bytes"
        try:
            code = self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            return "its process closed the pipe"
        return f"it was killed by signal {-code}" if code < 0 else f"it exited with status {code}"

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

    @property
    def _name(self) -> str:
        return self._config.name


def _read_json(text: bytes) -> Any:
    """Return what an answer says, if a ledger could hold it; raises ValueError."""
    if sum(map(text.count, (b"[", b"{", b","))) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values")
    said = json.loads(text, parse_int=_whole)
    _check_depth(said, _MAX_DEPTH)
    json.dumps(said, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    return said


def _check_depth(value: Any, left: int) -> None:
    if not left:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, left - 1)


def _whole(digits: str) -> int:
    if len(digits) > 18:
        raise ValueError("a number of more than 18 digits")
    return int(digits)


def confined_workers(
    *,
    limits: TaskLimits | None = None,
    budget: Budget | None = None,
    data_dir: Path | None = None,
    own: bool = False,
) -> OpenWorker:
    """Return what opens confined workers; `data_dir` replaces the configured data folder.

    The time and bytes of all of them come out of one budget; the owner of the code has none.
    With `own`, for the owner of the code, errors say what the task's exceptions say, and the
    configured folder is read. A judge names the folder: a recorded one could be any of its own.
    """
    return partial(
        _open,
        limits=limits or TaskLimits(),
        budget=budget or Budget(),
        data_dir=data_dir,
        own=own,
    )


@contextmanager
def _open(
    source: bytes,
    config: TaskConfig,
    *,
    keep: tuple[str, ...],
    stored: Path | None = None,
    limits: TaskLimits,
    budget: Budget,
    data_dir: Path | None,
    own: bool,
) -> Iterator[Worker]:
    if keep in (DATA, TEST):
        if data_dir is None and config.params.get("data_dir") is not None and not own:
            raise JudgeError(
                "the task reads files, and the judge reads no folder that a run names: give your "
                "copy of its data folder with --data-dir"
            )
        config = _reading(config, data_dir)
    with HeldFolder("proctor-task-") as held, undumpable():
        folder = held.path
        (folder / "cwd").mkdir()
        (folder / "task.py").write_bytes(source)
        request = {
            "config": config.to_dict(),
            "keep": keep,
            "stored": None if stored is None else str(stored),
            "readable": [str(place) for place in _readable(config, keep)],
            "limits": {
                "cpu_seconds": int(min(limits.seconds * config.threads, _MOST_SECONDS)) + 1,
                "memory_bytes": min(limits.memory_bytes, 2**46),
            },
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        process = _start(folder, variables=_variables(folder, config))
        try:
            yield ConfinedTask(process, config, limits=limits, budget=budget, quoting=own)
        finally:
            end_group(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                pipe.close()


def _start(folder: Path, *, variables: dict[str, str]) -> Any:
    """Start the process; not isolated (-I), which would ignore the hash seed in its variables."""
    return subprocess.Popen(  # noqa: S603 - a fixed command of our own
        [sys.executable, "-P", "-s", "-B", "-m", "judge.confinement.task_child", str(folder)],
        cwd=folder / "cwd",
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


def _variables(folder: Path, config: TaskConfig) -> dict[str, str]:
    return {
        **current_variables(),  # which decide the code paths of the numeric libraries
        **variables(folder / "cwd", threads=config.threads),
        "PYTHONHASHSEED": "0",  # the order of a set of texts is the same in each process
    }


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
