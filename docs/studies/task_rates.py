"""What going back is worth in a task: two of the examples at rates that are far too high.

    python docs/studies task-rates [--seeds 3] [--epochs 10] [--times 3]... [--task NAME]...
        [--results FILE]

The examples `tabular` and `characters`, a small network for tables and a transformer, are trained
at so many times a good rate (the best of four under `nothing`, seed 0, or a mean of two that were
alike), by each policy with the same number of epochs. The table shows the mean validation metric of
the weights that are handed in: those of the best epoch. Trained in this process, without a ledger
and with one thread. --results keeps each training in a file, so that the same command goes on.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

import torch

from aggregates.run import Run
from monitor.config import TaskConfig
from monitor.stored import open_stored
from monitor.task_data import load_task_data
from monitor.task_loop import is_better, train_task
from monitor.task_worker import TaskWorker, Worker
from monitor.tasks import read_task
from policies.deciding.catalogue import create_policy
from proctor.errors import ProctorError
from studies.runner import Job, do_jobs
from studies.statistics import Table

_EXAMPLES = Path(__file__).parents[1] / "examples" / "tasks"
GOOD: Mapping[str, float] = MappingProxyType({"tabular": 0.01, "characters": 0.05})
SIZES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"tabular": {}, "characters": {"windows": 200, "width": 16}}
)
ARMS = ("nothing", "playbook", "rescue")


class _Nowhere:
    """Keeps neither events nor weights."""

    def save(self, run: Run, /) -> None:
        run.collect_events()

    def put(self, content: bytes) -> str:
        return sha256(content).hexdigest()

    def get(self, digest: str) -> bytes:
        raise KeyError(digest)


@contextmanager
def _open_here(
    source: bytes, config: TaskConfig, *, keep: tuple[str, ...], stored: Path | None = None
) -> Iterator[Worker]:
    """Open a worker in this process: the examples are trusted."""
    parts = None if stored is None else open_stored(stored)
    yield TaskWorker(source, config, keep=keep, stored=parts)


@dataclass(frozen=True)
class Trained:
    """What a training came to."""

    best: float  # validation metric, NaN if there is none


def train(job: Job) -> Trained:
    """Train an example at a rate, under a policy."""
    name, settings = job.config["task"], job.config["settings"]
    torch.set_num_threads(1)
    source = (_EXAMPLES / f"{name}.py").read_bytes()
    config = read_task(source, f"{name}.py").configure({**SIZES[name], **settings})
    best = math.nan

    def on_epoch(_run: Run, measured: Mapping[str, object]) -> None:
        nonlocal best
        value = measured["validation"]["metrics"][config.metric]  # type: ignore[index]
        best = value if is_better(value, best, config.better) else best

    train_task(
        config,
        source,
        create_policy(job.policy),
        data=load_task_data(source, config, _open_here, decoded=Path()),
        open_worker=_open_here,
        log=_Nowhere(),
        blobs=_Nowhere(),
        on_epoch=on_epoch,
    )
    return Trained(best)


def main(arguments: Sequence[str]) -> None:
    """Train, and print a table for each task."""
    parser = argparse.ArgumentParser(prog="python docs/studies task-rates", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--times", type=float, action="append", help="of the good rate")
    parser.add_argument("--task", choices=GOOD, action="append", dest="tasks")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, help="File to keep trainings in.")
    given = parser.parse_args(arguments)
    if given.seeds < 1 or given.epochs < 2:
        raise ProctorError("at least one seed and two epochs are needed")
    times = given.times or [1.0, 3.0, 10.0, 30.0, 100.0]
    for name in given.tasks or GOOD:
        jobs = {
            (arm, factor, seed): Job(
                f"{name}/{arm}/{factor:g}/{seed}/{given.epochs}",
                {
                    "task": name,
                    "settings": {
                        "lr": min(10.0, GOOD[name] * factor),
                        "epochs": given.epochs,
                        "seed": seed,
                    },
                },
                arm,
            )
            for arm, factor, seed in product(ARMS, times, range(given.seeds))
        }
        found = do_jobs(jobs.values(), given.results, given.workers, work=train, kind=Trained)

        def told(arm: str, factor: float, jobs: Any = jobs, found: Any = found) -> str:
            values = [found[jobs[arm, factor, seed].key].best for seed in range(given.seeds)]
            return f"{mean(values):.4g} ({', '.join(f'{each:.4g}' for each in values)})"

        rows = [
            {"times the good rate": f"{factor:g}", **{arm: told(arm, factor) for arm in ARMS}}
            for factor in times
        ]
        print(Table.of(f"{name}, lr {GOOD[name]:g} times", rows).to_markdown())
