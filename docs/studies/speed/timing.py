"""How all benchmarks measure time and memory, in turns or in processes of their own."""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from proctor.errors import EXIT_HELD, ProctorError

# A small process starts the command and waits for it: in Linux a process's peak is never below what
# the process that started it had. What is used by processes that the command starts counts as well.
_STARTER = """
import json, os, sys, time
began = time.perf_counter()
quiet = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
started = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[quiet])
_, status, used = os.wait4(started, 0)
taken = (time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
print(json.dumps([os.waitstatus_to_exitcode(status), *taken]))
"""
_CHILD = """
import json, sys
path, work, *words = sys.argv[1:]
sys.path[:] = json.loads(path)
from importlib import import_module
module, _, name = work.partition(":")
answer = getattr(import_module(module), name)(*words)
if answer is not None:
    print(json.dumps(answer))
"""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a measurement ran under."""

    machine: str
    rounds: int
    load: list[float]  # processes that wanted to run, before and after, mean of a minute

    @classmethod
    def since(cls, load: float, *, rounds: int) -> dict[str, Any]:
        """Return the fields, at the end of a measurement before which the load was this one."""
        return {"machine": machine(), "rounds": rounds, "load": [load, os.getloadavg()[0]]}

    def conditions(self) -> str:
        """Return them as titles of tables say them."""
        before, after = self.load
        return (
            f"interleaved rounds: {self.rounds}, median; {self.machine}; load {before:.1f} before "
            f"and {after:.1f} after"
        )


@dataclass(frozen=True)
class Spread:
    """A figure of all rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        """Return the spread of the rounds' figures."""
        return cls(median(figures), min(figures), max(figures))

    def shown(self, digits: int) -> str:
        """Return the figure with so many decimals, and its range."""
        least, most = f"{self.least:.{digits}f}", f"{self.most:.{digits}f}"
        return f"{self.median:.{digits}f} ({least} to {most})"


@dataclass(frozen=True)
class Timed:
    """Time and memory of a piece of work."""

    wall: float  # s
    processor: float  # s, of this process and of its children that have ended
    peak_mib: float  # memory of this process and of its largest child together


def timed(work: Callable[[], object]) -> Timed:
    """Do the work and return what it took."""
    wall, processor = time.perf_counter(), _processor()
    work()
    wall, processor = time.perf_counter() - wall, _processor() - processor
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = sum(resource.getrusage(who).ru_maxrss for who in whose) / 1_024
    return Timed(wall, processor, peak)


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def in_turns(
    contests: Sequence[Sequence[Callable[[], T]]], *, rounds: int
) -> list[list[tuple[T, ...]]]:
    """Return for each contest what its contestants came to, round by round.

    All contests have their turn in each round, so that what disturbs the machine for a while
    disturbs all alike; in every second round the contestants take turns backwards.
    """
    taken: list[list[tuple[T, ...]]] = [[] for _ in contests]
    for number in range(rounds):
        step = -1 if number % 2 else 1
        for contest, found in zip(contests, taken, strict=True):
            found.append(tuple([each() for each in contest[::step]][::step]))
    return taken


def child(work: str, *words: str) -> list[str]:
    """Return the command that calls "module:function", and prints what it returns as JSON."""
    return [sys.executable, "-c", _CHILD, json.dumps(sys.path), work, *words]


def in_process(work: str, *words: str, **variables: str) -> Any:
    """Return what a function answers in a process of its own, with these environment variables."""
    done = subprocess.run(  # noqa: S603 - this program's own words
        child(work, *words),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    if done.returncode:
        raise ProctorError(f"the measurement failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def asked(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path = Path(),
    codes: Sequence[int] = (EXIT_HELD,),
) -> Timed:
    """Run this interpreter with these words; the peak is that of its largest process.

    Raises ProctorError for a command that exits with another code.
    """
    done = subprocess.run(  # noqa: S603 - this program's own words
        [sys.executable, "-I", "-S", "-c", _STARTER, sys.executable, *words],
        cwd=folder,
        env={**environment},
        capture_output=True,
        text=True,
        check=False,
    )
    code, *taken = json.loads(done.stdout) if not done.returncode else (done.returncode,)
    if code not in codes:
        told = done.stderr.strip()[-500:]
        raise ProctorError(f"{' '.join(words)} ended with exit code {code}: {told}")
    return Timed(*taken)


def machine() -> str:
    """Return what a measurement ran on: the processor, its threads, Python."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    names = [line.partition(":")[2].strip() for line in told.splitlines() if "model name" in line]
    name = names[0] if names else platform.machine()
    return f"{name}, {os.cpu_count()} threads, Python {platform.python_version()}"
