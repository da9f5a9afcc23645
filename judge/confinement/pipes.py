"""Pipes to a process that nobody trusts, and its own: a write waits no longer than a read.

I/O: the pipes.  Units: seconds of the monotonic clock.
"""

import json
import os
import select
import struct
from collections.abc import Callable

ENCODER = json.JSONEncoder(ensure_ascii=False)
MESSAGE = struct.Struct(">QQ")  # begins a message: bytes of JSON (none: no fields), of tensors
_CHUNK = 2**20  # bytes that are read or written at once
_LONGEST = 3_600.0  # s of one wait
_WORDS = 500  # characters


def ready(pipe: int, *, seconds: float, writing: bool = False) -> bool:
    """Wait until a pipe can be read or written; return False where it cannot for so long."""
    waiting = select.poll()  # select() knows none of the descriptors from 1,024 on
    waiting.register(pipe, select.POLLOUT if writing else select.POLLIN)
    return bool(waiting.poll(1_000 * min(seconds, _LONGEST)))


def receive(pipe: int, length: int) -> bytes:
    """Return that many bytes of a pipe that blocks; fewer where the other end has closed it."""
    found = bytearray()
    while len(found) < length and (chunk := os.read(pipe, min(length - len(found), _CHUNK))):
        found += chunk
    return bytes(found)


def last_words(printed: bytes) -> str:
    """Return the last line of what a process printed: of a traceback, what went wrong."""
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][-_WORDS:] if lines else "it printed nothing"


def send(pipe: int, data: bytes, *, wait: Callable[[], None] = lambda: None) -> None:
    """Write to a pipe; `wait` returns when one that does not block can be written, or raises.

    Raises BrokenPipeError where nobody reads any more.
    """
    view = memoryview(data)
    while view:
        wait()
        try:
            view = view[os.write(pipe, view[:_CHUNK]) :]
        except BlockingIOError:
            continue
