"""`proctor infra task`: reference tasks from commits, folders, runs and regressions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from judge.approvals import LEDGER
from judge.gauntlet import anchors, reviews
from judge.gauntlet.controller import Controller
from judge.gauntlet.tasks.reference_set import MANIFEST, Task, write_tasks
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.infra_review import DaysOption, Signing
from proctor.cli.inputs import read_text
from proctor.errors import ProctorError
from proctor.improvement import task_drafts
from proctor.improvement.enroll import check_difficulty
from proctor.improvement.home import SERVER, LineOptions, hidden_folder, line_folder
from proctor.improvement.server import read_server, write_server
from proctor.improvement.task_drafts import Wish
from proctor.runs.run_settings import read_pairs

app = CommandGroup("task", "Make reference tasks, examine them, and let them into the set.")
NameOption = Annotated[str, typer.Option("--name", help="Name of the task.")]
DraftsOption = Annotated[
    Path | None,
    typer.Option("--drafts", help="Folder of drafts; by default the line's, in the home."),
]
KINDS = ("implement", "plan")
_SIGNED = "signed.json"  # beside carried drafts


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a person says of every task."""

    category: Annotated[
        list[str] | None, typer.Option("--category", help="Category; may be repeated.")
    ] = None
    difficulty: Annotated[
        str, typer.Option("--difficulty", help="Difficulty: easy, medium or hard.")
    ] = "medium"
    issue: Annotated[
        Path | None, typer.Option("--issue", help="File with the text that the candidate gets.")
    ] = None
    anchor: Annotated[
        str | None,
        typer.Option("--anchor", help="Regression that the task must find again, in words."),
    ] = None
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Declare that right answers can fail.")
    ] = False
    drafts: DraftsOption = None

    def wish(self, name: str, kind: str = "", **more: Any) -> Wish:
        """Return the wish for a task of this name."""
        return Wish(
            name=name,
            kind=kind,
            issue="" if self.issue is None else read_text(self.issue),
            categories=self.category or [kind or "decisions"],
            difficulty=check_difficulty(self.difficulty),
            stochastic=self.stochastic,
            anchor=self.anchor,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class Tested:
    """How a task with hidden tests is made."""

    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="implement: the candidate answers with a diff, and hidden tests run. plan: it "
            "names the files that the change needs.",
        ),
    ] = KINDS[0]
    by_model: Annotated[
        bool,
        typer.Option(
            "--by-model", help="Ask the task only where a server is configured for the line."
        ),
    ] = False
    tests: Annotated[
        list[str] | None,
        typer.Option("--test", metavar="PATH", help="Test file to run, if not all changed ones."),
    ] = None
    narrow: Annotated[
        bool, typer.Option("--narrow", help="Run only the cases that the change makes pass.")
    ] = False

    most: Annotated[
        int | None,
        typer.Option(
            "--most", min=1, help="Most files that a plan names; by default as many as there are."
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return these for a wish."""
        if self.kind not in KINDS:
            raise ProctorError(f"--kind {self.kind}: must be one of {', '.join(KINDS)}")
        return {
            "kind": self.kind,
            "by_model": self.by_model,
            "tests": self.tests or (),
            "narrow": self.narrow,
            "most": self.most,
        }


@app.command("from-commit", prints="improvement.Drafted")
def from_commit(
    where: LineOptions,
    words: Words,
    tested: Tested,
    commit: Annotated[str, typer.Argument(metavar="COMMIT", help="Commit of the repository.")],
    name: NameOption,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="PATTERN", help="More files to show, as in 'lib/*.sql'."),
    ] = None,
) -> Output:
    """Draft a task from a commit: its parent's files, its tests, and what it changed."""
    require_extra("train")
    with where.open() as controller:
        into = words.drafts or task_drafts.drafts_folder(where.home, controller.line.id)
        wish = words.wish(name, **tested.settings(), also=include or ())
        return _drafted(task_drafts.from_commit(controller, commit, wish, into), into)


@app.command(prints="improvement.Drafted")
def new(
    where: LineOptions,
    words: Words,
    tested: Tested,
    name: NameOption,
    before: Annotated[
        Path, typer.Option("--before", exists=True, file_okay=False, help="Files as they are.")
    ],
    after: Annotated[
        Path,
        typer.Option(
            "--after", exists=True, file_okay=False, help="Files with the change and its tests."
        ),
    ],
) -> Output:
    """Draft a task from two folders that you have written."""
    require_extra("train")
    if words.issue is None:
        raise ProctorError("a new task needs the text of its issue: name a file with --issue")
    with where.open() as controller:
        into = words.drafts or task_drafts.drafts_folder(where.home, controller.line.id)
        wish = words.wish(name, **tested.settings())
        return _drafted(task_drafts.from_folders(controller, before, after, wish, into), into)


@app.command("from-run", prints="improvement.Drafted")
def from_run(
    where: LineOptions,
    words: Words,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A verified run of the home.")],
    name: NameOption,
) -> Output:
    """Draft a task from a verified run: its situations are decided again."""
    require_extra("train")
    with where.open() as controller:
        into = words.drafts or task_drafts.drafts_folder(where.home, controller.line.id)
        found = task_drafts.from_run(controller, where.home, run, words.wish(name), into)
        return _drafted(found, into)


@app.command(prints="improvement.Admitted")
def admit(
    where: LineOptions,
    signing: Signing,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Draft, or task from the list of `anchors`.")
    ],
    into: Annotated[
        Path, typer.Option("--into", help="Folder of the reference set, in your work tree.")
    ],
    drafts: DraftsOption = None,
    signed: Annotated[
        bool,
        typer.Option(
            "--signed", help="Refuse drafts that no operator has signed, as `carry` does."
        ),
    ] = False,
) -> Output:
    """Let a task into the set: examine it, sign it, and write it into a work tree."""
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
        ledger = {LEDGER: controller.place.ledger}
        said = signing.envelope("admit", line=line.id, subjects={**ledger, "task": found.sha256})
        reviews.admit(controller.place, said, task=task, sha256=found.sha256)
        write_tasks(into, [written], add=(into / MANIFEST).exists())
    return Output(
        {"task": task, "sha256": found.sha256, "into": into, "found": because},
        f"{task}: {because}\n{task} is written into {into}; commit it, and `proctor infra adopt` "
        "that commit",
    )


@app.command(prints="improvement.CarriedTasks")
def carry(
    where: LineOptions,
    signing: Signing,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    days: DaysOption = 7,
    drafts: DraftsOption = None,
) -> Output:
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
        said = signing.envelope(
            "carry",
            line=line.id,
            subjects={LEDGER: controller.place.ledger, "set": sha256},
            days=days,
        )
        (folder / _SIGNED).write_text(said, encoding="utf-8")
    return Output(
        {"folder": folder, "tasks": [each.task_id for each in tasks], "sha256": sha256},
        f"{counted(len(tasks), 'task')} signed in {folder}",
    )


@app.command(prints="improvement.Server")
def server(
    where: LineOptions,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of the model; see `run`."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Configure no server.")] = False,
) -> Output:
    """Show or configure the model that answers this line's tasks for a model."""
    with where.open() as controller:
        file = line_folder(where.home, controller.line.id) / SERVER
        found = read_server(file)
        if none or settings:
            found = write_server(file, None if none else read_pairs(settings or []))
        place = controller.place
        whole = place.reference_set(controller.line.head.commit)
    told = None if found is None else found.to_dict()
    unasked = [] if found is not None else [each.task_id for each in whole.unasked]
    text = "no server" if found is None else f"{found.model} at {found.base_url or 'the default'}"
    if unasked:
        text += f"; {counted(len(unasked), 'task')} for a model weigh nothing"
    return Output({"server": told, "not_asked": unasked}, text)


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
        f"drafted {task.task_id} in {into}: {told}\nnext: read it, then `proctor infra task admit`",
    )


def _anchor(controller: Controller, where: LineOptions, name: str) -> tuple[Task, str]:
    """Return a task that found a regression, marked as its anchor, and which one."""
    line = controller.line
    folder = hidden_folder(where.home, line.id)
    hidden = () if folder is None else controller.place.set_in(folder).tasks
    listed = anchors.candidates(controller.place, controller.records, hidden=hidden)
    found = next((each for each in listed if each.task == name), None)
    if found is None or found.sha256 is None:
        raise ProctorError(
            f"{name!r} is no draft and found no regression; see `proctor infra task from-commit` "
            "and `proctor infra anchors`"
        )
    own = controller.place.reference_set(line.head.commit).tasks
    content = next(each for each in (*own, *hidden) if each.task_id == name)
    return content, found.because[0]
