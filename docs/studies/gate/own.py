"""Planted defects against this repository's reference set, fast enough for all of them.

Each defect is planted into tier-2 code of a tree and every task but the real trainings is asked,
two problems of those that are drawn, each mutant in a child that is forked from one process that
has everything else imported. What counts as caught is what counts in the gate: one task that is
worse than it is in the unchanged tree. The front door is `python docs/studies mutate`.

Trust: the mutants are our own code, changed in one place; they get no confinement but limits.
I/O: a copy of the tree; processes.  Units: seconds, bytes.
"""

import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from judge.gauntlet.comparison.weighing import loss_of
from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.benchmark import Arm, TaskResult, seed_of
from judge.gauntlet.tasks.reference_set import Task, message_of, write_snapshot
from judge.gauntlet.tasks.scoring import Score, drawn
from studies.gate.mutation import (
    Equivalent,
    MutationReport,
    mutants_of,
    mutate_run,
)
from studies.reference.scorers import SCORERS

__all__ = ["EQUIVALENTS", "PATHS", "ForkedJudge", "mutate_all"]

PATHS = (
    "policies/answers.py",
    "policies/deciding/rescue.py",
    "policies/ensemble.py",
    "policies/evidence.py",
    "policies/extraction.py",
    "policies/hindsight.py",
    "policies/offers.py",
    "policies/playbook.py",
)
SET = "docs/studies/reference_tasks"
EQUIVALENTS = f"{SET}/equivalents.toml"
_SECONDS = 30  # of processor time for one mutant, and twenty times as long in all: it hangs
_MEMORY = 2 * 2**30  # beside what is mapped already
_MEASURED = "policies"  # the package that is mutated
_DRAWN = 2  # problems of a task that is drawn
_LEFT_OUT = ("recovered", "selection", "trained")  # real trainings; nothing that is mutated


def _problems(task: Task, seed: int) -> list[Task]:
    """Return the task, or two problems of one that is drawn anew for each pair of answers.

    Each seed draws others.
    """
    if not task.stochastic:
        return [task]
    found = []
    for repeat in range(seed * _DRAWN, (seed + 1) * _DRAWN):
        problem = drawn(task.with_seed(seed_of(task, repeat)), SCORERS)
        entry = replace(problem.entry, task_id=f"{task.task_id}-{repeat}")
        found.append(replace(problem, entry=entry))
    return found


class ForkedJudge:
    """Says which task an altered tree is worse on; the first tree that it is shown is unaltered."""

    def __init__(self, tasks: Iterable[Task], *, seed: int = 0) -> None:
        self._tasks = [
            problem
            for task in tasks
            for problem in _problems(task, seed)
            if problem.scorer not in _LEFT_OUT
        ]
        self._base: dict[str, TaskResult] = {}

    def __call__(self, tree: Path) -> str | None:
        """Return the first loss in words; none where there is none."""
        if not self._base:
            found = _in_child(lambda: [_plain(result) for result in self._answers(tree, "base")])
            if not isinstance(found, list):
                raise GauntletError("the unaltered tree gives no answers")
            self._base = {plain["task_id"]: TaskResult(**plain) for plain in found}
            return None
        found = _in_child(lambda: self._first_loss(tree))
        if found is None:
            return None
        if isinstance(found, str):
            return found  # it hangs, or takes the whole process with it
        at, words = found
        self._tasks.insert(0, self._tasks.pop(at))
        return str(words)

    def _first_loss(self, tree: Path) -> tuple[int, str] | None:
        answers = self._answers(tree, "candidate")
        for at, (task, result) in enumerate(zip(self._tasks, answers, strict=True)):
            loss = loss_of(self._base[task.task_id], result)
            if loss is not None:
                return at, loss
        return None

    def _answers(self, tree: Path, arm: Arm) -> Iterable[TaskResult]:
        """Yield each task's result, from the code of the tree, in this process."""
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(tree))
        for name in [name for name in sys.modules if name.partition(".")[0] == _MEASURED]:
            del sys.modules[name]  # the tree's own is imported, whoever has imported ours before
        spec = importlib.util.spec_from_file_location("worker", tree / SET / "worker.py")
        if spec is None or spec.loader is None:
            raise GauntletError(f"{tree} has no worker")
        worker = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(worker)
        for task in self._tasks:
            with tempfile.TemporaryDirectory() as name:
                write_snapshot(task, Path(name))
                score = _score(task, worker.answerer, Path(name))
            yield TaskResult(
                task_id=task.task_id,
                arm=arm,
                repeat=0,
                seed=task.seed,
                success=score.success,
                validation_failures=score.validation_failures,
                metrics=dict(score.metrics),
                problem=score.problem,
                isolation=(),
            )


def mutate_all(
    tree: Path,
    tasks: Sequence[Task],
    *,
    scratch: Path,
    paths: Sequence[str] = PATHS,
    processes: int = 2,
    most: int | None = None,
    seed: int = 0,
    equivalents: Sequence[Equivalent] = (),
) -> MutationReport:
    """Plant every defect, or about `most`, into the paths of a tree; side by side by paths."""
    counts = {path: len(mutants_of(path, (tree / path).read_text("utf-8"))) for path in paths}
    shares: list[list[str]] = [[] for _ in range(processes)]
    for path in sorted(counts, key=lambda each: counts[each], reverse=True):
        min(shares, key=lambda share: sum(counts[each] for each in share)).append(path)
    used = [share for share in shares if share]
    whole = sum(counts.values())
    with ProcessPoolExecutor(len(used), mp_context=get_context("fork")) as pool:
        jobs = [
            pool.submit(
                mutate_run,
                share,
                ForkedJudge(tasks, seed=seed),
                tree=tree,
                scratch=scratch,
                most=None if most is None else ceil(most * sum(counts[p] for p in share) / whole),
                seed=seed,
                equivalents=equivalents,
            )
            for share in used
        ]
        reports = [job.result() for job in jobs]
    unknown = set.intersection(*(set(report.unknown) for report in reports))
    return MutationReport(
        found=sum(report.found for report in reports),
        files={path: counts for report in reports for path, counts in report.files.items()},
        caught={id_: by for report in reports for id_, by in report.caught.items()},
        survivors=tuple(each for report in reports for each in report.survivors),
        equivalent=tuple(each for report in reports for each in report.equivalent),
        mistaken=tuple(id_ for report in reports for id_ in report.mistaken),
        unknown=tuple(sorted(unknown)),
    )


def _score(task: Task, answerer: Callable[[Any], Callable[[Any], Any]], place: Path) -> Score:
    """Score a task as its candidate's process would answer it; what it raises is its failure."""
    try:
        answer = answerer(_again(message_of(task, place)))
        return SCORERS[task.scorer](task, lambda message: _again(answer(_again(message))))
    except CandidateError as error:
        words = str(error)
    except Exception as error:
        words = f"the candidate raised {type(error).__name__}"
    return Score(success=False, validation_failures=1, metrics={}, problem=words)


def _again(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def _plain(result: TaskResult) -> dict[str, Any]:
    """Return the result's values of JSON: what was printed is none, and is not compared."""
    return {name: getattr(result, name) for name in result.__dataclass_fields__ if name != "errors"}


def _in_child(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a child, as JSON; in words where the child does not answer."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(ours)
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # a busy machine is no defect
            signal.alarm(20 * _SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (_most_memory(), _most_memory()))
            with os.fdopen(theirs, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        return "it hangs, or ends its process"
    return json.loads(told)


def _most_memory() -> int:
    """Return what this process has mapped, and so much more."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize() + _MEMORY
