"""Where jobs are carried out: processes of this machine, or workers of a Ray cluster.

A job trains one run. An executor yields each job with its outcome, in any order. A job whose
process or worker was lost is given another run by `again`, and is carried out again a bounded
number of times.

I/O: starts processes.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID

from eventsourcing.application import AggregateNotFoundError

from aggregates.run import OWN_ENDS, Run
from ledger.application import LedgerApplication
from ledger.errors import LedgerError
from monitor.config import RunConfig, TaskConfig
from policies.asking.settings import ModelSettings
from proctor.home import Home
from proctor.runs.policies import PolicyChoice

__all__ = [
    "DIED",
    "Executor",
    "J",
    "Job",
    "Kind",
    "Local",
    "Outcome",
    "choice_of",
    "failed",
    "is_done",
    "is_of_machine",
    "open_executor",
    "pool",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EROFS)

Kind = Literal["local", "ray"]
DIED = "the process that trained it died"


class Job(Protocol):
    """A run to be trained, with what that needs."""

    @property
    def home(self) -> Path:
        """The home of the ledger's owner."""

    @property
    def run(self) -> str:
        """The run's id."""

    @property
    def config(self) -> RunConfig | TaskConfig:
        """What the run is to record as its configuration."""

    def train(self, home: Home, log: LedgerApplication, /) -> None:
        """Train the run, unless that was done before."""

    def to_dict(self) -> dict[str, object]:
        """Return all but the home in plain values; see proctor/runs/remote.py."""


J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its audit, if it is judged, or what went wrong."""

    audit: str | None
    problem: str | None
    stopped: str | None = None  # why the job could not be carried out, whoever decides


def is_done(log: LedgerApplication, run_id: str) -> bool:
    """Return whether a run ended by itself."""
    try:
        run: Run = log.repository.get(UUID(run_id))
    except AggregateNotFoundError:
        return False
    return run.end_reason in OWN_ENDS


def choice_of(value: Mapping[str, Any]) -> PolicyChoice:
    """Return the choice of a policy that to_dict() has described."""
    settings = {key: each for key, each in value.items() if key != "name"}
    return PolicyChoice(value["name"], ModelSettings.from_dict(settings) if settings else None)


class Executor(Protocol):
    """Carries out jobs."""

    def carry_out(
        self, jobs: Sequence[J], work: Callable[[J], Outcome], again: Callable[[J], J]
    ) -> Generator[tuple[J, Outcome]]:
        """Yield each job with its outcome; `again` gives a job another run if its own was cut off.

        Closing the generator ends what is under way.
        """


@contextmanager
def open_executor(
    kind: Kind, home: Home, log: LedgerApplication, *, workers: int | None
) -> Iterator[Executor]:
    """Yield the executor of a kind; raises ProctorError where there is no cluster."""
    if kind == "local":
        yield Local(workers or os.cpu_count() or 1)
        return
    from proctor.runs.ray_cluster import joined  # noqa: PLC0415 - ray is an extra

    with joined(home, log, workers=workers) as executor:
        yield executor


class Local:
    """Processes of this machine, one for each job at a time."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def carry_out(
        self, jobs: Sequence[J], work: Callable[[J], Outcome], again: Callable[[J], J]
    ) -> Generator[tuple[J, Outcome]]:
        """Yield each job with its outcome; one whose process dies fails alone.

        When a process of several dies, nobody knows which job it was: each job that is left then
        has a process of its own, and another run if its run was cut off.
        """
        left = list(jobs)
        try:
            for job, outcome in _in_pool(jobs, work, self._workers):
                left.remove(job)
                yield job, outcome
        except BrokenProcessPool:
            for job in map(again, left):
                try:
                    yield from _in_pool([job], work, 1)
                except BrokenProcessPool:
                    yield job, Outcome(None, DIED)


def _in_pool(
    jobs: Sequence[J], work: Callable[[J], Outcome], workers: int
) -> Iterator[tuple[J, Outcome]]:
    if not jobs:
        return
    with pool(min(workers, len(jobs))) as processes:
        waiting = {processes.submit(work, job): job for job in jobs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that end with this one; what has not begun by the end is cancelled."""
    processes = ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    try:
        yield processes
    finally:
        processes.shutdown(wait=True, cancel_futures=True)


def _end_with_parent(parent: int) -> None:
    """End this process when the one that started it is killed: nobody would take its results."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a job that raised this."""
    what = f"{type(error).__name__}: {error}"[:500]
    return Outcome(None, None, stopped=what) if is_of_machine(error) else Outcome(None, what)


def is_of_machine(error: BaseException) -> bool:
    """Return whether an error says nothing of a policy: a full disk, a ledger out of reach."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, LedgerError | MemoryError):
            return True
        if isinstance(found, OSError) and found.errno in _FULL:
            return True
        found = found.__cause__
    return False
