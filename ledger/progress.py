"""How far long work has come, told to whoever listens: nobody, unless a command shows it.

Work tells this without knowing who started it, so that no function hands a listener on. What other
processes do is not heard.

I/O: none.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, int, int | None], None]
_heard: tuple[int, Listener] | None = None  # the process that listens, and how


def advanced(what: str, done: int, total: int | None = None) -> None:
    """Say how much of something is done; without a total, the one that was said last holds."""
    if _heard is not None and _heard[0] == os.getpid():
        _heard[1](what, done, total)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Let a listener, or nobody, hear what this process does meanwhile."""
    global _heard  # noqa: PLW0603 - one terminal, one listener
    before = _heard
    _heard = None if listener is None else (os.getpid(), listener)
    try:
        yield
    finally:
        _heard = before
