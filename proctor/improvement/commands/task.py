"""`proctor line task`: reference tasks from calls, commits, folders, runs and regressions."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from judge.approvals import LEDGER
from judge.gauntlet import anchors, reviews
from judge.gauntlet.controller import Controller
from judge.gauntlet.tasks.reference_set import MANIFEST, Task, write_tasks
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Argument, Takes
from proctor.errors import ProctorError
from proctor.improvement import task_drafts
from proctor.improvement.commands.sign import Signing
from proctor.improvement.enroll import SET
from proctor.improvement.home import LineOptions, hidden_tasks
from proctor.improvement.task_drafts import Wish
from proctor.inputs import read_text

app = CommandGroup("task", "Make reference tasks, examine them, and let them into the set.")

_SIGNED = "signed.json"  # beside carried drafts


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a task is made of."""

    commit: Annotated[
        str | None,
        "Draft it from a commit: its parent's files, its tests, and what it changed.",
        Takes("COMMIT"),
    ] = None
    before: Annotated[
        Path | None,
        "Draft it from two folders: files as they are, and --after.",
        Takes(folder=True),
    ] = None
    after: Annotated[Path | None, "Files with the change and its tests.", Takes(folder=True)] = None
    run: Annotated[
        str | None,
        "Draft it from a verified run of the home: its situations are decided again.",
        Takes("RUN"),
    ] = None
    function: Annotated[
        str | None,
        "Write it into the work tree: one call of this function, and --expect.",
        Takes("MODULE:NAME"),
    ] = None
    expect: Annotated[str | None, "Value that the function must return.", Takes("JSON")] = None
    arguments: Annotated[
        list[str] | None, "Argument of the call, in order.", Takes("JSON", option="--argument")
    ] = None

    def verify(self, wish: Wish) -> None:
        """Raise ProctorError unless it is one source."""
        sources = (self.commit, self.before or self.after, self.run, self.function)
        if sum(each is not None for each in sources) != 1:
            raise ProctorError(
                "say what the task is made of: one of --commit, --before with --after, --run and "
                "--function"
            )
        if (self.before is None) != (self.after is None):
            raise ProctorError("--before and --after are two folders; give both")
        if self.before is not None and wish.issue is None:
            raise ProctorError("a new task needs the text of its issue: name a file with --issue")


@app.command(prints="improvement.Drafted | improvement.Folder")
def new(
    name: Annotated[str, "Name of the task.", Argument("NAME")],
    source: Source,
    wish: Wish,
    where: LineOptions,
) -> Output:
    """Draft a task from a commit, two folders or a run; or write one that is a single call."""
    source.verify(wish)
    if source.function is not None:
        place = task_drafts.from_call(
            where.repo,
            source.function,
            [_read_json(each, "--argument") for each in source.arguments or []],
            _read_json(source.expect, "--expect"),
            name=name,
            wish=wish,
        )
        text = f"wrote {place}; commit {where.repo / SET} to the branch"
        return Output({"folder": str(place)}, text)
    require_extra("train")
    with where.open() as controller:
        into = wish.out or task_drafts.drafts_folder(where.home, controller.line.id)
        told: dict[str, Any] = {"name": name, "wish": wish, "into": into}
        if source.run is not None:
            task = task_drafts.from_run(controller, where.home, source.run, **told)
        elif source.commit is not None:
            task = task_drafts.from_commit(controller, source.commit, **told)
        else:
            before, after = map(Path, (source.before or "", source.after or ""))  # both are there
            task = task_drafts.from_folders(controller, before, after, **told)
    return _drafted(task, into)


@app.command(prints="improvement.Admitted | improvement.CarriedTasks")
def admit(
    where: LineOptions,
    signing: Signing,
    task: Annotated[
        str | None, "Draft, or task of `line show --list anchors`.", Argument("[TASK]")
    ] = None,
    out: Annotated[
        Path | None, "Folder of the reference set, in your work tree; by default the one in --repo."
    ] = None,
    drafts: Annotated[Path | None, "Folder of drafts; by default the line's, in the home."] = None,
    signed: Annotated[bool, "Refuse drafts that no operator has signed, as --carry does."] = False,
    carry: Annotated[
        bool,
        "Admit none: sign all drafts, and copy them to --out, a new folder, to admit them "
        "on another machine.",
    ] = False,
) -> Output:
    """Let a task into the set: examine it, sign it, and write it into a work tree."""
    if carry:
        if task is not None or out is None:
            raise ProctorError("--carry copies all drafts: give --out DIR, and no TASK")
        return _carry(where, signing, out, drafts)
    if task is None:
        raise ProctorError("name the TASK to admit")
    with where.open() as controller:
        line = controller.line
        folder = drafts or task_drafts.drafts_folder(where.home, line.id)
        if signed:
            envelope = read_text(folder / _SIGNED)
            sha256 = controller.place.set_in(folder).sha256
            reviews.verify_carried(controller.place, envelope, sha256=sha256)
        found = task_drafts.find_draft(folder, task, controller.place.scorers)
        if found is not None:
            require_extra("train")
            because = task_drafts.check(controller, found)
            written = found
        else:
            found, because = _anchor(controller, where, task)
            written = anchors.as_anchor(found, because=because)
        subjects = {LEDGER: controller.place.ledger, "task": found.sha256}
        said = signing.envelope("admit", line=line.id, subjects=subjects, days=1)
        into = out or where.repo / controller.place.manifest(line.head.commit).reference_set
        reviews.admit(controller.place, said, task=task, sha256=found.sha256)
        write_tasks(into, [written], add=(into / MANIFEST).exists())
    return Output(
        {"task": task, "sha256": found.sha256, "into": into, "found": because},
        f"{task}: {because}\n{task} is written into {into}; commit it, and `proctor line sign "
        "adopt` that commit",
    )


def _carry(where: LineOptions, signing: Signing, folder: Path, drafts: Path | None) -> Output:
    """Copy the drafts to a folder and sign them, to admit them on another machine."""
    if folder.exists() and any(folder.iterdir()):
        raise ProctorError(f"{folder} is not empty; choose another folder")
    with where.open() as controller:
        line = controller.line
        source = drafts or task_drafts.drafts_folder(where.home, line.id)
        whole = controller.place.set_in(source)
        tasks = (*whole.tasks, *whole.unasked)
        write_tasks(folder, tasks)
        sha256 = controller.place.set_in(folder).sha256
        subjects = {LEDGER: controller.place.ledger, "set": sha256}
        said = signing.envelope("carry", line=line.id, subjects=subjects)
        (folder / _SIGNED).write_text(said, encoding="utf-8")
    return Output(
        {"folder": folder, "tasks": [each.task_id for each in tasks], "sha256": sha256},
        f"{counted(len(tasks), 'task')} signed in {folder}",
    )


def _read_json(text: str | None, option: str) -> Any:
    if text is None:
        raise ProctorError(f"{option} is missing: the value that the function must return")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProctorError(
            f"{option} {text} must be JSON, as in '\"text\"' or 3: {error}"
        ) from error


def _drafted(task: Task, into: Path) -> Output:
    cases = {name: len(task.expected.get(name, ())) for name in ("fails", "keeps", "left_out")}
    told = (
        f"{counted(cases['fails'], 'hidden case')} "
        f"{'fails' if cases['fails'] == 1 else 'fail'} without the change, "
        f"{cases['keeps']} pass before and after it"
        if task.diff is not None
        else f"kind {task.kind}"
    )
    return Output(
        {"task": task.task_id, "drafts": into, "files": sorted(task.files), **cases},
        f"drafted {task.task_id} in {into}: {told}\n"
        f"next: read it, then `proctor line task admit {task.task_id}`",
    )


def _anchor(controller: Controller, where: LineOptions, name: str) -> tuple[Task, str]:
    """Return a task that found a regression, marked as its anchor, and which one."""
    line = controller.line
    hidden = hidden_tasks(where.home, controller)
    listed = anchors.candidates(controller.place, controller.records, hidden=hidden)
    found = next((each for each in listed if each.task == name), None)
    if found is None or found.sha256 is None:
        raise ProctorError(
            f"{name!r} is no draft and found no regression; see `proctor line task new` and "
            "`proctor line show --list anchors`"
        )
    own = controller.place.reference_set(line.head.commit).tasks
    content = next(each for each in (*own, *hidden) if each.task_id == name)
    return content, found.because[0]
