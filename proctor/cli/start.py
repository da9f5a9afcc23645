"""Where `proctor` begins: Ctrl-C and SIGTERM end it with one line, also while Python imports.

An import that is interrupted ends in a traceback, or in an error of a library written in C.

I/O: the process's handlers of SIGINT and SIGTERM, its environment; standard error.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeGuard

from proctor.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated

# Threads that wait for work sleep after some 10 us: those that spin take the processor from those
# that have some, and those that sleep at once take 25 us to wake. No value depends on it. OpenMP
# reads it as torch is loaded, here or in a process started from here.
_WAITING = ("GOMP_SPINCOUNT", "1000")
_STOPS = (signal.SIGINT, signal.SIGTERM)
_DEFAULT = (signal.SIG_DFL, signal.default_int_handler)


def main() -> None:
    """Run the command line."""
    if "OMP_WAIT_POLICY" not in os.environ:  # the user has said how threads wait
        os.environ.setdefault(*_WAITING)
    with nothing_begun():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see proctor/runs/process.py
        from proctor.cli.main import main as run  # noqa: PLC0415 - this is what takes long
    try:
        run()
    except SystemExit as end:
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)  # all is told: the rest is Python's own end
        if end.code in (EXIT_INTERRUPTED, EXIT_TERMINATED) or _is_heavy(end.code):
            _leave(int(end.code))
        raise
    except KeyboardInterrupt:  # between the last word of the command and its end
        _end(signal.SIGINT)


def _is_heavy(code: object) -> TypeGuard[int]:
    """Return whether a command that is done has torch to unload, and nothing to wait for."""
    working = [each for each in threading.enumerate() if not each.daemon]
    return isinstance(code, int) and "torch" in sys.modules and len(working) == 1


def _leave(code: int) -> None:
    """End without taking Python apart, which takes seconds where torch is loaded."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    os._exit(code)


@contextmanager
def nothing_begun() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the process at once: nothing is open that has to be closed."""
    with _answered(_end, replaces=lambda before: before not in (signal.SIG_IGN, None)):
        yield


@contextmanager
def noted() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at Ctrl-C and Terminated at SIGTERM, and note the signal's number.

    A library written in C may make another error of them.
    """
    came: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise Terminated if signal.SIGTERM in came else KeyboardInterrupt

    with _answered(stop, replaces=lambda before: before in _DEFAULT):
        yield came


@contextmanager
def _answered(
    answer: Callable[[int, FrameType | None], None], *, replaces: Callable[[object], bool]
) -> Iterator[None]:
    """Answer those signals in this way whose handler it replaces.

    One that is ignored stays so: Ctrl-C is not for work in the background.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _STOPS} if is_main else {}
    ours = [number for number, was in before.items() if replaces(was)]
    for number in ours:
        signal.signal(number, answer)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _end(number: int, _: FrameType | None = None) -> None:
    terminated = number == signal.SIGTERM
    os.write(2, b"terminated\n" if terminated else b"interrupted\n")
    os._exit(EXIT_TERMINATED if terminated else EXIT_INTERRUPTED)
