"""The reference set: tasks with known good answers, which proposals are measured on.

One folder holds a manifest and, for each task, what the candidate is given (kind, seed, parameters
and a snapshot of files) and what only the scorer sees (what is expected).

Source: docs/reference/gauntlet.md, "The reference set".
Trust: read strictly; whatever is unknown, missing or misplaced is a TaskError.
I/O: reads a folder, or a commit of a repository.  Units: bytes.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from aggregates.canonical import digest
from judge.gauntlet.errors import TaskError
from judge.gauntlet.tasks.scorers import SCORERS
from judge.gauntlet.tasks.scoring import check_expected
from ledger.errors import StorageError
from ledger.files import read_bounded
from ledger.strict_json import read_object

if TYPE_CHECKING:
    from judge.gauntlet.repository.git import Repository

__all__ = ["DIFFICULTIES", "ReferenceSet", "Task", "gaps", "load"]

DIFFICULTIES = ("easy", "medium", "hard")
MANIFEST = "manifest.json"
TASKS = "tasks"  # the folder that no candidate sees
SNAPSHOT = "repo_snapshot"
BASELINE = "baseline.json"  # for people; read by no gate
MAX_FILE = 4 * 2**20
MAX_FILES = 10_000
MAX_TEXT = 4_000  # characters
_ENTRY = (
    "task_id",
    "source",
    "source_commit",
    "description",
    "expected_outcome",
    "expected_diff_path",
    "categories",
    "difficulty",
    "added_by",
    "added_at",
    "regression_anchor_for",
)
_TASK = ("kind", "seed", "stochastic", "scorer", "parameters")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task. Of it the candidate is told kind, seed, parameters and files, and nothing else."""

    task_id: str
    kind: str
    seed: int
    stochastic: bool
    categories: tuple[str, ...]
    difficulty: Literal["easy", "medium", "hard"]
    description: str
    parameters: Mapping[str, Any]
    files: Mapping[str, bytes]  # the snapshot: path -> content
    expected: Mapping[str, Any]
    scorer: str
    sha256: str  # over the entry, task.json, expected.json and the snapshot
    entry: Mapping[str, Any]  # its words in the manifest

    def with_seed(self, seed: int) -> "Task":
        """Return the same task for another draw."""
        return replace(self, seed=seed)


@dataclass(frozen=True, kw_only=True)
class ReferenceSet:
    """All tasks, in the manifest's order."""

    tasks: tuple[Task, ...]
    sha256: str

    def task(self, task_id: str) -> Task:
        """Return a task by its id; raise TaskError where there is none."""
        for task in self.tasks:
            if task.task_id == task_id:
                return task
        raise TaskError(f"task {task_id!r} not found in the reference set")


def load(source: "Path | Repository", *, commit: str = "", path: str = "") -> ReferenceSet:
    """Read the set in a folder, or the one at `path` in a commit; raise TaskError."""
    if isinstance(source, Path):
        return _parse(_read_folder(source))
    files = {}
    for name in source.paths(source.tree_of(commit)):
        if name.startswith(f"{path}/"):
            files[name[len(path) + 1 :]] = source.read(commit, name, most=MAX_FILE)
    return _parse(files)


def gaps(tasks: Iterable[Task]) -> tuple[tuple[str, Mapping[str, int]], ...]:
    """Return for each category how many tasks there are of each difficulty, the rarest first."""
    counts: dict[str, Counter[str]] = {}
    for task in tasks:
        for category in task.categories:
            counts.setdefault(category, Counter())[task.difficulty] += 1
    rows = {name: {each: count[each] for each in DIFFICULTIES} for name, count in counts.items()}
    return tuple(sorted(rows.items(), key=lambda row: (min(row[1].values()), sum(row[1].values()))))


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


def _parse(files: Mapping[str, bytes]) -> ReferenceSet:
    whole = _object(files, MANIFEST, "version", "tasks")
    if whole["version"] != 1 or not isinstance(whole["tasks"], list) or not whole["tasks"]:
        raise TaskError(f"{MANIFEST}: version 1 with at least one task is expected")
    folders: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        parts = name.split("/", 2)
        if parts[0] != TASKS:
            continue
        if len(parts) < 3:
            raise TaskError(f"{name}: does not belong to a task")
        folders.setdefault(parts[1], {})[parts[2]] = content
    tasks = []
    for number, entry in enumerate(whole["tasks"]):
        where = f"{MANIFEST}: tasks[{number}]"
        _check_keys(where, entry, _ENTRY)
        task_id = _name(f"{where}.task_id", entry["task_id"])
        if task_id not in folders:
            raise TaskError(f"{where}: folder {TASKS}/{task_id} does not exist or is used twice")
        tasks.append(_task(where, entry, folders.pop(task_id)))
    if folders:
        raise TaskError(f"{TASKS}/{min(folders)}: is not in {MANIFEST}")
    return ReferenceSet(
        tasks=tuple(tasks), sha256=digest({"tasks": [task.sha256 for task in tasks]})
    )


def _task(where: str, entry: Mapping[str, Any], files: Mapping[str, bytes]) -> Task:
    _check_entry(where, entry, files)
    folder = f"{TASKS}/{entry['task_id']}"
    said = _object(files, "task.json", *_TASK, folder=folder)
    expected = _object(files, "expected.json", folder=folder)
    snapshot = {}
    for name in sorted(files):
        first, _, rest = name.partition("/")
        if first == SNAPSHOT and rest:
            snapshot[rest] = files[name]
        elif name not in ("task.json", "expected.json", BASELINE, _diff_of(entry)):
            raise TaskError(f"{folder}/{name}: does not belong to a task")
    if not isinstance(said["parameters"], dict):
        raise TaskError(f"{folder}/task.json: parameters: an object is expected")
    if type(said["seed"]) is not int or not 0 <= said["seed"] < 2**63:
        raise TaskError(f"{folder}/task.json: seed: a whole number from 0 below 2**63 is expected")
    if type(said["stochastic"]) is not bool:
        raise TaskError(f"{folder}/task.json: stochastic: true or false is expected")
    if not isinstance(said["scorer"], str) or said["scorer"] not in SCORERS:
        raise TaskError(f"{folder}/task.json: scorer: one of {', '.join(SCORERS)} is expected")
    try:
        check_expected(said["scorer"], expected)
    except ValueError as error:
        raise TaskError(f"{folder}/expected.json: {error}") from error
    content = {"entry": entry, "task": said, "expected": expected}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in snapshot.items()}
    return Task(
        task_id=entry["task_id"],
        kind=_name(f"{folder}/task.json: kind", said["kind"]),
        seed=said["seed"],
        stochastic=said["stochastic"],
        categories=tuple(entry["categories"]),
        difficulty=entry["difficulty"],
        description=entry["description"],
        parameters=said["parameters"],
        files=snapshot,
        expected=expected,
        scorer=said["scorer"],
        sha256=digest({**content, "files": hashes}),
        entry=entry,
    )


def _check_entry(where: str, entry: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    for key in ("source", "description", "expected_outcome", "added_by"):
        _text(f"{where}.{key}", entry[key])
    for key in ("source_commit", "regression_anchor_for"):
        if entry[key] is not None:
            _text(f"{where}.{key}", entry[key])
    if entry["difficulty"] not in DIFFICULTIES:
        raise TaskError(f"{where}.difficulty: {', '.join(DIFFICULTIES)} is expected")
    categories = entry["categories"]
    if not isinstance(categories, list) or not categories:
        raise TaskError(f"{where}.categories: a list of at least one is expected")
    if len({_name(f"{where}.categories", each) for each in categories}) != len(categories):
        raise TaskError(f"{where}.categories: a category is repeated")
    try:
        date.fromisoformat(_text(f"{where}.added_at", entry["added_at"]))
    except ValueError:
        raise TaskError(f"{where}.added_at: a date (2026-01-31) is expected") from None
    diff = entry["expected_diff_path"]
    if diff is not None and (_diff_of(entry) is None or _diff_of(entry) not in files):
        raise TaskError(f"{where}.expected_diff_path: not a file in the task's folder")


def _diff_of(entry: Mapping[str, Any]) -> str | None:
    """Return the diff's name in the task's folder; in the manifest it is relative to the set."""
    path = PurePosixPath(str(entry["expected_diff_path"]))
    return path.name if path.parent == PurePosixPath(TASKS) / entry["task_id"] else None


def _object(files: Mapping[str, bytes], name: str, *keys: str, folder: str = "") -> dict[str, Any]:
    where = f"{folder}/{name}" if folder else name
    if name not in files:
        raise TaskError(f"{where}: is missing")
    try:
        found = read_object(files[name])
    except ValueError as error:
        raise TaskError(f"{where}: {error}") from error
    if keys:
        _check_keys(where, found, keys)
    return found


def _check_keys(where: str, found: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(found, dict):
        raise TaskError(f"{where}: an object is expected")
    if wrong := sorted(set(found) ^ set(keys)):
        raise TaskError(f"{where}.{wrong[0]}: is {'unknown' if wrong[0] in found else 'missing'}")


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TEXT:
        raise TaskError(f"{where}: a text of 1 to {MAX_TEXT} characters is expected")
    return value


def _name(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise TaskError(f"{where}: a name of lower-case letters, digits, _ and - is expected")
    return value


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
