"""The reference set: tasks with known good answers, which proposals are measured on.

One folder holds a manifest and, for each task, what the candidate is given (kind, seed, parameters
and a snapshot of files) and what only the scorer sees (what is expected).

Source: docs/reference/gauntlet.md, "The reference set".
Trust: read strictly; whatever is unknown, missing or misplaced is a TaskError.
I/O: reads a folder, or a commit of a repository; writes a folder.  Units: bytes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from aggregates.canonical import digest
from judge.declared import read_declared
from judge.gauntlet.errors import TaskError
from judge.gauntlet.repository.changes import EXECUTABLE, FILE
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.tasks.hidden_tests import BY_MODEL, TESTED, ByTests
from judge.gauntlet.tasks.scoring import SCORERS, Scorer, check_expected
from ledger.errors import StorageError
from ledger.files import read_bounded
from ledger.strict_json import read_object

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
MANIFEST = "manifest.json"
TASKS = "tasks"  # the folder that no candidate sees
SNAPSHOT = "repo_snapshot"
BASELINE = "baseline.json"  # for people; read by no gate
MAX_FILE = 4 * 2**20
MAX_FILES = 10_000
Name = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9_-]{0,79}\Z")]
Text = Annotated[str, Meta(pattern=r"\S", max_length=4_000)]
T = TypeVar("T")


class TaskEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of a task, for people; no candidate is told it."""

    task_id: Name
    source: Text
    source_commit: Text | None
    description: Text
    expected_outcome: Text
    expected_diff_path: str | None  # relative to the set
    categories: Annotated[tuple[Name, ...], Meta(min_length=1)]
    difficulty: Difficulty
    added_by: Text
    added_at: date
    regression_anchor_for: Text | None

    def __post_init__(self) -> None:
        if len(set(self.categories)) != len(self.categories):
            raise ValueError("a category is repeated")

    @property
    def diff(self) -> str | None:
        """The expected diff's name in the task's folder, if it is there."""
        path = PurePosixPath(str(self.expected_diff_path))
        return path.name if path.parent == PurePosixPath(TASKS) / self.task_id else None


class Instructions(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A task's task.json: all but the scorer is told to the candidate."""

    kind: Name
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    stochastic: bool
    scorer: str
    parameters: dict[str, Any]


class Task(Instructions, kw_only=True, frozen=True, dict=True):
    """One task. Of it the candidate is told kind, seed, parameters and files, and nothing else."""

    seed: int = 0
    stochastic: bool = False
    parameters: dict[str, Any] = {}
    entry: TaskEntry
    files: Mapping[str, bytes]  # the snapshot: path -> content
    expected: Mapping[str, Any]
    diff: bytes | None = None  # a right answer, for those who admit the task; no arm is told it

    @property
    def task_id(self) -> str:
        """The task's name."""
        return self.entry.task_id

    @property
    def instructions(self) -> dict[str, Any]:
        """The content of task.json."""
        return {name: getattr(self, name) for name in Instructions.__struct_fields__}

    @cached_property
    def sha256(self) -> str:
        """The hash over the entry, task.json, expected.json, the snapshot and the right diff."""
        return digest(  # over plain values, as they stand in the files
            {
                "entry": msgspec.to_builtins(self.entry),
                "task": self.instructions,
                "expected": self.expected,
                "files": {n: hashlib.sha256(data).hexdigest() for n, data in self.files.items()},
                **({} if self.diff is None else {"diff": hashlib.sha256(self.diff).hexdigest()}),
            }
        )

    def with_seed(self, seed: int) -> Self:
        """Return the same task for another draw."""
        return msgspec.structs.replace(self, seed=seed)


class _Manifest(Struct, forbid_unknown_fields=True):
    version: Literal[1]
    tasks: Annotated[tuple[TaskEntry, ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class ReferenceSet:
    """All tasks, in the manifest's order."""

    tasks: tuple[Task, ...]  # that can be asked here
    sha256: str  # over all, so that it is the same wherever the set is read
    unasked: tuple[Task, ...] = ()  # those for a language model, where no server is configured

    def task(self, task_id: str) -> Task:
        """Return a task by its id; raise TaskError where there is none."""
        for task in self.tasks:
            if task.task_id == task_id:
                return task
        raise TaskError(f"task {task_id!r} not found in the reference set")


def load(
    source: Path | Repository,
    *,
    commit: str = "",
    path: str = "",
    scorers: Mapping[str, Scorer] = SCORERS,
) -> ReferenceSet:
    """Read the set in a folder, or the one at `path` in a commit; raise TaskError.

    A task names one of the `scorers`, and there is no other way to score it.
    """
    if isinstance(source, Path):
        return _parse(_read_folder(source), scorers)
    tree, files = source.tree_of(commit), {}
    for name, content in source.contents(tree, keep=lambda each: each.startswith(f"{path}/")):
        if source.files(tree)[name].mode not in (FILE, EXECUTABLE) or len(content) > MAX_FILE:
            raise TaskError(f"{name}: a plain file of at most {MAX_FILE:,} bytes is expected")
        files[name[len(path) + 1 :]] = content
    return _parse(files, scorers)


def write_tasks(
    folder: Path,
    tasks: Sequence[Task],
    *,
    add: bool = False,
    beside: Callable[[TaskEntry], bool] | None = None,
) -> list[Path]:
    """Write a set into a folder; return the files that were written.

    With `add` the tasks join the set that lies there: a task with the same name gets the new entry
    and keeps its files. Without it they replace the set, except for the tasks that `beside` keeps.
    """
    entries = {entry.task_id: entry for entry in (_read_entries(folder) if add else ())}
    entries |= {task.task_id: task.entry for task in tasks}
    if beside is not None and (folder / MANIFEST).exists():
        entries |= {entry.task_id: entry for entry in _read_entries(folder) if beside(entry)}
    listed = msgspec.to_builtins([*entries.values()])
    files = {MANIFEST: _text({"version": 1, "tasks": listed})}
    for task in tasks:
        place = f"{TASKS}/{task.task_id}"
        if add and (folder / place).exists():
            continue
        files[f"{place}/task.json"] = _text(task.instructions)
        files[f"{place}/expected.json"] = _text(task.expected, indent=None)
        for name, content in task.files.items():
            files[f"{place}/{SNAPSHOT}/{name}"] = content
        if task.diff is not None and task.entry.diff is not None:
            files[f"{place}/{task.entry.diff}"] = task.diff
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return sorted(folder / name for name in files)


def gaps(tasks: Iterable[Task]) -> tuple[tuple[str, Mapping[str, int]], ...]:
    """Return for each category how many tasks there are of each difficulty, the rarest first."""
    counts: dict[str, Counter[str]] = {}
    for task in tasks:
        for category in task.entry.categories:
            counts.setdefault(category, Counter())[task.entry.difficulty] += 1
    rows: dict[str, Mapping[str, int]] = {
        name: {each: count[each] for each in DIFFICULTIES} for name, count in counts.items()
    }
    return tuple(sorted(rows.items(), key=lambda row: (min(row[1].values()), sum(row[1].values()))))


def _read_entries(folder: Path) -> tuple[TaskEntry, ...]:
    path = folder / MANIFEST
    try:
        return _manifest({MANIFEST: read_bounded(path, most=MAX_FILE)})
    except (OSError, StorageError, TaskError) as error:
        raise TaskError(f"{path}: this is not the manifest of a reference set: {error}") from error


def _read_folder(folder: Path) -> dict[str, bytes]:
    """Return the files that count, by path: the manifest, and what is in the tasks' folder."""
    found: dict[str, bytes] = {}
    for path in sorted((folder / MANIFEST, *(folder / TASKS).rglob("*"))):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise TaskError(f"{name}: links are not allowed in a reference set")
        if path.is_dir():
            continue
        if len(found) == MAX_FILES:
            raise TaskError(f"{folder}: more than {MAX_FILES} files")
        try:
            found[name] = read_bounded(path, most=MAX_FILE)
        except (OSError, StorageError) as error:
            raise TaskError(f"{name}: cannot be read: {error}") from error
    return found


def _parse(files: Mapping[str, bytes], scorers: Mapping[str, Scorer]) -> ReferenceSet:
    folders: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        parts = name.split("/", 2)
        if parts[0] != TASKS:
            continue
        if len(parts) < 3:
            raise TaskError(f"{name}: does not belong to a task")
        folders.setdefault(parts[1], {})[parts[2]] = content
    tasks = []
    for number, entry in enumerate(_manifest(files)):
        where = f"{MANIFEST}: tasks[{number}]"
        if entry.task_id not in folders:
            raise TaskError(
                f"{where}: folder {TASKS}/{entry.task_id} does not exist or is used twice"
            )
        if entry.expected_diff_path is not None and entry.diff not in folders[entry.task_id]:
            raise TaskError(f"{where}.expected_diff_path: not a file in the task's folder")
        tasks.append(_task(entry, folders.pop(entry.task_id), scorers))
    if folders:
        raise TaskError(f"{TASKS}/{min(folders)}: is not in {MANIFEST}")
    by_tests = {name: scorer for name, scorer in scorers.items() if isinstance(scorer, ByTests)}
    unasked = tuple(t for t in tasks if t.scorer in by_tests and not by_tests[t.scorer].asked)
    return ReferenceSet(
        tasks=tuple(task for task in tasks if task not in unasked),
        sha256=digest({"tasks": [task.sha256 for task in tasks]}),
        unasked=unasked,
    )


def _manifest(files: Mapping[str, bytes]) -> tuple[TaskEntry, ...]:
    if MANIFEST not in files:
        raise TaskError(
            f"the reference set has no {MANIFEST}: make a first task with `proctor line task new "
            "NAME`, and commit it"
        )
    return _declared(files, MANIFEST, _Manifest).tasks


def _task(entry: TaskEntry, files: Mapping[str, bytes], scorers: Mapping[str, Scorer]) -> Task:
    folder = f"{TASKS}/{entry.task_id}"
    told = _declared(files, "task.json", Instructions, folder=folder)
    expected: dict[str, Any] = _declared(files, "expected.json", dict, folder=folder)
    snapshot = {}
    for name in sorted(files):
        first, _, rest = name.partition("/")
        if first == SNAPSHOT and rest:
            snapshot[rest] = files[name]
        elif name not in ("task.json", "expected.json", BASELINE, entry.diff):
            raise TaskError(f"{folder}/{name}: does not belong to a task")
    if told.scorer not in scorers:
        raise TaskError(f"{folder}/task.json: scorer: one of {', '.join(scorers)} is expected")
    try:
        check_expected(told.scorer, expected)
    except ValueError as error:
        raise TaskError(f"{folder}/expected.json: {error}") from error
    diff = files[entry.diff] if told.scorer in (TESTED, BY_MODEL) and entry.diff else None
    return Task(
        entry=entry,
        files=snapshot,
        expected=expected,
        diff=diff,
        **msgspec.structs.asdict(told),
    )


def _declared(files: Mapping[str, bytes], name: str, kind: type[T], *, folder: str = "") -> T:
    where = f"{folder}/{name}" if folder else name
    if name not in files:
        raise TaskError(f"{where}: is missing")
    try:
        return read_declared(read_object(files[name]), kind)
    except ValueError as error:
        raise TaskError(f"{where}: {error}") from error


def _text(content: object, *, indent: int | None = 1) -> bytes:
    return (json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_snapshot(task: Task, into: Path) -> None:
    """Write the task's input below a folder that exists, for nobody to change."""
    for name, content in task.files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o444)


def message_of(task: Task, place: Path) -> dict[str, Any]:
    """Return what the candidate is told first."""
    return {
        "protocol": 1,
        "kind": task.kind,
        "seed": task.seed,
        "parameters": json.loads(json.dumps(task.parameters)),
        "input": str(place),
    }
