"""Where `proctor` begins: Ctrl-C ends it with one line, also while Python imports the rest.

SIGTERM does the same once the command has begun. An import that is interrupted ends in a traceback,
or in an error of a library written in C.

I/O: the process's handlers of SIGINT and SIGTERM; standard error.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from proctor.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated

__all__ = ["main", "noted", "nothing_begun"]

_STOPS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the command line."""
    with nothing_begun():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see proctor/runs/process.py
        from proctor.cli.main import main as run  # noqa: PLC0415 - this is what takes long
    try:
        run()
    except SystemExit as end:
        if end.code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
            _leave(int(end.code))
        raise


def _leave(code: int) -> None:
    """End without taking Python apart, which takes seconds where torch is loaded."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)  # another Ctrl-C would end in a traceback
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(code)


@contextmanager
def nothing_begun() -> Iterator[None]:
    """Let Ctrl-C end the process at once: nothing is open, so nothing has to be closed."""
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None) or not _is_main():  # as for work in the background
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def noted() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at Ctrl-C and Terminated at SIGTERM, and note the signal's number.

    A library written in C may make another error of them.
    """
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _STOPS} if _is_main() else {}
    # Ignored, as Ctrl-C is for work in the background, or answered by who has started this.
    ours = [n for n, was in before.items() if was in (signal.SIG_DFL, signal.default_int_handler)]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield came
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)
