"""Plants small defects into code and tells which of them a judge catches.

Source: defects.py says which.
Trust: planted defects run where candidates do, in processes of their own.
I/O: mutate_run() writes one file at a time into a copy of a tree, below `scratch`.
Not covered: faults that take two changes, or that no operator makes.
"""

import ast
import hashlib
import random
import shutil
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from judge.gauntlet.comparison.weighing import loss_of
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.repository.manifest import Manifest
from judge.gauntlet.tasks.benchmark import Arm, TaskResult, run_task
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import SCORERS, Scorer
from ledger.progress import advanced
from studies.gate.defects import changes_at, places_of

__all__ = [
    "Equivalent",
    "Mutant",
    "MutationReport",
    "Run",
    "TaskJudge",
    "mutants_of",
    "mutate_run",
    "parse_equivalents",
    "sample",
]

Run = Callable[[Path], str | bool | None]
"""Judges the tree at a path; returns what caught it (or True), or nothing."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One planted defect."""

    path: str
    line: int
    function: str  # qualified; "" at the top of the module
    kind: str
    description: str
    source: str  # the whole file
    id: str  # stays the same as long as the function's code around it does

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the source."""
        return {name: value for name, value in asdict(self).items() if name != "source"}


@dataclass(frozen=True, kw_only=True)
class Equivalent:
    """A person's word that a mutant is no defect."""

    id: str
    change: str  # the mutant's description, so that a reader need not look it up
    reason: str

    def __post_init__(self) -> None:
        if not all(isinstance(each, str) and each.strip() for each in (self.id, self.reason)):
            raise ValueError("every entry must have an id, the change and a reason, as text")


@dataclass(frozen=True, kw_only=True)
class MutationReport:
    """What was planted, and what of it was caught."""

    found: int  # mutants before sampling
    files: Mapping[str, tuple[int, int]]  # path -> how many were caught, of how many that count
    caught: Mapping[str, str]  # id -> by what
    survivors: tuple[Mutant, ...]
    equivalent: tuple[Mutant, ...]  # listed by a person, and not caught; they do not count
    mistaken: tuple[str, ...]  # ids that are listed as equivalent, and were caught
    unknown: tuple[str, ...]  # ids that are listed, and that no mutant has

    @property
    def share(self) -> float:
        """The share of defects that were caught."""
        count = len(self.caught) + len(self.survivors)
        return len(self.caught) / count if count else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "found": self.found,
            "files": {path: list(counts) for path, counts in self.files.items()},
            "run": len(self.caught) + len(self.survivors) + len(self.equivalent),
            "share": self.share,
            "caught": dict(self.caught),
            "survivors": [mutant.to_dict() for mutant in self.survivors],
            "equivalent": [mutant.to_dict() for mutant in self.equivalent],
            "mistaken": list(self.mistaken),
            "unknown": list(self.unknown),
        }


def mutants_of(path: str, source: str) -> tuple[Mutant, ...]:
    """Return a file's mutants in the order of its lines, no two of them alike.

    Raises GauntletError for what is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise GauntletError(f"{path} cannot be mutated: {error}") from error
    seen, count = {ast.unparse(tree)}, dict[str, int]()
    found = []
    for place in places_of(tree):
        for kind, new, description in changes_at(place):
            changed = place.replaced(tree, new)
            if changed in seen:
                continue
            seen.add(changed)
            name = "\0".join((path, place.function, kind, description))
            count[name] = count.get(name, 0) + 1
            found.append(
                Mutant(
                    path=path,
                    line=place.line,
                    function=place.function,
                    kind=kind,
                    description=description,
                    source=changed + "\n",
                    id=hashlib.sha256(f"{name}\0{count[name]}".encode()).hexdigest()[:12],
                )
            )
    return tuple(found)


def sample(mutants: Sequence[Mutant], *, most: int | None, seed: int = 0) -> tuple[Mutant, ...]:
    """Return at most so many, drawn by the seed, in the order in which they were given."""
    if most is None or most >= len(mutants):
        return tuple(mutants)
    chosen = sorted(random.Random(seed).sample(range(len(mutants)), most))  # noqa: S311 - no secret
    return tuple(mutants[at] for at in chosen)


def parse_equivalents(data: bytes) -> tuple[Equivalent, ...]:
    """Read a list of mutants that a person says are no defects.

    TOML, with one table [[equivalent]] {id, change, reason} for each. Raises GauntletError.
    """
    try:
        tables = tomllib.loads(data.decode())["equivalent"]
        return tuple(Equivalent(**table) for table in tables)
    except (KeyError, TypeError, ValueError) as error:
        raise GauntletError(f"not a list of equivalent mutants: {error}") from error


def mutate_run(
    paths: Sequence[str],
    run: Run,
    *,
    tree: Path,
    scratch: Path,
    most: int | None = None,
    seed: int = 0,
    equivalents: Sequence[Equivalent] = (),
    on_result: Callable[[Mutant, str | None], None] | None = None,
) -> MutationReport:
    """Plant each defect into a copy of the tree and ask `run` whether it is caught.

    `paths` are relative to `tree`, which stays as it is. The judge sees the unchanged copy first.
    Raises GauntletError if it catches something there already, or where a file cannot be read.
    """
    found = [mutant for path in paths for mutant in mutants_of(path, _read(tree, path))]
    chosen = sample(found, most=most, seed=seed)
    listed = {each.id: each for each in equivalents}
    caught: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        copy = Path(name) / "tree"
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if by := run(copy):
            raise GauntletError(f"the unchanged tree already fails ({by}): fix it first")
        for number, mutant in enumerate(chosen):
            advanced("planted defects", number, len(chosen))
            by = _judged(mutant, copy, run)
            if by is not None:
                caught[mutant.id] = by
            if on_result is not None:
                on_result(mutant, by)
    left = [mutant for mutant in chosen if mutant.id not in caught]
    equivalent = [m for m in left if m.id in listed and listed[m.id].change == m.description]
    count = Counter(mutant.path for mutant in chosen if mutant not in equivalent)
    hit = Counter(mutant.path for mutant in chosen if mutant.id in caught)
    return MutationReport(
        found=len(found),
        files={path: (hit[path], count[path]) for path in count},
        caught=caught,
        survivors=tuple(mutant for mutant in left if mutant not in equivalent),
        equivalent=tuple(equivalent),
        mistaken=tuple(id_ for id_ in listed if id_ in caught),
        unknown=tuple(sorted(set(listed) - {mutant.id for mutant in found})),
    )


class TaskJudge:
    """Catches what makes a deterministic reference task worse than it is in the unchanged tree.

    The first tree that it is shown is the unchanged one. The task that caught something last is
    asked first, and none after one that catches.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        manifest: Manifest,
        *,
        scratch: Path,
        scorers: Mapping[str, Scorer] = SCORERS,
    ) -> None:
        self._tasks = [task for task in tasks if not task.stochastic]
        self._manifest = manifest
        self._scratch = scratch
        self._scorers = scorers
        self._base: dict[str, TaskResult] = {}

    def __call__(self, tree: Path) -> str | None:
        """Return the first loss in words; none where there is none."""
        if not self._base:
            self._base = {task.task_id: self._ask(task, tree, "base") for task in self._tasks}
            if not any(result.success for result in self._base.values()):
                raise GauntletError("no deterministic task succeeds in the unchanged tree")
            return None
        for at, task in enumerate(self._tasks):
            loss = loss_of(self._base[task.task_id], self._ask(task, tree, "candidate"))
            if loss is not None:
                self._tasks.insert(0, self._tasks.pop(at))
                return loss
        return None

    def _ask(self, task: Task, tree: Path, arm: Arm) -> TaskResult:
        return run_task(
            task, tree, self._manifest, scorers=self._scorers, arm=arm, scratch=self._scratch
        )


def _judged(mutant: Mutant, copy: Path, run: Run) -> str | None:
    path = copy / mutant.path
    original = path.read_bytes()
    path.write_text(mutant.source, encoding="utf-8")
    try:
        by = run(copy)
    finally:
        path.write_bytes(original)
    return str(by) if by else None


def _read(tree: Path, path: str) -> str:
    try:
        return (tree / path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise GauntletError(f"{path} cannot be mutated: {error}") from error
