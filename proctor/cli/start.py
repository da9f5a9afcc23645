"""Where `proctor` begins: Ctrl-C ends it with one line, also while Python imports the rest.

An import that is interrupted ends in a traceback, or in an error of a library written in C.

I/O: the process's handler of SIGINT; standard error.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from proctor.errors import EXIT_INTERRUPTED

__all__ = ["main", "noted", "nothing_begun"]


def main() -> None:
    """Run the command line."""
    with nothing_begun():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see proctor/runs/process.py
        from proctor.cli.main import main as run  # noqa: PLC0415 - this is what takes long
    try:
        run()
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            _leave()
        raise


def _leave() -> None:
    """End without taking Python apart, which takes seconds where torch is loaded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C would end in a traceback
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(EXIT_INTERRUPTED)


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
    """Note each Ctrl-C: a library written in C may make another error of the KeyboardInterrupt."""
    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or not _is_main():
        yield came
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)
