"""How all benchmarks measure time and memory."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass


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
