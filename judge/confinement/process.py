"""A confined process seen from outside: messages of bounded size, in bounded time.

The process gets copies of what it needs in an empty folder, no variable of our environment, and
limits of time, memory and output. While it runs, the memory and the environment of this process
are closed to others of the same user.

Trust: whatever comes back is the word of foreign code; BudgetError, WorkerError and what a reader
checks are the only ways in which it fails.
I/O: a temporary folder, one process, its pipes, the dumpable flag of this one (prctl(2)).
Units: seconds, bytes.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

from judge.confinement.budget import Budget
from judge.confinement.interpreter import variables
from judge.confinement.kernel import GET_DUMPABLE, LIBC, SET_DUMPABLE
from judge.confinement.pipes import MESSAGE, last_words, ready, send
from judge.errors import ConfinementError
from ledger.held_folder import HeldFolder
from ledger.strict_json import read_json
from monitor.dispatch import current_variables
from monitor.stored import PIECE, Spooled
from monitor.task_form import Blob

Measure = Literal[
    "limits", "unprivileged user", "own namespaces", "hidden files", "system-call filter"
]
ISOLATION: tuple[Measure, ...] = get_args(Measure)
_WHAT = {"submission": "submitted code", "task": "the task's code", "images": "images"}
_MAX_TEXT = 16 * 2**20  # bytes of one answer's JSON
_MAX_VALUES = 1_000_000  # in it: a byte of JSON can cost a hundred in Python
_IN_MEMORY = 2 * PIECE  # bytes of an answer's tensors; larger ones go into a file
_MOST_SECONDS = 30 * 24 * 3_600  # that are passed to the kernel
_CHUNK = 2**20  # bytes that are written at once
_PIPE = 2**16  # bytes that are read at once, as many as a pipe holds
_TRIED = 2**20  # bytes of a file: Python tries the folder for temporary files before it is closed


class WorkerError(Exception):
    """A confined process gave no usable answer; the words say why."""


class ForeignError(WorkerError):
    """Foreign code raised an exception; `told` is what its process says of it, whatever that is."""

    def __init__(self, told: Any) -> None:
        super().__init__("it raised an exception")
        self.told = told


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """How much a confined process may use."""

    seconds: float = 7 * 24 * 3_600.0
    cpu_seconds: float = _MOST_SECONDS
    memory_bytes: int = 32 * 2**30
    output_bytes: int = 2**20  # of what it prints
    file_bytes: int = _TRIED


class Confined:
    """A worker (judge/confinement/worker.py), which has given up its rights."""

    def __init__(self, process: Any, what: str, *, limits: ProcessLimits, budget: Budget) -> None:
        self._process, self._budget, self._most = process, budget, limits.output_bytes
        self._unread = b""  # of the pipe, but not of an answer yet
        os.set_blocking(process.stdin.fileno(), False)
        self.give(limits.seconds)
        self._printed = Printed(
            process.stderr, limit=limits.output_bytes, stop=lambda: end_group(process)
        )
        try:
            in_force = self.read()[0].get("ready", ())
        except WorkerError as error:
            raise ConfinementError(
                f"the process for {what} did not start: {error}. {last_words(self._printed.read())}"
            ) from error
        self.isolation = ", ".join(name for name in ISOLATION if name in in_force)

    def give(self, seconds: float) -> None:
        """Let it take that long from now on."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def ask(self, request: str, fields: Mapping[str, Any], blob: Blob) -> None:
        """Send a request, or tensors alone; raises WorkerError where it is not read in time."""
        text = json.dumps([request, dict(fields)]).encode() if request else b""
        pipe = self._process.stdin.fileno()
        try:
            head = MESSAGE.pack(len(text), len(blob)) + text
            for start in range(0, max(len(blob), 1), _CHUNK):
                stop = min(start + _CHUNK, len(blob))
                part = blob[start:stop] if isinstance(blob, bytes) else blob.read(start, stop)
                send(pipe, head + part, wait=lambda: self._wait(pipe, writing=True))
                head = b""
        except BrokenPipeError:
            pass  # the answer says why, or its absence

    def read(self, *, most: int = 0, spooling: bool = False) -> tuple[dict[str, Any], Blob]:
        """Return an answer with at most so many bytes of tensors, in a file where they are many.

        Raises WorkerError.
        """
        text_size, blob_size = MESSAGE.unpack(self._receive(MESSAGE.size))
        if text_size > _MAX_TEXT or blob_size > most:
            raise WorkerError("its answer is too large")
        self._budget.take(text_size + blob_size)
        text = self._receive(text_size) if text_size else b"{}"
        try:
            said = read_json(text, most=_MAX_VALUES, decoder=_DECODER)
        except ValueError as error:
            raise WorkerError("its answer is malformed") from error
        if not isinstance(said, dict):
            raise WorkerError("its answer is malformed")
        if "problem" in said:
            raise ForeignError(said["problem"])
        if blob_size <= _IN_MEMORY or not spooling:
            return said, self._receive(blob_size)
        spooled = Spooled(blob_size)
        for chunk in self._chunks(blob_size):
            spooled.write(chunk)
        return said, spooled

    def finish(self) -> bytes:
        """Let it end, or end it when its time is up; return what it printed."""
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, self._left()))
        end_group(self._process)
        return self._printed.read()

    def _receive(self, length: int) -> bytes:
        if len(self._unread) < length:
            return b"".join(self._chunks(length))
        found, self._unread = self._unread[:length], self._unread[length:]
        return found

    def _chunks(self, length: int) -> Iterator[bytes]:
        out = self._process.stdout.fileno()
        while length:
            if not self._unread:
                self._wait(out)
                self._unread = os.read(out, _PIPE)
            if not self._unread:
                raise WorkerError(self._how())
            chunk, self._unread = self._unread[:length], self._unread[length:]
            length -= len(chunk)
            yield chunk

    def _left(self) -> float:
        return min(self._deadline - time.monotonic(), self._budget.seconds_left())

    def _wait(self, pipe: int, *, writing: bool = False) -> None:
        """Wait until a pipe can be read or written; raises WorkerError at the deadline."""
        while (left := self._left()) > 0:
            if ready(pipe, seconds=left, writing=writing):
                return
        raise WorkerError(f"it ran for more than {self._seconds:g} seconds")

    def _how(self) -> str:
        try:
            code = self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            return "its process closed the pipe"
        if self._printed.exceeded:
            return f"it printed more than {self._most:,} bytes"
        return f"it was killed by signal {-code}" if code < 0 else f"it exited with status {code}"


class Printed:
    """What a process prints, kept up to a limit, at which it is stopped."""

    def __init__(self, pipe: IO[bytes], *, limit: int, stop: Any) -> None:
        self._pipe, self._limit, self._stop = pipe, limit, stop
        self._kept = bytearray()
        self.exceeded = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def read(self) -> bytes:
        """Return what was printed, when the process has ended."""
        self._thread.join(timeout=5.0)  # a process that escaped may hold the pipe open
        return bytes(self._kept)

    def _follow(self) -> None:
        with self._pipe, suppress(OSError, ValueError):
            while chunk := os.read(self._pipe.fileno(), 65_536):
                self._kept += chunk[: self._limit - len(self._kept)]
                if len(self._kept) >= self._limit:
                    self.exceeded = True
                    self._stop()
                    break


@contextmanager
def confined(
    kind: Literal["submission", "task", "images"],
    files: Mapping[str, bytes],
    *,
    limits: ProcessLimits,
    budget: Budget | None = None,
    name: str = "",
    readable: Iterable[Path] = (),
    threads: int = 1,
    **told: Any,
) -> Iterator[Confined]:
    """Yield a worker that has `files` and what it is `told`, and ends with the block.

    `name` is that of the file whose lines its exceptions name, `readable` what it may read besides
    Python and its libraries. Without a `budget` it has all time and bytes of its limits. Raises
    ConfinementError.
    """
    with HeldFolder(f"proctor-{kind}-") as held, undumpable():
        folder = held.path
        (folder / "cwd").mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        request = {
            **told,
            "kind": kind,
            "name": name,
            "readable": [str(place) for place in readable],
            "limits": {
                "cpu_seconds": int(min(limits.cpu_seconds, _MOST_SECONDS)),
                "memory_bytes": min(limits.memory_bytes, 2**46),
                "file_bytes": limits.file_bytes,
            },
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        environment = {
            **current_variables(),  # which decide the code paths of the numeric libraries
            **variables(folder / "cwd", threads=threads),
            "PYTHONHASHSEED": "0",  # the order of a set of texts is the same in each process
        }
        process = _start(folder, environment)
        try:
            yield Confined(process, _WHAT[kind], limits=limits, budget=budget or Budget())
        finally:
            end_group(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                pipe.close()


def _start(folder: Path, environment: dict[str, str]) -> Any:
    """Start the process; not isolated (-I), which would ignore the hash seed in its variables."""
    return subprocess.Popen(  # noqa: S603 - a fixed command of our own
        [sys.executable, "-P", "-s", "-B", "-m", "judge.confinement.worker", str(folder)],
        cwd=folder / "cwd",
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


@contextmanager
def undumpable() -> Iterator[None]:
    """Close /proc/PID/mem, environ and the like of this process to all but root, for a while."""
    if platform.system() != "Linux":
        yield
        return
    before = LIBC.prctl(GET_DUMPABLE, 0, 0, 0, 0)
    LIBC.prctl(SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        LIBC.prctl(SET_DUMPABLE, before, 0, 0, 0)


def end_group(process: Any) -> None:
    """End a process and whatever is in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()


def _whole(digits: str) -> int:
    """Return a whole number that a ledger could hold."""
    if len(digits) > 18:
        raise ValueError("a number of more than 18 digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)
