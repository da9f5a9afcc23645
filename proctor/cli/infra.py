"""`proctor infra`: a repository that changes itself, under a gauntlet that it cannot change."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aggregates.improvement.proposal import TRIGGERS, Proposal
from judge.errors import JudgeError
from judge.gauntlet import anchors, measurement
from judge.gauntlet.controller import Controller
from judge.gauntlet.records import results_of
from judge.gauntlet.repository.changes import tier_of_change
from judge.gauntlet.tasks import reference_set
from proctor.cli import infra_enroll, infra_evolve, infra_review, infra_task
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.inputs import read_text
from proctor.cli.options import JsonOption
from proctor.cli.remedies import completed, pasteable
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.home import (
    BRANCH,
    LineOptions,
    ProposalArgument,
    find_proposal,
    hidden_folder,
    open_controller,
)
from proctor.improvement.reports import (
    describe_line,
    describe_proposal,
    tell_events,
    tell_line,
    tell_proposal,
)
from proctor.output.terminal import console, print_table, words
from proctor.sample.demo import tell_demo
from proctor.sample.init import make_sample

app = CommandGroup(
    "infra", "Propose, judge and promote changes of a repository, under an operator's control."
)
app.add_typer(infra_enroll.app)
app.add_typer(infra_review.app)
app.add_typer(infra_evolve.app)
app.add_typer(infra_task.app)


@app.command(prints="improvement.Line")
def init(
    home: Home,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
) -> Output:
    """Make a sample repository to try the gauntlet on."""
    line = make_sample(home, folder)
    with open_controller(home, folder) as controller:
        told = describe_line(controller)

    def tell() -> None:
        console.print(words(f"made {folder}, whose branch {BRANCH} is line {line}"))
        repo = shlex.quote(str(folder))
        console.print(
            words(
                pasteable(
                    f"next: change retrieval/settings.toml in it, then "
                    f"`git -C {repo} diff > change.diff` and "
                    f"`proctor infra propose change.diff --repo {repo} "
                    "--rationale TEXT --tier retrieval/settings.toml=2`"
                )
            )
        )

    return Output(told, tell)


@app.command(prints="list[improvement.Queued]")
def propose(
    where: LineOptions,
    diff: Annotated[Path, typer.Argument(metavar="DIFF", help="Unified diff against the line.")],
    rationale: Annotated[str, typer.Option("--rationale", help="What the change solves, and how.")],
    tiers: Annotated[
        list[str] | None,
        typer.Option(
            "--tier", metavar="PATH=TIER", help="A file that the change touches, and its tier."
        ),
    ] = None,
    trigger: Annotated[
        str, typer.Option("--trigger", help=f"{', '.join(TRIGGERS)}.")
    ] = "operator_request",
    proposer: Annotated[str, typer.Option("--proposer", help="Name of the proposer.")] = "person",
) -> Output:
    """Record a proposal; `run` takes it through the gauntlet."""
    content = read_text(diff).encode()
    with where.open() as controller:
        with controller.locked():  # so that the line stays where the diff was tried
            proposal = controller.submit(
                content,
                declared=_declared(controller, content, tiers or []),
                rationale=rationale,
                trigger=trigger,
                proposer=proposer,
            )
        return _became(controller, [proposal])


@app.command(prints="list[improvement.Queued]", continues="always")
def run(
    where: LineOptions,
    proposal: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROPOSAL]", help="Proposals to run; by default all queued ones, in order."
        ),
    ] = None,
) -> Output:
    """Run proposals through the gauntlet, or continue an interrupted run."""
    require_extra("train")
    with where.open() as controller:
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
            f"`proctor infra show {line.halted_by}`, then an operator answers with `proctor infra "
            "resume`"
        )
        return replace(told, note=note, found=True)


@app.command(prints="improvement.Line")
def status(
    where: LineOptions,
) -> Output:
    """Show the line's status, its checkpoints and the queue."""
    with where.open() as controller:
        told = describe_line(controller)
    return Output(told, lambda: tell_line(told, named=pasteable))


@app.command(long=True, prints="improvement.WholeProposal")
def show(
    where: LineOptions,
    proposal: ProposalArgument = "latest",
) -> Iterator[Output]:
    """Show a proposal: its diff, its stages, and their ledger entries."""
    with where.open() as controller:
        found = controller.place.proposal(find_proposal(controller, proposal))
        text = controller.place.blobs.get(found.diff).decode(errors="replace")
        results = [vars(result) for result in results_of(found)]

        def tell() -> None:
            tell_proposal(controller, found, diff=True)
            tell_events(controller.place.log, found.id)

        yield Output({**describe_proposal(found), "text": text, "results": results}, tell)


@app.command(prints="improvement.Measurement")
def measure(
    where: LineOptions,
    hidden: Annotated[
        Path | None,
        typer.Option("--hidden", help="Folder with hidden siblings to use instead of the home's."),
    ] = None,
) -> Output:
    """Evaluate the branch, hidden siblings included; exit code 1 on an alarm."""
    require_extra("train")
    with where.open() as controller, controller.locked():
        siblings = hidden or hidden_folder(where.home, controller.line.id)
        found = measurement.measure(controller.place, hidden=siblings)

    def tell() -> None:
        print_table(
            ("set", "checkpoint", "branch"),
            [(name, f"{base:.0%}", f"{head:.0%}") for name, (base, head) in found.shares.items()],
        )
        for alarm in found.alarms:
            console.print(words(f"ALARM, {alarm.kind}: {alarm.detail}"))

    return Output(found, tell, found=bool(found.alarms))


@app.command(prints="list[improvement.Gap]")
def gaps(
    where: LineOptions,
) -> Output:
    """List the categories that the reference set covers least."""
    with where.open() as controller:
        whole = controller.place.reference_set(controller.line.head.commit)
        rows = reference_set.gaps((*whole.tasks, *whole.unasked))

    def tell() -> None:
        columns = ("category", *reference_set.DIFFICULTIES)
        print_table(columns, [(name, *counts.values()) for name, counts in rows])
        name, counts = rows[0]
        rarest = min(counts, key=lambda each: counts[each])
        command = f"proctor infra task from-commit COMMIT --name NAME --category {name}"
        command = completed(f"{command} --difficulty {rarest}")
        console.print(words(f"next: add {rarest} tasks of category {name}: `{command}`"))

    return Output([{"category": name, **counts} for name, counts in rows], tell)


@app.command("anchors", prints="list[improvement.Anchor]")
def anchors_(
    where: LineOptions,
) -> Output:
    """List tasks that detected a regression; `task admit` makes one an anchor."""
    with where.open() as controller:
        hidden = hidden_folder(where.home, controller.line.id)
        found = anchors.candidates(
            controller.place,
            controller.records,
            hidden=() if hidden is None else controller.place.set_in(hidden).tasks,
        )
    return Output(
        found,
        lambda: print_table(
            ("task", "in the set", "admitted", "because of"),
            [
                (each.task, each.in_set, each.admitted, ", ".join(why[:17] for why in each.because))
                for each in found
            ],
        ),
    )


@app.command(prints="improvement.GauntletDemo")
def demo(
    home: Home,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="New folder for the sample.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Demonstrate the gauntlet on the sample: a harmful, a good and a bypassing change."""
    require_extra("train")
    raise typer.Exit(tell_demo(home, folder or home.path / "sample", as_json=as_json))


def _declared(controller: Controller, diff: bytes, said: list[str]) -> dict[str, int]:
    """Return the tiers that were declared; where none were, say what there is to declare.

    Raises DiffError where the diff makes nothing of the line, declared or not.
    """
    declared: dict[str, int] = {}
    for each in said:
        path, _, tier = each.rpartition("=")
        if not path or tier not in ("0", "1", "2"):
            raise ProctorError(f"--tier {each}: give a path and its tier, as in lib/rank.py=2")
        declared[path] = int(tier)
    tree = controller.applied(diff)
    if declared:
        return declared
    place, head = controller.place, controller.line.head
    manifest = place.manifest(head.commit)
    touched = place.repository.changes(head.tree, tree)
    wanted = " ".join(
        f"--tier {shlex.quote(f'{each.path}={tier_of_change(each, manifest)}')}" for each in touched
    )
    raise ProctorError(f"a proposal declares the tier of each file that it touches: {wanted}")


def _became(controller: Controller, proposals: list[Proposal]) -> Output:
    """Return what became of proposals."""
    rows: list[dict[str, Any]] = [
        {**describe_proposal(each), "waits_for": controller.waits(each)} for each in proposals
    ]
    lines = [
        f"{row['proposal']} {row['outcome'] or 'at ' + row['stage']}: "
        + (row["reason"] or row["waits_for"] or "continue with `proctor infra run`")
        for row in rows
    ]
    found = any(row["outcome"] not in (None, "promoted") for row in rows)
    return Output(rows, "\n".join(lines) or "nothing to do: no proposal is queued", found=found)
