"""Jobs carried out by the workers of a Ray cluster.

A job goes to a worker, and the messages of proctor/runs/remote.py come back. The owner's process
pulls each message, so a worker that was given up can send nothing more.

Trust: a cluster runs the code of each of its machines on all others, and this process unpickles
what the cluster returns. Its machines are trusted as processes of this user are; whoever needs the
ledger's key out of their reach keeps it with a notary (docs/explanation/architecture.md).
I/O: the cluster that RAY_ADDRESS names, or the one that runs on this machine.
"""

import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import Any
from uuid import UUID

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from ledger.application import LedgerApplication
from monitor.dispatch import current_variables
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.executors import DIED, Outcome, train_only
from proctor.runs.jobs import Job
from proctor.runs.pools import pool
from proctor.runs.remote import Assignment, Station, verify_worker
from proctor.runs.training import SILENT, Watching

MAX_TRIES = 3  # workers that a job may lose
_LOST = "the worker that trained it was lost"
_POLL = 0.1  # seconds, while runs are judged beside it
_REACHING = 10.0  # seconds in which the cluster has to answer
_CLOSING = 5.0  # seconds in which an idle worker removes what it has written


@contextmanager
def joined(
    home: Home, log: LedgerApplication, *, workers: int | None, watching: Watching = SILENT
) -> Iterator["RayExecutor"]:
    """Yield an executor on the cluster; raises ProctorError where there is none."""
    begun = not ray.is_initialized()
    with ExitStack() as stack:
        # Ray's threads print of lost workers to standard output, which is the command's answer.
        stack.enter_context(redirect_stdout(sys.stderr))
        address = os.environ.get("RAY_ADDRESS", "auto")
        if begun:
            stack.callback(ray.shutdown)
            _reach(address)
            terminate = signal.getsignal(signal.SIGTERM)
            try:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RayError, RuntimeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise ProctorError(
                    f"no Ray cluster at {address}: {reason}; start one with `ray start --head`, "
                    "or set RAY_ADDRESS"
                ) from error
            if signal.getsignal(signal.SIGTERM) is not terminate:  # Ray's own, which closes nothing
                signal.signal(signal.SIGTERM, terminate)
        count = workers or int(ray.cluster_resources().get("CPU", 0)) or 1
        executor = RayExecutor(home, log, workers=count, watching=watching)
        stack.callback(executor.close)
        yield executor


def _reach(address: str) -> None:
    """Raise ProctorError where nobody listens: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACHING).close()
    except OSError as error:
        raise ProctorError(
            f"no Ray cluster at {address}: {error.strerror or error}; start one with `ray start "
            "--head`, or set RAY_ADDRESS"
        ) from error


class _Worker:
    """An actor, and the job that it has."""

    def __init__(self) -> None:
        actor: Any = ray.remote(Station)
        self.actor = actor.options(
            num_cpus=1,
            max_concurrency=2,  # close() beside what waits
            runtime_env={"env_vars": current_variables()},
        ).remote()
        self.known = False  # whether it has said what it is
        self.assignment: Assignment | None = None


class RayExecutor:
    """Trains on the cluster; what was trained is judged by processes of this machine."""

    def __init__(
        self, home: Home, log: LedgerApplication, *, workers: int, watching: Watching
    ) -> None:
        self._home, self._log = home, log
        self._most = workers
        self._watching = watching
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._unstarted = 0  # workers that were lost before they said anything

    def carry_out(
        self, jobs: Sequence[Job], work: Callable[[Job], Outcome], again: Callable[[Job], Job]
    ) -> Generator[tuple[Job, Outcome]]:
        """Yield each job with its outcome; a lost worker's run is closed, and made again."""
        waiting = deque((job, 1) for job in jobs)
        busy: dict[Any, tuple[_Worker, Job, int]] = {}
        judging: dict[Future[Outcome], Job] = {}
        with pool(min(self._most, len(jobs), os.cpu_count() or 1) or 1) as judges:
            try:
                while waiting or busy or judging:
                    while waiting and len(busy) < self._most:
                        job, tries = waiting.popleft()
                        worker = self._idle.pop() if self._idle else self._start()
                        busy[self._begin(worker, job)] = (worker, job, tries)
                    for ref in _ready(busy, timeout=_POLL if judging else None):
                        worker, job, tries = busy.pop(ref)
                        try:
                            found = self._take(worker, job, ray.get(ref))
                        except RayTaskError as error:
                            raise ProctorError(f"a worker failed: {error.cause}") from error
                        except RayError as error:
                            self._lose(worker, error)
                            if tries == MAX_TRIES:
                                yield job, Outcome(None, DIED)
                            else:
                                waiting.append((again(job), tries + 1))
                            continue
                        if not isinstance(found, Outcome):
                            busy[found] = (worker, job, tries)
                            continue
                        self._idle.append(worker)
                        outcome = self._settle(worker, found)
                        if outcome is None and work is train_only:
                            outcome = Outcome(None, None)
                        if outcome is not None:
                            yield job, outcome
                        else:
                            judging[judges.submit(work, job)] = job
                    for future in [each for each in judging if each.done()]:
                        yield judging.pop(future), _judged(future)
            finally:
                for worker in [each for each in self._workers if each not in self._idle]:
                    self._workers.remove(worker)
                    _end(worker)

    def close(self) -> None:
        """End all workers, also those that wait for another job."""
        self._idle.clear()
        while self._workers:
            _end(self._workers.pop())

    def _start(self) -> _Worker:
        worker = _Worker()
        self._workers.append(worker)
        return worker

    def _begin(self, worker: _Worker, job: Job) -> Any:
        if not worker.known:
            return worker.actor.hello.remote()
        worker.assignment = Assignment(job, self._home, self._log)
        self._watching.on_start(UUID(job.run), job.config)
        return worker.actor.begin.remote(job)

    def _take(self, worker: _Worker, job: Job, message: Any) -> Any:
        """Return what to wait for next, or what the training has come to."""
        if not worker.known:
            verify_worker(message)
            worker.known = True
            self._unstarted = 0
            return self._begin(worker, job)
        assert worker.assignment is not None
        found = worker.assignment.take(message)
        return found if isinstance(found, Outcome) else worker.actor.answer.remote(found)

    def _settle(self, worker: _Worker, found: Outcome) -> Outcome | None:
        """Return the outcome of what is not to be judged."""
        assignment, worker.assignment = worker.assignment, None
        assert assignment is not None
        try:
            if found.problem is None and found.stopped is None:
                problem = assignment.hand_in()
                return None if problem is None else Outcome(None, problem)
            return found
        finally:
            assignment.close()

    def _lose(self, worker: _Worker, error: RayError) -> None:
        """Close the run of a worker that is gone."""
        self._workers.remove(worker)
        _kill(worker)
        if worker.assignment is not None:
            worker.assignment.close("crashed", detail=_LOST)
            self._watching.say(f"run {worker.assignment.job.run}: {_LOST}")
        elif not worker.known:
            self._unstarted += 1
            if self._unstarted == MAX_TRIES:
                reason = str(error).strip().splitlines()[-1]
                raise ProctorError(f"no worker of the Ray cluster can be started: {reason}")


def _ready(busy: dict[Any, Any], *, timeout: float | None) -> list[Any]:
    if not busy:
        time.sleep(timeout or 0.0)
        return []
    return list(ray.wait(list(busy), num_returns=1, timeout=timeout)[0])


def _judged(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Outcome(None, None, stopped="the process that judged a run died")


def _end(worker: _Worker) -> None:
    """End a worker; a run that it was training is closed as interrupted."""
    if worker.assignment is None and worker.known:
        with suppress(GetTimeoutError, RayError):
            ray.get(worker.actor.close.remote(), timeout=_CLOSING)
    _kill(worker)
    if worker.assignment is not None:
        worker.assignment.close("interrupted", detail="the command ended before the training")


def _kill(worker: _Worker) -> None:
    with suppress(RayError):
        ray.kill(worker.actor)
