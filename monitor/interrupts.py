"""Ctrl-C and SIGTERM, held back while something must not be split.

I/O: the process's handlers of SIGINT and SIGTERM.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)  # what asks a process to end, and lets it close things


@contextmanager
def held() -> Iterator[list[int]]:
    """Note each such signal of the block, by its number, and go on: see answer().

    Nothing is noted in other threads than the main one: no signal ever interrupts them.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.getsignal(number) for number in STOPS}
    for number, handler in before.items():
        if handler is not None:  # None: set by a library in C, and could not be set again
            signal.signal(number, lambda which, _: came.append(which))
    try:
        yield came
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def answer(came: Sequence[int]) -> None:
    """Send this process what was held back: SIGTERM if that was among it."""
    if came:
        signal.raise_signal(signal.SIGTERM if signal.SIGTERM in came else signal.SIGINT)
