"""The data of a task: made by its workers, fingerprinted here, and kept on disk where it is large.

What data() and test() give as tensors passes through memory. What they give as examples by number
is decoded once, piece by piece and by several workers, into a folder: nobody holds more than the
pieces in use. The folder is named by all that its content depends on, the files of the data folder
among it, so a later run finds it. The test part is decoded before the training begins, by another
worker than the rest, and removed once its fingerprint is known, unless a judge needs it.

Source: docs/reference/tasks.md; docs/how-to/own-data.md.
Trust: what workers give is hostile: bounded and of known form once it is here.
I/O: reads the data folder; reads and writes the folder of decoded examples.
"""

import os
import queue
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from aggregates.canonical import digest
from monitor.config import TaskConfig
from monitor.environment import describe_environment
from monitor.errors import TaskError
from monitor.stored import (
    Rows,
    StoredTensor,
    Storing,
    check_space,
    hash_files,
    is_stored,
    open_stored,
    row_bytes,
    spans,
)
from monitor.task_form import (
    MOST_EXAMPLES,
    Blob,
    Bounds,
    check_examples,
    read_named,
    read_tensors,
)
from monitor.task_worker import DATA, TEST, Worker
from monitor.tasks import KINDS, Parts, example_hashes, fingerprint

OpenWorker = Callable[..., AbstractContextManager[Worker]]
"""Opens a worker: open_worker(source, config, keep=NAMES, stored=None).

It may read data if it keeps data(); `stored` is a folder of decoded examples to train on.
"""

_SEEN, _HELD_OUT = ("train", "validation"), ("test",)
_LOADERS = 4  # workers that decode at the same time, or as many as there are processors
_WORTH = 4  # pieces for each of them, below which starting it takes longer
_BUILDING = "building-"  # and the process id of who builds it


@dataclass(frozen=True)
class TaskData:
    """What a task is trained and validated on, and what is recorded of it."""

    blob: Blob  # train and validation, as a worker takes them; empty where they are stored
    stored: Path | None  # the folder that holds them instead
    parts: Mapping[str, Rows]  # train and validation, and test where it was to be kept
    sizes: Mapping[str, int]
    fingerprints: Mapping[str, str]
    files: Mapping[str, str]  # SHA-256 of what data() and test() may read, where it was decoded
    # Of another draw of the test part, "fresh.inputs" and "fresh.targets".
    fresh: Mapping[str, Rows] = field(default_factory=dict)


def load_task_data(
    source: bytes,
    config: TaskConfig,
    open_worker: OpenWorker,
    *,
    decoded: Path,
    places: Callable[[tuple[str, ...]], Sequence[Path]] = lambda _: (),
    keep_test: bool = False,
    draw: int | None = None,
    loaders: int = 1,
    bounds: Bounds = Bounds(),  # noqa: B008 - frozen
) -> TaskData:
    """Have a task make its data, test and the rest apart.

    decoded: the folder for examples that are decoded; those of an earlier run are found there.
    places: what of the data folder a worker may read, by what it keeps; hashed where it is decoded.
    keep_test: whether the test part is returned; with a `draw`, another one of it, too.
    loaders: how many workers may decode at the same time.
    bounds: of the examples that are taken; a judge has some.

    Raises TaskError, also where two parts share examples: a test set must not have been seen.
    """

    def make(keep: tuple[str, ...], names: Sequence[str], drawn: int | None = None) -> _Made:
        making = _Making(source, config, open_worker, keep, drawn, decoded, loaders, bounds)
        return making.make(names, places(keep))

    with ExitStack() as stack:
        seen, test = make(DATA, _SEEN), make(TEST, _HELD_OUT)
        stack.callback(test.forget)
        parts = {**seen.parts, **test.parts}
        names = (*_SEEN, *_HELD_OUT)
        hashes = {name: set(example_hashes(parts[f"{name}.inputs"])) for name in names}
        _check_apart(hashes)
        fresh: Mapping[str, Rows] = {}
        if draw is not None:
            again = make(TEST, _HELD_OUT, draw)
            stack.callback(again.forget)
            fresh = _unknown(again.parts, set().union(*hashes.values()), decoded)
        pairs = {name: [parts[f"{name}.{kind}"] for kind in KINDS] for name in names}
        return TaskData(
            blob=seen.blob,
            stored=seen.stored,
            parts=parts if keep_test else seen.parts,  # open files can be read to the end
            sizes={name: len(inputs) for name, (inputs, _) in pairs.items()},
            fingerprints={name: fingerprint(*pair) for name, pair in pairs.items()},
            files={
                name: made.files
                for name, made in (("data", seen), ("test", test))
                if made.files is not None
            },
            fresh=fresh,
        )


def _check_apart(hashes: Mapping[str, set[bytes]]) -> None:
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        if count := len(hashes[one] & hashes[other]):
            raise TaskError(
                f"{count} examples of the {other} part have the same inputs as examples of the "
                f"{one} part; make parts that share no example"
            )


@dataclass(frozen=True)
class _Made:
    """What a worker has made: in memory, with the blob that it gave, or in a folder."""

    parts: Mapping[str, Rows]
    blob: Blob = b""
    stored: Path | None = None
    files: str | None = None

    def forget(self) -> None:
        """Remove the folder."""
        if self.stored is not None:
            shutil.rmtree(self.stored, ignore_errors=True)


@dataclass(frozen=True)
class _Making:
    """One of the two that is made, data or the test part, with the workers that it needs."""

    source: bytes
    config: TaskConfig
    open_worker: OpenWorker
    keep: tuple[str, ...]
    draw: int | None
    decoded: Path
    loaders: int
    bounds: Bounds

    def make(self, names: Sequence[str], places: Sequence[Path]) -> _Made:
        """Have workers make these parts; decode them where they are given by number."""
        with self._worker() as (worker, said, blob):
            if "streams" not in said:
                return _Made(read_tensors(blob, names, KINDS, self.bounds), blob)
            counts = _counts(said["streams"], names, self.bounds)
            files = hash_files(places) if places else None
            if self.keep == TEST:  # nobody finds it again
                stored = self._decode(worker, counts)
            else:
                stored = self.decoded / digest({"files": files, **_surroundings(self.config)})
                if not is_stored(stored):
                    shutil.rmtree(stored, ignore_errors=True)
                    made = self._decode(worker, counts)
                    with suppress(OSError):  # another run has made the same meanwhile
                        made.rename(stored)
                    shutil.rmtree(made, ignore_errors=True)
        return _Made(open_stored(stored), stored=stored, files=files)

    @contextmanager
    def _worker(self) -> Iterator[tuple[Worker, dict[str, Any], Blob]]:
        """Open a worker, and have it make its parts, or say how many examples it can make."""
        with self.open_worker(self.source, self.config, keep=self.keep) as worker:
            request, fields = ("data", {}) if self.keep == DATA else ("test", {"draw": self.draw})
            yield worker, *worker.ask(request, fields)

    @contextmanager
    def _another(self, counts: Mapping[str, int]) -> Iterator[Worker]:
        """Open one more worker for the same examples."""
        with self._worker() as (worker, said, _):
            if said.get("streams") != counts:
                raise TaskError("the task gives other numbers of examples from run to run")
            yield worker

    def _decode(self, first: Worker, counts: Mapping[str, int]) -> Path:
        """Have workers make all examples; return the new folder that holds them."""
        self.decoded.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(self.decoded)
        building = _new(self.decoded)
        try:
            storing = Storing(building)
            sizes = {name: _row_size(first, name, self.bounds) for name in counts}
            check_space(building, sum(sizes[name] * count for name, count in counts.items()))
            jobs = [
                {"part": name, "start": start, "stop": stop}
                for name, count in counts.items()
                for start, stop in spans(count, sizes[name])
            ]
            with ExitStack() as stack:
                workers = [first]
                for _ in range(min(self.loaders, len(jobs) // _WORTH) - 1):
                    workers.append(stack.enter_context(self._another(counts)))
                decoded = _in_order(jobs, workers, sizes=sizes, bounds=self.bounds)
                for job, rows in zip(jobs, decoded, strict=True):
                    storing.add({f"{job['part']}.{kind}": rows[kind] for kind in KINDS})
            storing.finish()
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return building


def _surroundings(config: TaskConfig) -> dict[str, Any]:
    """Return what decoded examples depend on beside the files that they are in."""
    return {
        "task": config.task,
        "params": {key: value for key, value in config.given.items() if key != "data_dir"},
        "data_seed": config.data_seed,
        "packages": sorted({f"{each.name} {each.version}" for each in distributions()}),
        **describe_environment(config),
    }


def _counts(said: Any, names: Sequence[str], bounds: Bounds) -> dict[str, int]:
    if not isinstance(said, dict) or set(said) != set(names):
        raise TaskError(f"the task gave examples of other parts than {', '.join(names)}")
    for name, count in said.items():
        if type(count) is not int or not 0 < count < MOST_EXAMPLES:
            raise TaskError(f"the {name} part has {count!r} examples")
    check_examples(sum(said.values()), bounds)
    return said


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{_BUILDING}{os.getpid()}-", dir=folder))


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes that are gone have left unfinished."""
    for path in folder.glob(f"{_BUILDING}*"):
        try:
            os.kill(int(path.name.removeprefix(_BUILDING).partition("-")[0]), 0)
        except (ProcessLookupError, ValueError):
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # another user's


def _row_size(worker: Worker, part: str, bounds: Bounds) -> int:
    _, blob = worker.ask("rows", {"part": part, "start": 0, "stop": 1})
    return sum(map(row_bytes, read_named(blob, set(KINDS), bounds).values()))


def _in_order(
    jobs: Iterable[Mapping[str, Any]],
    workers: Sequence[Worker],
    *,
    sizes: Mapping[str, int],
    bounds: Bounds,
) -> Iterator[Parts]:
    """Yield the rows of each job in order; a few more than there are workers are asked ahead."""
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def work(job: Mapping[str, Any]) -> Parts:
        worker = idle.get()
        try:
            return _ask_rows(worker, job, sizes[job["part"]], bounds)
        finally:
            idle.put(worker)

    waiting: deque[Future[Parts]] = deque()
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(work, job))
                if len(waiting) > 2 * len(workers):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _ask_rows(worker: Worker, job: Mapping[str, Any], size: int, bounds: Bounds) -> Parts:
    """Return rows of `size` bytes each, inputs and targets together."""
    _, blob = worker.ask("rows", job)
    rows = read_named(blob, set(KINDS), bounds)
    if {len(each) for each in rows.values()} != {job["stop"] - job["start"]}:
        raise TaskError(f"the task gave another number of examples of the {job['part']} part")
    if sum(map(row_bytes, rows.values())) != size:
        raise TaskError(
            f"the {job['part']} part has examples of another shape or type from example "
            f"{job['start']} on; all examples of a part must be alike"
        )
    return {kind: each[:] for kind, each in rows.items()}


def _unknown(parts: Mapping[str, Rows], known: set[bytes], decoded: Path) -> Mapping[str, Rows]:
    """Return the examples of another draw of the test part that are in no recorded part."""
    inputs, targets = parts["test.inputs"], parts["test.targets"]
    hashes = example_hashes(inputs)
    kept = torch.tensor([at for at, each in enumerate(hashes) if each not in known]).long()
    if not len(kept):
        return {}
    if not isinstance(inputs, StoredTensor):
        return {"fresh.inputs": inputs[kept], "fresh.targets": targets[kept]}
    storing = Storing(_new(decoded))
    for start, stop in spans(len(kept), row_bytes(inputs)):
        chosen = kept[start:stop]
        storing.add({"fresh.inputs": inputs[chosen], "fresh.targets": targets[chosen]})
    return storing.finish()


def loaders_here() -> int:
    """Return how many workers may decode at the same time on this machine."""
    return min(_LOADERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
