"""Many short trainings in parallel, with results in a file that outlives an interruption.

Each job is trained in memory by a worker process with one thread. Its result is appended to a file
of JSON lines, flushed and synced, so an interrupted study goes on with the jobs that are missing.
The runs are not audited: test accuracy is measured directly on the saved weights.

Trust: a results file is the user's own; a line from other code, another machine setting or another
configuration is refused.
I/O: reads the datasets; reads and appends to the results file.  Units: seconds of processor time.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from aggregates.noise import NoiseProbes
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.signals import EpochSignals
from aggregates.spec import ModelSpec
from judge.auditing.reexecution import MemoryBlobs
from ledger.application import LedgerApplication
from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.datasets import Split, Splits, load_splits, load_test
from monitor.environment import describe_environment
from monitor.loop import train
from monitor.model import ResidualCNN
from monitor.session import validate_model
from monitor.weights import load_weights
from policies.deciding.catalogue import create_policy
from proctor.studies.errors import StudyError

OnResult = Callable[[int, int, "Result"], None]  # results so far, of how many, the newest
# What of the environment decides the results of a study, beside the jobs themselves.
_DECIDING = ("code_sha256", "cpu", "cpu_capability", "numpy", "torch", "variables")


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
    history: tuple[dict[str, Any], ...]  # all fields of EpochSignals, by epoch
    fired: tuple[dict[str, str], ...]  # rule -> side, by epoch
    val_accuracy: tuple[float, ...]  # by epoch
    test_best: float | None  # test accuracy of the best weights; None where no epoch was best
    test_last: float | None  # of the weights after the last epoch; None where the run failed
    decisions: tuple[
        dict[str, Any], ...
    ]  # those that act: epoch, cites, direction, params, outcome
    end_reason: str
    error: str | None  # why the run failed, None where it did not
    seconds: float  # processor time

    @property
    def failed(self) -> bool:
        """Whether the training ended with an error."""
        return self.error is not None

    @property
    def applied(self) -> tuple[dict[str, Any], ...]:
        """The decisions whose remedies were applied."""
        return tuple(each for each in self.decisions if each["outcome"] == "applied")

    @property
    def test_accuracy(self) -> float | None:
        """Test accuracy of the weights that the run would submit: the best, else the last."""
        return self.test_last if self.test_best is None else self.test_best

    def signals(self) -> tuple[EpochSignals, ...]:
        """Return the history as the rules read it."""
        return tuple(_signals(each) for each in self.history)


def _signals(value: Mapping[str, Any]) -> EpochSignals:
    """Return what asdict() made plain, perhaps read from JSON."""
    noise = value.get("noise")
    if noise is not None:
        probes = tuple((product, square) for product, square in noise["probes"])
        noise = NoiseProbes(**{**noise, "probes": probes})
    return EpochSignals(**{**value, "noise": noise})


def run_jobs(
    jobs: Iterable[Job],
    results: Path | None,
    workers: int | None = None,
    *,
    code: str | None = None,
    on_result: OnResult | None = None,
) -> dict[str, Result]:
    """Train all jobs that `results` lacks and return the results of all, by key.

    `results` is None where nothing is to be kept. `workers` defaults to the number of cores. `code`
    replaces the hash of the code that the results depend on, by default of all code that decides a
    run. Raises StudyError if the file holds a result of other code, of another kind of machine, or
    of another configuration under the same key.
    """
    jobs = list(jobs)
    if len({job.key for job in jobs}) != len(jobs):
        raise StudyError("two jobs have the same key")
    made_with = _made_with(code)
    done = {} if results is None else _read_results(results, jobs, made_with)
    missing = [job for job in jobs if job.key not in done]
    with _appending(results) as file:
        for job, result in _train_all(missing, workers or os.cpu_count() or 1):
            if file is not None:
                _append(file, job, result, made_with)
            done[job.key] = result
            if on_result is not None:
                on_result(len(done), len(jobs), result)
    return {job.key: done[job.key] for job in jobs}


def load_results(path: Path) -> dict[str, Result]:
    """Return all results of a file by key, whatever made them; raises StudyError."""
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
        results = [_result_of(json.loads(line)["result"]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path} holds no results of a study: {error}") from error
    return {result.key: result for result in results}


def run_job(job: Job) -> Result:
    """Train one job in this process; an error of the training becomes a failed result."""
    started = time.process_time()
    accuracies: list[float] = []
    runs: list[Run] = []

    def on_epoch(run: Run, measured: dict[str, Any]) -> None:
        runs[:] = [run]
        accuracies.append(measured["validation"]["accuracy"])

    tests: dict[str, float] = {}
    error: str | None = None
    try:
        config = RunConfig.from_dict({**job.config, "threads": 1})
        splits, test = _load_data(config)
        log, blobs = LedgerApplication.in_memory(REGISTRY), MemoryBlobs()
        run = train(
            config,
            create_policy(job.policy),
            log=log,
            blobs=blobs,
            splits=splits,
            on_epoch=on_epoch,
        )
        runs[:] = [run]
        saved = {
            event.kind: event for event in log.events.get(run.id) if type(event) is Run.WeightsSaved
        }
        with computing_as(config):
            for kind, event in saved.items():
                model = ResidualCNN(ModelSpec.from_dict(event.spec), seed=config.seed)
                load_weights(model, blobs.get(event.sha256))
                tests[kind] = validate_model(model, test)["accuracy"]
    except Exception as caught:  # whatever it is, the run failed and is counted
        error = f"{type(caught).__name__}: {caught}"
    known = runs[0] if runs else None
    return Result(
        key=job.key,
        history=() if known is None else tuple(asdict(each) for each in known.history),
        fired=() if known is None else _fired_sides(known),
        val_accuracy=tuple(accuracies),
        test_best=None if error else tests.get("best"),
        test_last=None if error else tests.get("last"),
        decisions=() if known is None else _acting_decisions(known),
        end_reason="failed" if known is None or error else str(known.end_reason),
        error=error,
        seconds=time.process_time() - started,
    )


def _load_data(config: RunConfig) -> tuple[Splits, Split]:
    return _load_once(
        config.dataset,
        config.data_dir,
        (config.train_examples, config.val_examples, config.test_examples),
        config.data_seed,
    )


@lru_cache(maxsize=8)  # runs of a study differ in seeds and settings, rarely in their data
def _load_once(
    dataset: str, data_dir: str | None, sizes: tuple[int | None, ...], data_seed: int
) -> tuple[Splits, Split]:
    config = RunConfig(
        dataset=dataset,
        data_dir=data_dir,
        train_examples=sizes[0],
        val_examples=sizes[1],
        test_examples=sizes[2],
        data_seed=data_seed,
    )
    return load_splits(config), load_test(config)


def _fired_sides(run: Run) -> tuple[dict[str, str], ...]:
    return tuple(
        {
            rule: str(run.evaluations[epoch][rule].side)
            for rule in (run.fired(epoch) if epoch in run.evaluations else ())
        }
        for epoch in range(len(run.history))
    )


def _acting_decisions(run: Run) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "epoch": past.epoch,
            "cites": list(past.decision.cites),
            "direction": past.decision.direction,
            "params": dict(past.decision.params),
            "outcome": past.outcome,
        }
        for past in run.decisions
        if past.decision.acts
    )


def _train_all(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Yield each job with its result, in the order in which they end."""
    if not jobs:
        return
    pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"))
    try:
        waiting: dict[Future[Result], Job] = {pool.submit(run_job, job): job for job in jobs}
        while waiting:
            ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise StudyError(
            "a worker process was killed, perhaps for lack of memory; "
            "run the same command again to go on with the missing runs"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _made_with(code: str | None) -> dict[str, Any]:
    here = describe_environment(RunConfig(threads=1))
    return {key: here[key] for key in _DECIDING} | ({} if code is None else {"code_sha256": code})


@contextmanager
def _appending(path: Path | None) -> Iterator[TextIO | None]:
    """Open the results for appending, a torn last line cut off."""
    if path is None:
        yield None
        return
    path.touch()
    with path.open("r+b") as file:
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
    with path.open("a", encoding="utf-8") as appending:
        yield appending


def _append(file: TextIO, job: Job, result: Result, made_with: Mapping[str, Any]) -> None:
    line = {"made_with": dict(made_with), "job": asdict(job), "result": asdict(result)}
    file.write(json.dumps(line) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _read_results(
    path: Path, jobs: Sequence[Job], made_with: Mapping[str, Any]
) -> dict[str, Result]:
    """Return the results of `jobs` that the file holds; other keys are left alone."""
    if not path.exists():
        return {}
    wanted = {job.key: json.loads(json.dumps(asdict(job))) for job in jobs}
    found: dict[str, Result] = {}
    *lines, _torn = path.read_bytes().split(b"\n")  # what follows the last newline is no line
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            job, made = value["job"], value["made_with"]
            result = _result_of(value["result"])
        except (ValueError, KeyError, TypeError) as error:
            raise StudyError(f"{path}, line {number}: not a result of a study ({error})") from error
        if job["key"] not in wanted:
            continue
        if job != wanted[job["key"]]:
            raise StudyError(
                f"{path}, line {number}: {job['key']} has another configuration or policy now; "
                "name another results file"
            )
        if differs := [key for key in made_with if made.get(key) != made_with[key]]:
            raise StudyError(
                f"{path}, line {number}: made with another {', '.join(differs)}; "
                "name another results file"
            )
        found[result.key] = result
    return found


def _result_of(value: Mapping[str, Any]) -> Result:
    lists = ("history", "fired", "val_accuracy", "decisions")
    return Result(**{**value, **{name: tuple(value[name]) for name in lists}})
