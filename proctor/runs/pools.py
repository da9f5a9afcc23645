"""Processes of this machine that share work, and end when the one that started them ends.

I/O: starts processes; signals.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from monitor.interrupts import STOPS, answer, held
from proctor.errors import EXIT_TERMINATED

_PATIENCE = 2.0  # s that an interrupted process has to close its run
T = TypeVar("T")


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that end with this one.

    What has not begun by the end is cancelled. After Ctrl-C, SIGTERM or an error here, what is
    under way is interrupted as well, so that runs are closed, and killed if that takes long.
    """
    processes = _Processes(
        workers,
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(),),
    )
    try:
        yield processes
    except BaseException:
        with held():  # another Ctrl-C changes nothing: this does not take long
            killing = _interrupt(active_children())
            try:
                processes.shutdown(wait=True, cancel_futures=True)
            finally:
                killing.cancel()
        raise
    processes.shutdown(wait=True, cancel_futures=True)


class _Processes(ProcessPoolExecutor):
    """Processes that an interrupt does not reach before they can answer it: see _begin()."""

    def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        """Submit work; this may start a process, which inherits what is blocked."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            with held() as came:  # the signal may reach a thread that blocks nothing
                begun = super().submit(_carried_out, work, *given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        answer(came)
        return begun


def _interrupt(children: Sequence[BaseProcess]) -> threading.Timer:
    """Tell processes what Ctrl-C tells them; return what kills those that go on all the same."""

    def kill() -> None:
        for child in children:
            with suppress(ValueError):  # it has ended, and was closed
                child.kill()

    for child in children:
        with suppress(ProcessLookupError):
            if child.pid is not None:
                os.kill(child.pid, signal.SIGINT)
    killing = threading.Timer(_PATIENCE, kill)
    killing.daemon = True
    killing.start()
    return killing


class _Work:
    """What this process of a pool is about."""

    under_way = False
    interrupted = False
    ending = False


def _begin(parent: int) -> None:
    """Prepare a process of a pool.

    It ends when the one that started it is killed: nobody would take its results. An interrupt
    ends the work that is under way, once; and work that would begin later. SIGTERM ends that work
    and then the process.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    def interrupted(number: int, _: object) -> None:
        if number == signal.SIGTERM:
            _Work.ending = True
            if not _Work.under_way:
                os._exit(EXIT_TERMINATED)
        first, _Work.interrupted = not _Work.interrupted, True
        if first and _Work.under_way:
            raise KeyboardInterrupt

    threading.Thread(target=watch, daemon=True).start()
    for number in STOPS:
        signal.signal(number, interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def _carried_out(work: Callable[..., T], /, *given: Any, **named: Any) -> T:
    _Work.under_way = True
    try:
        if _Work.interrupted:
            raise KeyboardInterrupt
        return work(*given, **named)
    finally:
        _Work.under_way = False
        if _Work.ending:
            os._exit(EXIT_TERMINATED)
