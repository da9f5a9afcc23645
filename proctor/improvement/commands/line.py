"""`proctor line`: a repository that changes itself, under a gauntlet that it cannot change."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from aggregates.improvement.proposal import TRIGGERS, Proposal
from judge.errors import JudgeError
from judge.gauntlet import measurement
from judge.gauntlet.controller import Controller
from judge.gauntlet.repository.failures import commit_it
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Argument, Takes, verify_unused
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.enroll import enroll, left_out
from proctor.improvement.home import (
    BRANCH,
    SERVER,
    AskersOption,
    BranchOption,
    DrawSeedOption,
    LineOptions,
    find_proposal,
    hidden_folder,
    line_folder,
)
from proctor.improvement.reports import describe_line
from proctor.improvement.server import write_server
from proctor.improvement.shapes import Queued
from proctor.improvement.siblings import hidden_set
from proctor.inputs import read_text
from proctor.output.terminal import print_table, print_words
from proctor.runs.run_settings import read_pairs
from proctor.sample.demo import tell_demo
from proctor.sample.init import make_sample

_HERE = "proctor.improvement.commands"
app = CommandGroup(
    "line",
    "Propose, judge and promote changes of a repository, under an operator's control.",
    lazy={
        name: f"{_HERE}.{name}"
        for name in ("show", "sign", "evolve", "bisect", "rollback", "watch", "task")
    },
)

_OFF = "off"


@app.command(
    prints="improvement.Line | improvement.WrittenNames | improvement.Server "
    "| proctor.sample.demo.GauntletDemo"
)
def init(
    home: Home,
    folder: Annotated[Path, "New folder, or your repository.", Argument("FOLDER")],
    functions: Annotated[
        list[str] | None,
        "Function that reference tasks call: FOLDER is your repository, and gets a "
        "manifest and a worker.",
        Takes("MODULE:NAME", option="--function"),
    ] = None,
    environment: Annotated[
        str | None,
        "With --function: virtual environment with the dependencies, relative to FOLDER; "
        "by default .venv or venv if it exists, and otherwise Proctor's own.",
        Takes("DIR"),
    ] = None,
    server: Annotated[
        list[str] | None,
        "Setting of the language model that answers the tasks for one, as in `run --set`; "
        f"{_OFF}: no model does. FOLDER is a repository with a line.",
        Takes("KEY=VALUE"),
    ] = None,
    demo: Annotated[
        bool, "Show a harmful, a good and a bypassing change in the new sample."
    ] = False,
    branch: BranchOption = BRANCH,
) -> Output:
    """Make a sample repository to try the gauntlet on, or put your own under it."""
    if sum(map(bool, (functions, server, demo))) > 1 or (environment and not functions):
        raise ProctorError(
            "give one of --function, --server and --demo; --environment is for --function"
        )
    if functions:
        written = enroll(folder, functions=functions, branch=branch, environment=environment)
        lines = [
            *(f"wrote {path}" for path in written),
            "next: read the tiers, add reference tasks with `proctor line task new NAME`, and "
            "commit all",
        ]
        note = ""
        if others := left_out(folder, branch):
            note = (
                f"not on branch {branch!r}, so tests and tasks will not find it: "
                f"{', '.join(others)}; if code imports it, {commit_it(' '.join(others))}"
            )
        return Output({"written": [str(path) for path in written]}, "\n".join(lines), note=note)
    if server:
        return _configured(LineOptions(repo=folder, branch=branch, home=home), server)
    if demo:
        require_extra("train")
        return tell_demo(home, folder)
    line = make_sample(home, folder)
    with LineOptions(repo=folder, home=home).open() as controller:
        told = describe_line(controller)
    repo = shlex.quote(str(folder))
    return Output(
        told,
        f"made {folder}, whose branch {BRANCH} is line {line}\n"
        f"next: change retrieval/settings.toml in it, then `git -C {repo} diff > change.diff` and "
        f"`proctor line propose change.diff --repo {repo} --rationale TEXT`",
    )


def _configured(where: LineOptions, said: list[str]) -> Output:
    """Configure the model that answers the line's tasks for a model, or none."""
    with where.open() as controller:
        file = line_folder(where.home, controller.line.id) / SERVER
        found = write_server(file, None if said == [_OFF] else read_pairs(said))
        unasked = controller.place.reference_set(controller.line.head.commit).unasked
    left = [] if found is not None else [each.task_id for each in unasked]
    text = "no server" if found is None else f"{found.model} at {found.base_url or 'the default'}"
    if left:
        text += f"; {counted(len(left), 'task')} for a model weigh nothing"
    told = None if found is None else found.to_dict()
    return Output({"server": told, "not_asked": left}, text)


@app.command(prints="list[improvement.Queued]")
def propose(
    where: LineOptions,
    diff: Annotated[Path, "Unified diff against the line.", Argument("DIFF")],
    rationale: Annotated[str, "What the change solves, and how."],
    trigger: Annotated[str, f"{', '.join(TRIGGERS)}."] = "operator_request",
    proposer: Annotated[str, "Name of the proposer."] = "person",
) -> Output:
    """Record a proposal; `line run` takes it through the gauntlet."""
    content = read_text(diff).encode()
    with where.open() as controller:
        with controller.locked():  # so that the line stays where the diff was tried
            if not (tiers := controller.tiers(content)):
                raise ProctorError("the diff changes nothing: change at least one file")
            proposal = controller.submit(
                content,
                declared=tiers,
                rationale=rationale,
                trigger=trigger,
                proposer=proposer,
            )
        return _became(controller, [proposal])


@app.command(
    prints="list[improvement.Queued] | judge.gauntlet.measurement.Measurement "
    "| proctor.improvement.challenge.Challenge",
    continues="always",
)
def run(
    where: LineOptions,
    proposal: Annotated[
        str | None, "Proposal to run; by default all queued ones, in order.", Argument("[PROPOSAL]")
    ] = None,
    measure: Annotated[
        bool,
        "Run no proposal: evaluate the branch, hidden siblings of the tasks included; "
        "exit code 1 on an alarm.",
    ] = False,
    fresh: Annotated[
        bool, "With --measure: draw other hidden siblings first, of tasks that are calls."
    ] = False,
    challenge: Annotated[
        int | None,
        "Run no proposal: draw so many situations, and draft tasks of those that the "
        "branch decides wrongly; exit code 1 if there are any.",
        Takes(least=1, most=1_000),
    ] = None,
    seed: DrawSeedOption = 0,
    workers: AskersOption = 1,
) -> Output:
    """Run proposals through the gauntlet, or continue an interrupted run."""
    require_extra("train")
    if sum((proposal is not None, measure, challenge is not None)) > 1:
        raise ProctorError("give one of PROPOSAL, --measure and --challenge")
    if challenge is None:
        verify_unused("only with --challenge", seed=seed)
    if not measure:
        verify_unused("only with --measure", fresh=fresh)
    with where.open(workers=workers) as controller:
        if measure:
            return _measured(where.home, controller, fresh=fresh)
        if challenge is not None:
            return _challenged(where.home, controller, challenge, seed)
        if proposal is None:
            chosen = [each.id for each in controller.queue()]
        else:
            chosen = [find_proposal(controller, proposal)]
        done, errors = [], list[Exception]()
        with controller.locked():
            for each in chosen:
                try:
                    done.append(controller.carry_on(each))
                except JudgeError as error:
                    errors.append(ProctorError(f"proposal {each} cannot be judged: {error}"))
                except Exception as error:  # nothing of one may stop the others
                    errors.append(error)
                if proposal is None:  # some are carried over, to a line that has moved
                    chosen += [new.id for new in controller.queue() if new.id not in chosen]
        if errors:
            raise errors[0]
        told, line = _became(controller, done), controller.line
        if line.halt is None:
            return told
        note = (
            f"the line is halted by proposal {line.halted_by}: {line.halt}; look at it with "
            f"`proctor line show {line.halted_by}`, then an operator answers with `proctor line "
            "sign resume --key KEY`"
        )
        return replace(told, note=note, found=True)


def _measured(home: Home, controller: Controller, *, fresh: bool) -> Output:
    with controller.locked():
        folder = hidden_folder(home, controller.line.id)
        siblings = hidden_set(controller.place, folder, fresh=fresh)
        found = measurement.measure(controller.place, hidden=siblings)

    def tell() -> None:
        print_table(
            ("set", "checkpoint", "branch"),
            [(name, f"{base:.0%}", f"{head:.0%}") for name, (base, head) in found.shares.items()],
        )
        for alarm in found.alarms:
            print_words(f"ALARM, {alarm.kind}: {alarm.detail}")

    return Output(found, tell, found=bool(found.alarms))


def _challenged(home: Home, controller: Controller, count: int, seed: int) -> Output:
    from proctor.improvement.challenge import challenge  # noqa: PLC0415 - knows this repository's tasks
    from proctor.improvement.task_drafts import drafts_folder  # noqa: PLC0415 - likewise

    folder = drafts_folder(home, controller.line.id)
    found = challenge(controller, folder, seed=seed, count=count)
    told = [f"{counted(found.tried, 'situation')} tried, {len(found.kept)} kept"]
    told += [str(found.folder / "tasks" / name) for name in found.kept]
    return Output(found, "\n".join(told), found=bool(found.kept))


def _became(controller: Controller, proposals: list[Proposal]) -> Output:
    """Return what became of proposals."""
    rows = [Queued.told(each, waits_for=controller.waits(each)) for each in proposals]
    lines = [
        f"{row.proposal} {row.outcome or f'at {row.stage}'}: "
        + (row.reason or row.waits_for or "continue with `proctor line run`")
        for row in rows
    ]
    found = any(row.outcome not in (None, "promoted") for row in rows)
    return Output(rows, "\n".join(lines) or "nothing to do: no proposal is queued", found=found)
