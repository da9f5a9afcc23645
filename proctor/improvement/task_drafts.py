"""Drafts of reference tasks: made from commits, folders and runs, and admitted through a gate.

A draft has the form of a reference set and lies below the home, in infra/LINE/candidates, where no
arm reads it. Admission examines a draft, records an operator's signed word in the ledger, and
writes the task into a work tree; what becomes of it there is an ordinary commit.

Source: docs/how-to/add-reference-tasks.md.
I/O: reads the repository and the ledger; runs tests and the line's head, confined; writes folders.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import msgspec

from aggregates.decisions import Observation
from aggregates.run import Run
from aggregates.spec import WatchedModel, spec_of
from judge.auditing.events import decode_events
from judge.config import JudgeConfig
from judge.errors import StepError
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import CandidateError, TaskError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.tasks.benchmark import export, run_task
from judge.gauntlet.tasks.hidden_tests import (
    BY_MODEL,
    SNAPSHOT_FILE,
    TESTED,
    Bench,
    ByTests,
    run_hidden,
)
from judge.gauntlet.tasks.history import REPEATS, Change, examine, node_of, read_change, sort_cases
from judge.gauntlet.tasks.reference_set import (
    MANIFEST,
    TASKS,
    Difficulty,
    Task,
    TaskEntry,
    load,
    write_tasks,
)
from judge.gauntlet.tasks.scoring import Scorer
from judge.reference.observations import from_plain, to_plain
from judge.reference.oracle import expected_answers
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.home import line_folder
from proctor.remembering import open_session
from proctor.runs.replay import read_recording

__all__ = [
    "Wish",
    "check",
    "drafts_folder",
    "find_draft",
    "from_commit",
    "from_folders",
    "from_run",
]

DRAFTS = "candidates"  # below a line's folder
ISSUE = "issue.md"
_DIFF = "expected.diff"
_PATIENCE = 600  # s for the first run
_ROOM = 10  # runs that a test run may take longer than in the draft
_MOST_MOMENTS = 12  # of a run
_HELD = "SELECT held FROM counting_audits WHERE run_id = ?"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a person says of a task."""

    name: str
    kind: str  # plan or implement
    issue: str  # "": the commit's message
    categories: Sequence[str]
    difficulty: Difficulty
    by_model: bool = False
    stochastic: bool = False
    anchor: str | None = None
    also: Sequence[str] = ()  # patterns of paths
    tests: Sequence[str] = ()  # test files that run; none: all that were changed
    most: int | None = None  # files that a plan names; None: as many as there are
    narrow: bool = False  # only the cases that the change makes pass


def drafts_folder(home: Home, line: UUID) -> Path:
    """Return where the drafts of a line lie."""
    return line_folder(home, line) / DRAFTS


def from_commit(controller: Controller, name: str, wish: Wish, into: Path) -> Task:
    """Draft a task from a commit of the line's repository."""
    repository = controller.place.repository
    commit = repository.commit_of(name)
    return _from_change(controller, repository, commit, wish, into, source=f"commit {commit}")


def from_folders(controller: Controller, before: Path, after: Path, wish: Wish, into: Path) -> Task:
    """Draft a task from two folders: the files as they are, and with the change and its tests."""
    with TemporaryDirectory() as scratch:
        repository, commit = Repository.of_files(
            Path(scratch) / "repository", _files(before), _files(after)
        )
        return _from_change(
            controller, repository, commit, wish, into, source="written by a person", own=False
        )


def from_run(controller: Controller, home: Home, run: str, wish: Wish, into: Path) -> Task:
    """Draft a task from a verified run: its situations, and what the rules say of each."""
    recording = read_recording(home, run)
    (started,) = decode_events(recording.entries[:1])
    if isinstance(started, Run.Started) and isinstance(spec_of(started.spec), WatchedModel):
        raise TaskError(
            f"run {recording.run_id} trained a model of its owner; a task of the reference set can "
            "be made only from a run of the built-in network: `proctor run` without --task"
        )
    held = open_session(home).query(_HELD, (str(recording.run_id),)).rows
    if not held or not held[0][0]:
        raise TaskError(
            f"run {recording.run_id} is not verified: no audit counts that passed all gates; "
            f"run `proctor judge {recording.run_id}` first"
        )
    shown = [to_plain(seen) for seen in _situations(recording.entries)][:_MOST_MOMENTS]
    if not shown:
        raise TaskError(
            f"no rule of the reference set was due in run {recording.run_id}, so there is nothing "
            "to decide"
        )
    task = Task(
        entry=_entry(
            wish,
            source=f"run {recording.run_id}, verified",
            commit=None,
            day=_today(controller),
            outcome="every due rule is answered as the playbook says, and no other",
            text=wish.issue or "Situations of a verified run are decided again",
        ),
        kind="decisions",
        seed=0,
        stochastic=wish.stochastic,
        scorer="decisions",
        parameters={},
        files={"observations.json": _json(shown)},
        expected={"answers": [expected_answers(from_plain(plain)) for plain in shown]},
    )
    return _write(task, into)


def find_draft(folder: Path, name: str, scorers: Mapping[str, Scorer]) -> Task | None:
    """Return a draft by its name; None where there is none of this name."""
    if not (folder / TASKS / name).is_dir():
        return None
    found = load(folder, scorers=scorers)
    return next(task for task in (*found.tasks, *found.unasked) if task.task_id == name)


def check(controller: Controller, task: Task) -> str:
    """Examine a draft; raise TaskError, in one sentence, where it cannot be admitted.

    Returns what was found.
    """
    place = controller.place
    head = controller.line.head
    whole = place.reference_set(head.commit)
    for each in (*whole.tasks, *whole.unasked):
        if each.task_id == task.task_id:
            raise TaskError(f"the reference set has a task {task.task_id} already")
        if (each.kind, each.files, each.expected) == (task.kind, task.files, task.expected):
            raise TaskError(f"the reference set has this task already, as {each.task_id}")
    manifest = place.manifest(head.commit)
    with controller.locked(), place.scratch() as scratch:
        if isinstance(place.scorers[task.scorer], ByTests):
            before, after = examine(task, Bench(manifest=manifest, scratch=scratch))
            return (
                f"all of {REPEATS} runs without the change fail and all with it pass, in "
                f"{before:.1f} and {after:.1f} s each"
            )
        _check_scorer(task, place.scorers[task.scorer])
        if task.stochastic:
            return "it is declared stochastic"
        tree = scratch / "head"
        tree.mkdir()
        export(place.repository, head.commit, manifest, tree)
        answers = [
            run_task(task, tree, manifest, scorers=place.scorers, arm="base", scratch=scratch)
            for _ in range(REPEATS)
        ]
    different = [each for each in answers if _worth(each) != _worth(answers[0])]
    if different:
        raise TaskError(
            f"{len(different)} of {REPEATS} answers of the line's head are worth something else "
            "than the first, so the task is not deterministic; declare it with --stochastic"
        )
    return f"{REPEATS} answers of the line's head are worth the same"


def _worth(result: Any) -> tuple[Any, ...]:
    return result.success, result.validation_failures, dict(result.metrics), result.problem


def _check_scorer(task: Task, scorer: Scorer) -> None:
    """Raise TaskError where the scorer takes no answer for right, or an empty one."""
    right = {
        "exact": task.expected.get("answer"),
        "acceptable": (task.expected.get("answers") or [None])[0],
        "selection": task.expected.get("needed"),
    }
    if task.scorer not in right:  # a scorer of the repository's own, whose makers test it
        return
    if not scorer(task, lambda _: right[task.scorer]).success:
        raise TaskError(f"the scorer {task.scorer} refuses the expected answer itself")
    try:
        idle = scorer(task, lambda _: [] if task.scorer == "selection" else None).success
    except CandidateError:
        idle = False
    if idle:
        raise TaskError("an empty answer is right already, so the task measures nothing")


def _from_change(
    controller: Controller,
    repository: Repository,
    commit: str,
    wish: Wish,
    into: Path,
    *,
    source: str,
    own: bool = True,
) -> Task:
    place = controller.place
    manifest = place.manifest(controller.line.head.commit)
    change = read_change(
        repository,
        commit,
        is_test=manifest.is_test,
        also=wish.also if own else ("*",),
        only_tests=wish.tests,
    )
    issue = wish.issue or change.message
    if not issue.strip():
        raise TaskError("a task needs the text of its issue; name a file with --issue")
    entry = _entry(
        wish,
        source=source,
        commit=commit if own else None,
        day=_today(controller),
        outcome="the files that the change needs are named"
        if wish.kind == "plan"
        else "the hidden tests pass",
        text=issue.strip().splitlines()[0],
    )
    files = {SNAPSHOT_FILE: _json(change.snapshot), ISSUE: f"{issue.strip()}\n".encode()}
    if wish.kind == "plan":
        needed = [path for path in change.changed if path in change.snapshot]
        task = Task(
            entry=entry,
            kind="plan",
            seed=0,
            stochastic=wish.stochastic,
            scorer="selection",
            parameters={},
            files=files,
            expected={"needed": needed, "cap": wish.most or len(change.snapshot)},
        )
        return _write(task, into)
    with controller.locked(), place.scratch() as scratch:
        bench = Bench(manifest=manifest, scratch=scratch)
        task = _with_tests(entry, wish, change, files)
        seconds, expected = _cases(task, change, bench, narrow=wish.narrow)
    expected["seconds"] = min(_PATIENCE, max(60, round(seconds * _ROOM)))
    return _write(msgspec.structs.replace(task, expected=expected), into)


def _with_tests(entry: TaskEntry, wish: Wish, change: Change, files: Mapping[str, bytes]) -> Task:
    return Task(
        entry=msgspec.structs.replace(entry, expected_diff_path=f"{TASKS}/{wish.name}/{_DIFF}"),
        kind="implement",
        seed=0,
        stochastic=wish.stochastic,
        scorer=BY_MODEL if wish.by_model else TESTED,
        parameters={},
        files=files,
        expected={
            "tests": dict(change.tests),
            "run": list(change.run),
            "fails": ["?"],
            "seconds": _PATIENCE,
        },
        diff=change.diff,
    )


def _cases(
    task: Task, change: Change, bench: Bench, *, narrow: bool
) -> tuple[float, dict[str, Any]]:
    """Run the tests once without and once with the change; return what is expected of them."""
    try:
        before, after = (run_hidden(task, diff, bench) for diff in (None, change.diff))
    except CandidateError as error:
        raise TaskError(str(error)) from error
    fails, keeps, rest = sort_cases(before.cases, after.cases)
    if not fails:
        raise TaskError(
            "no hidden case fails without the change and passes with it: the tests say "
            f"{after.problem or 'the same before and after'}"
        )
    expected = {**task.expected, "fails": list(fails), "keeps": list(keeps)}
    if narrow:
        expected |= {"run": [node_of(case, change.run) for case in fails], "keeps": []}
    else:
        expected["left_out"] = [node_of(case, change.run) for case in rest if "::test" in case]
    return after.seconds, expected


def _situations(entries: Sequence[Any]) -> list[Observation]:
    """Return what was due in a run, epoch by epoch, where today's rules of the set agree."""
    from judge.auditing.replay import replay_run  # noqa: PLC0415 - imports PyTorch

    try:
        replay = replay_run(entries, config=JudgeConfig())
    except StepError as error:
        raise TaskError(f"the run does not replay: {error}") from error
    epochs = dict.fromkeys(past.epoch for past in replay.run.decisions)
    seen = [replay.observation(epoch) for epoch in epochs]
    return [
        each
        for each in seen
        if each.due and expected_answers(from_plain(to_plain(each))) == expected_answers(each)
    ]


def _entry(
    wish: Wish, *, source: str, commit: str | None, day: date, outcome: str, text: str
) -> TaskEntry:
    try:
        return msgspec.convert(
            {
                "task_id": wish.name,
                "source": source,
                "source_commit": commit,
                "description": text[:4_000],
                "expected_outcome": outcome,
                "expected_diff_path": None,
                "categories": [*dict.fromkeys(wish.categories)],
                "difficulty": wish.difficulty,
                "added_by": "person",
                "added_at": day,
                "regression_anchor_for": wish.anchor,
            },
            TaskEntry,
        )
    except msgspec.ValidationError as error:
        raise ProctorError(f"the task cannot be described so: {error}") from error


def _write(task: Task, into: Path) -> Task:
    if (into / TASKS / task.task_id).exists():
        raise ProctorError(
            f"{into / TASKS / task.task_id} already exists; choose another name, or delete it"
        )
    write_tasks(into, [task], add=(into / MANIFEST).exists())
    return task


def _today(controller: Controller) -> date:
    return datetime.fromtimestamp(controller.place.clock(), UTC).date()


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by path, but for git's own."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    }
