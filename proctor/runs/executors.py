"""Where jobs are carried out: here, in processes of this machine, or by workers of a Ray cluster.

A job trains one run. An executor yields each job with its outcome, in any order. A job whose
process or worker was lost is given another run by `again`, and is carried out again a bounded
number of times.

I/O: starts processes.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from ledger.application import LedgerApplication
from ledger.errors import LedgerError
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.jobs import Job
from proctor.runs.policies import HUMAN, PolicyChoice
from proctor.runs.pools import pool
from proctor.runs.training import SILENT, Watching

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EROFS)

Kind = Literal["local", "ray"]
DIED = "the process that trained it died"


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its audit, if it is judged, or what went wrong."""

    audit: str | None
    problem: str | None
    stopped: str | None = None  # why the job could not be carried out, whoever decides


class Executor(Protocol):
    """Carries out jobs."""

    def carry_out(
        self, jobs: Sequence[Job], work: Callable[[Job], Outcome], again: Callable[[Job], Job]
    ) -> Generator[tuple[Job, Outcome]]:
        """Yield each job with its outcome; `again` gives a job another run if its own was cut off.

        Closing the generator ends what is under way.
        """


@contextmanager
def open_executor(
    kind: Kind,
    home: Home,
    log: LedgerApplication,
    *,
    workers: int | None = None,
    watching: Watching | None = None,
    choices: Sequence[PolicyChoice] = (),
) -> Iterator[Executor]:
    """Yield the executor of a kind; raises ProctorError where there is no cluster.

    With somebody `watching`, this machine carries out one job after the other in this process.
    `choices` are the policies that will decide: a person decides here.
    """
    if kind == "local":
        yield Local(workers or os.cpu_count() or 1) if watching is None else Here(log, watching)
        return
    if HUMAN in [choice.name for choice in choices]:
        raise ProctorError("--executor ray: the policy human asks at this terminal; leave it out")
    from proctor.runs.ray_cluster import joined  # noqa: PLC0415 - ray is an extra

    with joined(home, log, workers=workers, watching=watching or SILENT) as executor:
        yield executor


def train_only(job: Job) -> Outcome:
    """Train a job's run in this process; nothing is raised."""
    home = Home(job.home)
    try:
        with home.open_log() as log:
            job.train(home, log)
    except Exception as error:  # the command says what it is
        return failed(error)
    return Outcome(None, None)


def trained(
    executor: Executor,
    jobs: Sequence[Job],
    again: Callable[[Job], Job],
    *,
    what: str,
    hint: str = "",
) -> Generator[Job]:
    """Yield each job when its run is trained; raises ProctorError for the first that fails."""
    with closing(executor.carry_out(jobs, train_only, again)) as done:
        for job, outcome in done:
            if problem := outcome.stopped or outcome.problem:
                raise ProctorError(f"{what} failed: {problem}{hint}")
            yield job


@dataclass(frozen=True)
class Here:
    """This process, one job after the other; what a job raises is raised."""

    log: LedgerApplication
    watching: Watching

    def carry_out(
        self,
        jobs: Sequence[Job],
        work: Callable[[Job], Outcome],
        again: Callable[[Job], Job],  # noqa: ARG002 - who loses this process loses the command
    ) -> Generator[tuple[Job, Outcome]]:
        """Yield each job when its run is trained; other work than that is for other processes."""
        assert work is train_only, "what else there is to do, the caller does"
        for job in jobs:
            job.train(Home(job.home), self.log, self.watching)
            yield job, Outcome(None, None)


@dataclass(frozen=True)
class Local:
    """Processes of this machine, one for each job at a time."""

    workers: int

    def carry_out(
        self, jobs: Sequence[Job], work: Callable[[Job], Outcome], again: Callable[[Job], Job]
    ) -> Generator[tuple[Job, Outcome]]:
        """Yield each job with its outcome; one whose process dies fails alone.

        When a process of several dies, nobody knows which job it was: each job that is left then
        has a process of its own, and another run if its run was cut off.
        """
        left = list(jobs)
        try:
            for job, outcome in _in_pool(jobs, work, self.workers):
                left.remove(job)
                yield job, outcome
        except BrokenProcessPool:
            for job in map(again, left):
                try:
                    yield from _in_pool([job], work, 1)
                except BrokenProcessPool:
                    yield job, Outcome(None, DIED)


def _in_pool(
    jobs: Sequence[Job], work: Callable[[Job], Outcome], workers: int
) -> Iterator[tuple[Job, Outcome]]:
    if not jobs:
        return
    with pool(min(workers, len(jobs))) as processes:
        waiting = {processes.submit(work, job): job for job in jobs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


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
