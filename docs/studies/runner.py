"""Many short trainings in parallel, with results in a file that outlives an interruption.

Each job is trained by a worker process with one thread. Its result is appended to a file of JSON
lines, flushed and synced, so an interrupted study goes on with the jobs that are missing.
do_jobs() takes work of any kind; run_jobs() trains the built-in network in memory, and measures
test accuracy directly on the saved weights.

Trust: a results file is the user's own; a line from other code, another machine setting or another
configuration is refused.
I/O: reads the datasets; reads and appends to the results file.  Units: seconds of processor time.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.signals import EpochSignals
from aggregates.spec import ModelSpec
from judge.auditing.reexecution import NoBlobs
from ledger.application import LedgerApplication
from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.datasets import Split, Splits, load_splits, load_test
from monitor.environment import describe_environment
from monitor.loop import OnEpoch, OnState, train
from monitor.model import ResidualCNN
from monitor.session import validate_model
from monitor.weights import load_weights
from policies.deciding.catalogue import create_policy
from proctor.errors import ProctorError
from proctor.runs.pools import pool

Found = TypeVar("Found")  # what comes of a job: a dataclass
OnResult = Callable[[int, int, Found], None]  # results so far, of how many, the newest
Work = Callable[["Job"], Found]  # importable by its name, since another process does it
# What of the environment decides the results of a study, beside the jobs themselves.
_DECIDING = ("code_sha256", "cpu", "cpu_capability", "numpy", "torch", "variables")


class StudyError(ProctorError):
    """A study cannot start or go on; the message says where and what to do."""


@dataclass(frozen=True)
class Job:
    """One training: a key that is unique in its study, the configuration, the policy's name."""

    key: str
    config: Mapping[str, Any]
    policy: str


@dataclass(frozen=True)
class Result:
    """What is kept of a training; a failed one keeps what it had measured until then."""

    key: str
    history: tuple[EpochSignals, ...]
    fired: tuple[dict[str, str], ...]  # rule -> side, by epoch
    test_accuracy: float | None  # of the best weights, else of the last; None where it failed
    error: str | None  # why the run failed, None where it did not

    @property
    def failed(self) -> bool:
        """Whether the training ended with an error."""
        return self.error is not None


@dataclass(frozen=True)
class _Line(Generic[Found]):
    """A line of a results file."""

    made_with: dict[str, Any]
    job: Job
    result: Found


def run_jobs(
    jobs: Iterable[Job],
    results: Path | None,
    workers: int | None = None,
    *,
    code: str | None = None,
    work: Work[Result] | None = None,
    on_result: OnResult[Result] | None = None,
) -> dict[str, Result]:
    """Train all jobs that `results` lacks, as do_jobs() does; `work` replaces run_job()."""
    return do_jobs(
        jobs, results, workers, code=code, work=work or run_job, kind=Result, on_result=on_result
    )


def do_jobs(
    jobs: Iterable[Job],
    results: Path | None,
    workers: int | None = None,
    *,
    code: str | None = None,
    work: Work[Found],
    kind: type[Found],
    on_result: OnResult[Found] | None = None,
) -> dict[str, Found]:
    """Do all jobs that `results` lacks and return the results of all, each of `kind`, by key.

    `results` is None where nothing is to be kept. `workers` defaults to the number of cores. `code`
    replaces the hash of the code that the results depend on, by default of all code that decides a
    run. Raises StudyError if the file holds a result of other code, of another kind of machine, or
    of another configuration under the same key.
    """
    jobs = list(jobs)
    if len({job.key for job in jobs}) != len(jobs):
        raise StudyError("two jobs have the same key")
    here = describe_environment(RunConfig(threads=1))
    made_with = {key: here[key] for key in _DECIDING}
    if code is not None:
        made_with["code_sha256"] = code
    done = {} if results is None else _read_results(results, jobs, made_with, kind)
    if results is not None:
        _cut_torn_line(results)
    missing = [job for job in jobs if job.key not in done]
    for job, result in _train_all(missing, workers or os.cpu_count() or 1, work):
        if results is not None:
            _append(results, _Line(made_with, job, result))
        done[job.key] = result
        if on_result is not None:
            on_result(len(done), len(jobs), result)
    return {job.key: done[job.key] for job in jobs}


def show_progress(done: int, of: int, newest: Result) -> None:
    """Print a line for a result that came in to standard error."""
    note = f", failed: {newest.error}" if newest.failed else ""
    print(f"{done} of {of}: {newest.key}{note}", file=sys.stderr, flush=True)


def load_results(path: Path) -> dict[str, Result]:
    """Return all results of a file by key, whatever made them; raises StudyError."""
    return {line.job.key: line.result for _, line in _read_lines(path, Result)}


def run_job(
    job: Job, *, on_epoch: OnEpoch | None = None, on_state: OnState | None = None
) -> Result:
    """Train one job in this process; an error of the training becomes a failed result."""

    def keep(run: Run, measured: dict[str, Any]) -> None:
        runs.append(run)
        if on_epoch is not None:
            on_epoch(run, measured)

    runs: list[Run] = []
    error, accuracy = None, None
    try:
        config = RunConfig.from_dict({**job.config, "threads": 1})
        splits, test = load_data(config)
        log, blobs = LedgerApplication.in_memory(REGISTRY), _MemoryBlobs()
        run = train(
            config,
            create_policy(job.policy),
            log=log,
            blobs=blobs,
            splits=splits,
            on_epoch=keep,
            on_state=on_state,
        )
        runs.append(run)
        accuracy = _test_weights(log, blobs, run, config, test)
    except Exception as caught:  # whatever it is, the run failed and is counted
        error = f"{type(caught).__name__}: {caught}"
    known = runs[-1] if runs else None
    return Result(
        key=job.key,
        history=() if known is None else tuple(known.history),
        fired=() if known is None else _fired_sides(known),
        test_accuracy=accuracy,
        error=error,
    )


class _MemoryBlobs(NoBlobs):
    """Blobs that are gone with the process."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        digest = super().put(content)
        self._contents[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        return self._contents[digest]


def _test_weights(
    log: LedgerApplication, blobs: _MemoryBlobs, run: Run, config: RunConfig, test: Split
) -> float:
    """Return the test accuracy of the weights that a run would submit: the best, else the last."""
    saved = {
        event.kind: event for event in log.events.get(run.id) if type(event) is Run.WeightsSaved
    }
    submitted = saved.get("best") or saved["last"]
    with computing_as(config):
        model = ResidualCNN(ModelSpec.from_dict(submitted.spec), seed=config.seed)
        load_weights(model, blobs.get(submitted.sha256))
        found: float = validate_model(model, test)["accuracy"]
    return found


def load_data(config: RunConfig) -> tuple[Splits, Split]:
    """Return the data of a configuration, and its test set; the last eight are kept."""
    names = ("dataset", "data_dir", "train_examples", "val_examples", "test_examples", "data_seed")
    return _load_once(RunConfig(**{name: getattr(config, name) for name in names}))


@lru_cache(maxsize=8)  # runs of a study differ in seeds and settings, rarely in their data
def _load_once(config: RunConfig) -> tuple[Splits, Split]:
    return load_splits(config), load_test(config)


def _fired_sides(run: Run) -> tuple[dict[str, str], ...]:
    return tuple(
        {
            rule: str(run.evaluations[epoch][rule].side)
            for rule in (run.fired(epoch) if epoch in run.evaluations else ())
        }
        for epoch in range(len(run.history))
    )


def _train_all(jobs: Sequence[Job], workers: int, work: Work[Found]) -> Iterator[tuple[Job, Found]]:
    """Yield each job with its result, in the order in which they end."""
    if not jobs:
        return
    try:
        with pool(min(workers, len(jobs))) as processes:
            waiting = {processes.submit(work, job): job for job in jobs}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
    except BrokenProcessPool as error:
        raise StudyError(
            "a worker process was killed, perhaps for lack of memory; "
            "run the same command again to go on with the missing runs"
        ) from error


def _cut_torn_line(path: Path) -> None:
    """Create the file, or cut off what follows its last whole line."""
    path.touch()
    with path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def _append(path: Path, line: _Line[Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _read_lines(path: Path, kind: type[Found]) -> Iterator[tuple[str, _Line[Found]]]:
    """Yield the whole lines of a results file, each behind its place."""
    try:
        *lines, _torn = path.read_bytes().split(b"\n")  # what follows the last newline is no line
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            yield place, msgspec.convert(json.loads(line), _Line[kind])  # type: ignore[valid-type]  # of a value
        except ValueError as error:
            raise StudyError(f"{place}: not a result of a study ({error})") from error


def _read_results(
    path: Path, jobs: Sequence[Job], made_with: Mapping[str, Any], kind: type[Found]
) -> dict[str, Found]:
    """Return the results of `jobs` that the file holds; other keys are left alone."""
    wanted = {job.key: json.loads(json.dumps(asdict(job))) for job in jobs}
    found: dict[str, Found] = {}
    for place, line in _read_lines(path, kind) if path.exists() else ():
        key = line.job.key
        if key not in wanted:
            continue
        if asdict(line.job) != wanted[key]:
            raise StudyError(
                f"{place}: {key} has another configuration or policy now; name another results file"
            )
        if differs := [each for each in made_with if line.made_with.get(each) != made_with[each]]:
            raise StudyError(
                f"{place}: made with another {', '.join(differs)}; name another results file"
            )
        found[key] = line.result
    return found
