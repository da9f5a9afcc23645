"""Runs a candidate's command in isolation: limited reads and writes, no network, no traces.

A supervisor of ours (judge/confinement/supervisor.py) starts the command in namespaces of
its own and ends everything that it started. The command sees Python, the system's libraries and
programs, its tree and what else is named, and writes to its scratch folder only. Where the kernel
lacks what is needed, nothing is run at all.

Source: docs/reference/gauntlet.md, "How a candidate is run".
Trust: what comes back is the candidate's word, bounded in size and time.
I/O: processes; folders beside `scratch` that are gone afterwards.  Units: seconds, bytes.
"""

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from types import TracebackType
from typing import Any, Self, TypeVar, get_args

import msgspec

from judge.confinement.interpreter import PYTHON, Interpreter
from judge.confinement.messages import (
    Failed,
    Finished,
    Measure,
    Request,
    ResourceLimits,
    Started,
    Status,
)
from judge.confinement.nursery import supervisor
from judge.confinement.pipes import last_words, ready, send
from judge.errors import ConfinementError

ISOLATION: tuple[Measure, ...] = get_args(Measure)
T = TypeVar("T", Started, Finished)
NEEDED: tuple[Measure, ...] = ("hidden files", "no network", "no processes left")
_STARTING = 30.0  # s for the supervisor, beyond the candidate's own time
_ENDING = 15.0  # s for the supervisor to end what there is
_CHUNK = 65_536
_LEAST_DISK = 2**24  # bytes; with less, a candidate would be blamed for the machine


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, and what it printed."""

    status: Status
    code: int  # exit status, or the signal's number
    output: bytes
    errors: bytes
    isolation: tuple[str, ...]  # of ISOLATION, what was in force
    leftovers: int  # processes that had to be ended
    seconds: float
    cpu_seconds: float  # of all its processes
    limits: ResourceLimits

    @property
    def words(self) -> str:
        """How it ended, in words of ours."""
        most = self.limits
        return {
            "exited": f"it exited with status {self.code}",
            "signal": f"it was killed by signal {self.code}",
            "timeout": f"it ran for more than {most.seconds:g} seconds",
            "output": f"it printed more than {most.output_bytes:,} bytes",
            "memory": f"it used more than {most.memory_bytes:,} bytes of memory",
            "processes": f"it started more than {most.processes} processes",
            "disk": f"it wrote more than {most.disk_bytes:,} bytes or {most.files} files",
            "stopped": "it did not exit when no more requests were sent",
        }[self.status]


def run(
    argv: Sequence[str],
    *,
    tree: Path,
    scratch: Path,
    limits: ResourceLimits,
    stdin: bytes = b"",
    readable: Iterable[Path] = (),
    environment: Path | None = None,
) -> Ended:
    """Run a command to its end; `{python}` in it is the interpreter that it is given.

    That is a virtual environment's where one is given, and ours elsewhere.

    Raises ConfinementError where it cannot be confined, and for nothing that the command does.
    """
    with Supervised(
        argv,
        tree=tree,
        scratch=scratch,
        limits=limits,
        readable=readable,
        environment=environment,
    ) as supervised:
        supervised.say(stdin)
        supervised.say_no_more()
        return supervised.end()


def discard(folder: Path) -> None:
    """Remove a folder that a candidate wrote to, however deep it is and whatever its modes are."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    for command in (["/bin/chmod", "-R", "u+rwX"], ["/bin/rm", "-rf"]):
        subprocess.run([*command, "--", folder], capture_output=True, check=False)  # noqa: S603 - two fixed commands
    if folder.exists():
        raise ConfinementError(
            f"{folder}: files left by a candidate cannot be removed; remove them by hand"
        )


@contextmanager
def discarded(below: Path) -> Iterator[Path]:
    """Give a new folder for a candidate to write to, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(dir=below))
    try:
        yield folder
    finally:
        discard(folder)


class Supervised:
    """The supervisor's process, and the four pipes to it and to the command.

    The block ends the command, if it has not ended before.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        tree: Path,
        scratch: Path,
        limits: ResourceLimits,
        readable: Iterable[Path] = (),
        environment: Path | None = None,
    ) -> None:
        self._environment = environment
        self._argv, self._tree, self._scratch = argv, tree.resolve(), scratch.resolve()
        self._readable = tuple(path.resolve() for path in readable)
        half = disk_usage(self._scratch).free // 2  # the rest of the disk is others'
        least = min(_LEAST_DISK, limits.disk_bytes)
        if half < least:
            raise ConfinementError(
                f"{self._scratch}: the disk has {2 * half:,} free bytes, and a candidate needs "
                f"{2 * least:,}; free some"
            )
        self._limits = msgspec.structs.replace(limits, disk_bytes=min(limits.disk_bytes, half))
        self.isolation: tuple[str, ...] = ()
        self._kept = {"output": bytearray(), "errors": bytearray(), "report": bytearray()}
        self._read = 0  # bytes of the output that were returned as lines
        self._exceeded = False
        self._selector = selectors.DefaultSelector()
        self._process = -1  # its descriptor; -1: it has not begun, or is over
        self._control = -1
        self._input: int | None = None
        self.ended: Ended | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="confined-", dir=self._scratch.parent))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        interpreter = Interpreter.make(
            self._folder / "python", tree=self._tree, environment=self._environment
        )
        (self._folder / "root").mkdir()
        limits = self._limits
        control, self._control = os.pipe()
        report, reported = os.pipe()
        request = Request(
            argv=tuple(part.replace(PYTHON, str(interpreter.executable)) for part in self._argv),
            environment=interpreter.environment(tree=self._tree, scratch=self._scratch),
            root=str(self._folder / "root"),
            scratch=str(self._scratch),
            tree=str(self._tree),
            readable=tuple(map(str, (*interpreter.places, *self._readable))),
            listed=tuple(map(str, interpreter.listed)),
            needed=NEEDED,
            limits=limits,
        )
        self._begun = time.monotonic()
        theirs, self._input = os.pipe()
        output, printed = os.pipe()
        errors, failed = os.pipe()
        passed = (theirs, printed, failed, control, reported)
        for name, descriptor in (("output", output), ("errors", errors), ("report", report)):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, name)
        try:
            self._process = supervisor(passed)
        finally:
            for descriptor in passed:
                os.close(descriptor)
        os.set_blocking(self._input, False)
        self._deadline = self._begun + limits.seconds + limits.leaving + _STARTING
        with suppress(BrokenPipeError):  # then there is no report, which says so
            send(self._control, msgspec.json.encode(request) + b"\n")
        self._pump(until=lambda: b"\n" in self._kept["report"])
        self._read_start()

    def _read_start(self) -> None:
        first, found, _ = bytes(self._kept["report"]).partition(b"\n")
        if not found:
            words = last_words(bytes(self._kept["errors"]))
            raise ConfinementError(f"the process that confines candidates did not start: {words}")
        in_force = _told(first, Started).isolation
        self.isolation = tuple(name for name in ISOLATION if name in in_force)

    def say(self, data: bytes) -> None:
        """Write to the command's input; whether it is read is its own affair."""
        view = memoryview(data)
        while view and self._input is not None and not self._over():
            try:
                view = view[os.write(self._input, view[:_CHUNK]) :]
            except BlockingIOError:
                self._wait(0.02)
            except BrokenPipeError:
                self.say_no_more()

    def say_no_more(self) -> None:
        """Close the command's input."""
        if self._input is not None:
            os.close(self._input)
            self._input = None

    def line(self) -> bytes | None:
        """Return the next line of output without its end; None where there is no more."""
        kept = self._kept["output"]
        self._pump(until=lambda: kept.find(b"\n", self._read) >= 0)
        end = kept.find(b"\n", self._read)
        if end < 0:
            return None
        found = bytes(kept[self._read : end])
        self._read = end + 1
        return found

    def unread(self) -> bool:
        """Tell whether the command has printed what nobody has asked for."""
        self._wait(0)
        return len(self._kept["output"]) > self._read

    def end(self, *, grace: float | None = None) -> Ended:
        """Wait for the end, or bring it about after a while; return how it came."""
        if self.ended is None:
            if grace is not None:
                self._pump(until=self._over, seconds=grace)
                if not self._over():
                    self._stop()
            self._pump(until=self._over)
            self.kill()
            self.ended = self._read_end()
        return self.ended

    def _read_end(self) -> Ended:
        lines = bytes(self._kept["report"]).splitlines()
        if len(lines) < 2:
            raise ConfinementError(
                "the process that confines candidates was killed; is there enough memory?"
            )
        told = _told(lines[1], Finished)
        return Ended(
            status="output" if self._exceeded else told.status,
            code=told.code,
            output=bytes(self._kept["output"]),
            errors=bytes(self._kept["errors"]),
            isolation=self.isolation,
            leftovers=told.leftovers,
            seconds=time.monotonic() - self._begun,
            cpu_seconds=told.cpu_seconds,
            limits=self._limits,
        )

    def kill(self) -> None:
        """End the supervisor, and with it all that it has started."""
        self._stop()
        if self._process < 0:
            return
        if not ready(self._process, seconds=_ENDING):  # with it, its namespace ends
            with suppress(ProcessLookupError):  # at this moment it has ended
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            ready(self._process, seconds=_ENDING)
        os.close(self._process)
        self._process = -1

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.say_no_more()
        self.kill()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        discard(self._folder)

    def _stop(self) -> None:
        """Have the supervisor end the command: it watches this pipe."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    def _over(self) -> bool:
        return not self._selector.get_map()

    def _pump(self, *, until: Any, seconds: float | None = None) -> None:
        """Take in what comes until a condition holds, nothing can come any more, or time is up."""
        deadline = self._deadline if seconds is None else time.monotonic() + seconds
        while not until() and not self._over():
            left = deadline - time.monotonic()
            if left <= 0:
                if seconds is None:
                    self.kill()
                    self._wait(0)
                break
            self._wait(left)

    def _wait(self, seconds: float) -> None:
        """Take in what comes within a while."""
        for key, _ in self._selector.select(seconds):
            chunk = os.read(key.fd, _CHUNK)
            kept = self._kept[key.data]
            room = self._limits.output_bytes - len(kept)
            if key.data != "report" and len(chunk) > room:
                self._exceeded = True
                self._stop()
                chunk = chunk[:room] or b""
                kept += chunk
                continue
            kept += chunk
            if not chunk:
                self._selector.unregister(key.fd)
                os.close(key.fd)


def _told(line: bytes, kind: type[T]) -> T:
    told = msgspec.json.decode(line, type=Started | Finished | Failed)
    if isinstance(told, Failed):
        raise ConfinementError(told.problem)
    assert isinstance(told, kind)
    return told
