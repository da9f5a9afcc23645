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
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from aggregates.decisions import Observation
from aggregates.run import Run
from aggregates.spec import WatchedModel, spec_of
from judge.auditing.events import decode_events
from judge.errors import StepError
from judge.gauntlet.arms import answering
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import CandidateError, TaskError
from judge.gauntlet.repository.failures import last_error
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.tasks.benchmark import Turn
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
    Task,
    TaskEntry,
    load,
    write_tasks,
)
from judge.gauntlet.tasks.scoring import Scorer
from judge.reference.observations import from_plain, to_plain
from judge.reference.oracle import expected_answers
from proctor.cli.options import Takes
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.challenge import KIND as DECISIONS
from proctor.improvement.challenge import RIGHT, decisions_task
from proctor.improvement.enroll import SET, WORKER
from proctor.improvement.home import line_folder
from proctor.inputs import read_text
from proctor.remembering import open_session
from proctor.runs.replay import read_recording

DRAFTS = "candidates"  # below a line's folder
ISSUE = "issue.md"
_DIFF = "expected.diff"
_PERSON = "written by a person"  # a source
_PATIENCE = 600  # s for the first run
_ROOM = 10  # runs that a test run may take longer than in the draft
_MOST_MOMENTS = 12  # of a run
_HELD = "SELECT held FROM counting_audits WHERE run_id = ?"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a person says of a task."""

    categories: Annotated[
        list[str] | None, "Category; may be repeated.", Takes(option="--category")
    ] = None
    difficulty: Annotated[Literal["easy", "medium", "hard"], "How hard the task is."] = "medium"
    issue: Annotated[Path | None, "File with the text that the candidate gets."] = None
    anchor: Annotated[str | None, "Regression that the task must find again, in words."] = None
    stochastic: Annotated[bool, "Declare that right answers can fail."] = False
    kind: Annotated[
        Literal["implement", "plan"],
        "implement: the candidate answers with a diff, and hidden tests run. plan: it "
        "names the files that the change needs.",
    ] = "implement"
    by_model: Annotated[bool, "Ask the task only where a server is configured for the line."] = (
        False
    )
    tests: Annotated[
        list[str] | None,
        "Test file to run, if not all changed ones.",
        Takes("PATH", option="--test"),
    ] = None
    narrow: Annotated[bool, "Run only the cases that the change makes pass."] = False
    most: Annotated[
        int | None, "Most files that a plan names; by default as many as there are.", Takes(least=1)
    ] = None
    include: Annotated[
        list[str] | None, "With --commit: more files to show, as in 'lib/*.sql'.", Takes("PATTERN")
    ] = None
    out: Annotated[Path | None, "Folder for the draft; by default the line's, in the home."] = None

    @property
    def text(self) -> str:
        """The text of the issue; empty: that of the source."""
        return "" if self.issue is None else read_text(self.issue)


def drafts_folder(home: Home, line: UUID) -> Path:
    """Return where the drafts of a line lie."""
    return line_folder(home, line) / DRAFTS


def from_commit(controller: Controller, commit: str, name: str, wish: Wish, into: Path) -> Task:
    """Draft a task from a commit of the line's repository."""
    repository = controller.place.repository
    found = repository.commit_of(commit)
    return _from_change(controller, repository, found, name=name, wish=wish, into=into, own=True)


def from_folders(
    controller: Controller, before: Path, after: Path, *, name: str, wish: Wish, into: Path
) -> Task:
    """Draft a task from two folders: the files as they are, and with the change and its tests."""
    with TemporaryDirectory() as scratch:
        repository, commit = Repository.of_files(
            Path(scratch) / "repository", _files(before), _files(after)
        )
        return _from_change(
            controller, repository, commit, name=name, wish=wish, into=into, own=False
        )


def from_call(
    repo: Path,
    function: str,
    arguments: Sequence[object],
    expected: object,
    *,
    name: str,
    wish: Wish,
) -> Path:
    """Write a task that is one call of `package.module:name` into a work tree's reference set."""
    worker = repo / WORKER
    if not worker.is_file():
        raise ProctorError(
            f"{worker} not found; run `proctor line init {repo} --function MODULE:NAME` first"
        )
    if f'"{function}"' not in worker.read_text(encoding="utf-8"):
        raise ProctorError(
            f"{worker} does not know {function}: import it there, and add it to FUNCTIONS"
        )
    said = f"{function} with {json.dumps(arguments)} returns {json.dumps(expected)}"
    entry = _entry(
        name,
        wish,
        kind="behaviour",
        source=_PERSON,
        day=date.today(),
        outcome=said,
        text=said,
    )
    task = Task(
        entry=entry,
        kind="call",
        scorer="exact",
        parameters={"function": function, "arguments": list(arguments)},
        files={},
        expected={"answer": expected},
    )
    _write(task, repo / SET)
    return repo / SET / TASKS / name


def from_run(
    controller: Controller, home: Home, run: str, *, name: str, wish: Wish, into: Path
) -> Task:
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
    shown = _situations(recording.entries)[:_MOST_MOMENTS]
    if not shown:
        raise TaskError(
            f"no rule of the reference set was due in run {recording.run_id}, so there is nothing "
            "to decide"
        )
    entry = _entry(
        name,
        wish,
        kind=DECISIONS,
        source=f"run {recording.run_id}, verified",
        day=_today(controller),
        outcome=RIGHT,
        text=wish.text or "Situations of a verified run are decided again",
    )
    return _write(decisions_task(entry, shown, stochastic=wish.stochastic), into)


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
        known = (task, *whole.tasks)
        with answering(place, {"base": head.commit}, manifest, known) as asking:
            answers = [*asking.each([Turn(task=task, seed=task.seed)] * REPEATS)]
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
    *,
    name: str,
    wish: Wish,
    into: Path,
    own: bool,
) -> Task:
    place = controller.place
    manifest = place.manifest(controller.line.head.commit)
    change = read_change(
        repository,
        commit,
        is_test=manifest.is_test,
        also=(wish.include or ()) if own else ("*",),
        only_tests=wish.tests or (),
    )
    issue = wish.text or change.message
    if not issue.strip():
        raise TaskError("a task needs the text of its issue; name a file with --issue")
    entry = _entry(
        name,
        wish,
        kind=wish.kind,
        source=f"commit {commit}" if own else _PERSON,
        commit=commit if own else None,
        day=_today(controller),
        outcome="the files that the change needs are named"
        if wish.kind == "plan"
        else "the hidden tests pass",
        text=issue.strip().splitlines()[0],
    )
    snapshot = json.dumps(change.snapshot, indent=1, sort_keys=True, ensure_ascii=False)
    files = {SNAPSHOT_FILE: f"{snapshot}\n".encode(), ISSUE: f"{issue.strip()}\n".encode()}
    needed = [path for path in change.changed if path in change.snapshot]
    task = Task(
        entry=entry,
        kind="plan",
        stochastic=wish.stochastic,
        scorer="selection",
        files=files,
        expected={"needed": needed, "cap": wish.most or len(change.snapshot)},
    )
    if wish.kind == "plan":
        return _write(task, into)
    task = msgspec.structs.replace(
        task,
        entry=msgspec.structs.replace(entry, expected_diff_path=f"{TASKS}/{name}/{_DIFF}"),
        kind="implement",
        scorer=BY_MODEL if wish.by_model else TESTED,
        expected={
            "tests": dict(change.tests),
            "run": list(change.run),
            "fails": ["?"],
            "seconds": _PATIENCE,
        },
        diff=change.diff,
    )
    with controller.locked(), place.scratch() as scratch:
        bench = Bench(manifest=manifest, scratch=scratch)
        seconds, expected = _cases(task, change, bench, narrow=wish.narrow)
    expected["seconds"] = min(_PATIENCE, max(60, round(seconds * _ROOM)))
    return _write(msgspec.structs.replace(task, expected=expected), into)


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
        ran = "passed" in after.cases.values()
        raise TaskError(
            "no hidden case fails without the change and passes with it: the tests say "
            f"{after.problem or 'the same before and after'}"
            f"{'' if ran else f': {last_error(after.output)}'}"
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
        replay = replay_run(entries)
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
    name: str,
    wish: Wish,
    *,
    kind: str,
    source: str,
    day: date,
    outcome: str,
    text: str,
    commit: str | None = None,
) -> TaskEntry:
    try:
        return msgspec.convert(
            {
                "task_id": name,
                "source": source,
                "source_commit": commit,
                "description": text[:4_000],
                "expected_outcome": outcome[:4_000],
                "expected_diff_path": None,
                "categories": [*dict.fromkeys(wish.categories or [kind])],
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
            f"{into / TASKS / task.task_id} already exists; choose another name, or edit it"
        )
    write_tasks(into, [task], add=(into / MANIFEST).exists())
    return task


def _today(controller: Controller) -> date:
    return datetime.fromtimestamp(controller.place.clock(), UTC).date()


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by path, but for git's own."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    }
