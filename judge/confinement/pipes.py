"""Pipes to a process that nobody trusts: a write waits no longer than a read.

I/O: the pipes.  Units: seconds of the monotonic clock.
"""

import os
import select
from collections.abc import Callable

__all__ = ["ready", "send"]

_CHUNK = 2**20  # bytes that are written at once
_LONGEST = 3_600.0  # s of one wait


def ready(pipe: int, *, seconds: float, writing: bool = False) -> bool:
    """Wait until a pipe can be read or written; return False where it cannot for so long."""
    own = [pipe]
    found = select.select(
        [] if writing else own, own if writing else [], [], min(seconds, _LONGEST)
    )
    return any(found)


def send(pipe: int, data: bytes, *, wait: Callable[[], None]) -> None:
    """Write to a pipe that does not block; `wait` returns when it can be written, or raises.

    Raises BrokenPipeError where nobody reads any more.
    """
    view = memoryview(data)
    while view:
        wait()
        try:
            view = view[os.write(pipe, view[:_CHUNK]) :]
        except BlockingIOError:
            continue
