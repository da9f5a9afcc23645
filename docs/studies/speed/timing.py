"""How all benchmarks measure time and memory."""

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
        raise ProctorError(f"{' '.join(words)} failed: {done.stderr.strip()[-500:]}")
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
