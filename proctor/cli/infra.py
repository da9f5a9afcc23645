"""`proctor infra`: a repository that changes itself, under a gauntlet that it cannot change."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from aggregates.improvement.proposal import TRIGGERS, Proposal
from judge.errors import JudgeError
from judge.gauntlet import anchors, measurement
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import TaskError
from judge.gauntlet.records import results_of
from judge.gauntlet.tasks import reference_set
from proctor.cli import infra_evolve, infra_review, infra_study
from proctor.cli.commands import read_text
from proctor.cli.failures import require_extra
from proctor.cli.options import HOME, HomeOption, JsonOption
from proctor.errors import EXIT_FOUND, EXIT_HELD, ProctorError
from proctor.home import Home
from proctor.improvement.home import (
    BRANCH,
    HERE,
    BranchOption,
    ProposalArgument,
    RepoOption,
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
from proctor.output.terminal import console, counted, error_console, print_json, print_table, words
from proctor.sample.demo import tell_demo
from proctor.sample.init import make_sample

app = typer.Typer(
    name="infra",
    help="Propose, judge and promote changes of a repository, under an operator's control.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
app.add_typer(infra_review.app)
app.add_typer(infra_evolve.app)
app.add_typer(infra_study.app)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Make a sample repository to try the gauntlet on."""
    line = make_sample(Home(home), folder)
    with open_controller(Home(home), folder) as controller:
        told = describe_line(controller)
    if as_json:
        print_json(told)
    else:
        console.print(words(f"made {folder}, whose branch {BRANCH} is line {line}"))
        console.print(
            words(
                f"next: change something, `git -C {shlex.quote(str(folder))} diff > change.diff`, "
            )
            + "`proctor infra propose`"
        )
    raise typer.Exit(EXIT_HELD)


@app.command()
def propose(
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
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Record a proposal; `run` takes it through the gauntlet."""
    content = (read_text(diff) or "").encode()
    with open_controller(Home(home), repo, branch=branch) as controller:
        with controller.locked():  # so that the line stays where the diff was tried
            proposal = controller.submit(
                content,
                declared=_declared(controller, content, tiers or []),
                rationale=rationale,
                trigger=trigger,
                proposer=proposer,
            )
        raise typer.Exit(_tell(controller, [proposal], as_json=as_json))


@app.command()
def run(
    proposal: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROPOSAL]", help="Proposals to run; by default all queued ones, in order."
        ),
    ] = None,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Run proposals through the gauntlet, or continue an interrupted run."""
    require_extra("train")
    with open_controller(Home(home), repo, branch=branch) as controller:
        if proposal is None:
            chosen = [each.id for each in controller.queue()]
        else:
            chosen = [find_proposal(controller, proposal)]
        done, errors = [], []
        with controller.locked():
            for each in chosen:
                try:
                    done.append(controller.carry_on(each))
                except JudgeError as error:  # which does not stop the others
                    errors.append(ProctorError(f"proposal {each} cannot be judged: {error}"))
        if errors:
            raise errors[0]
        code = _tell(controller, done, as_json=as_json)
        line = controller.line
        if line.halt is not None:
            code = EXIT_FOUND
            (error_console if as_json else console).print(
                words(f"the line is halted by proposal {line.halted_by}: {line.halt}; ")
                + f"look at it with `proctor infra show {line.halted_by}`, then an operator answers"
                " with `proctor infra resume`"
            )
        elif not done and not as_json:
            console.print("nothing to do: no proposal is queued")
        raise typer.Exit(code)


@app.command()
def status(
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Show the line's status, its checkpoints and the queue."""
    with open_controller(Home(home), repo, branch=branch) as controller:
        told = describe_line(controller)
    if as_json:
        print_json(told)
    else:
        tell_line(told)
    raise typer.Exit(EXIT_HELD)


@app.command()
def show(
    proposal: ProposalArgument = "latest",
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Show a proposal: its diff, its stages, and their ledger entries."""
    with open_controller(Home(home), repo, branch=branch) as controller:
        found = controller.place.proposal(find_proposal(controller, proposal))
        if as_json:
            text = controller.place.blobs.get(found.diff).decode(errors="replace")
            results = [vars(result) for result in results_of(found)]
            print_json({**describe_proposal(found), "text": text, "results": results})
        else:
            tell_proposal(controller, found, diff=True)
            tell_events(controller.place.log, found.id)
    raise typer.Exit(EXIT_HELD)


@app.command()
def measure(
    hidden: Annotated[
        Path | None,
        typer.Option("--hidden", help="Folder with other hidden siblings than the home's."),
    ] = None,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the branch, hidden siblings included; exit code 1 on an alarm."""
    require_extra("train")
    place = Home(home)
    with open_controller(place, repo, branch=branch) as controller, controller.locked():
        siblings = hidden or hidden_folder(place, controller.line.id)
        found = measurement.measure(controller.place, hidden=siblings)
    if as_json:
        print_json(found)
    else:
        print_table(
            ("set", "checkpoint", "branch"),
            [(name, f"{base:.0%}", f"{head:.0%}") for name, (base, head) in found.shares.items()],
        )
        for alarm in found.alarms:
            console.print(words(f"ALARM, {alarm.kind}: {alarm.detail}"))
    raise typer.Exit(EXIT_FOUND if found.alarms else EXIT_HELD)


@app.command()
def gaps(
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """List the categories that the reference set covers least."""
    with open_controller(Home(home), repo, branch=branch) as controller:
        place = controller.place
        rows = reference_set.gaps(place.reference_set(controller.line.head.commit).tasks)
    if as_json:
        print_json([{"category": name, **counts} for name, counts in rows])
    else:
        columns = ("category", *reference_set.DIFFICULTIES)
        print_table(columns, [(name, *counts.values()) for name, counts in rows])
    raise typer.Exit(EXIT_HELD)


@app.command("anchors")
def anchors_(
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """List tasks that detected a regression; `admit` makes one an anchor."""
    place = Home(home)
    with open_controller(place, repo, branch=branch) as controller:
        hidden = hidden_folder(place, controller.line.id)
        found = anchors.candidates(
            controller.place,
            controller.records,
            hidden=() if hidden is None else controller.place.set_in(hidden).tasks,
        )
    if as_json:
        print_json(found)
    else:
        print_table(
            ("task", "in the set", "admitted", "because of"),
            [
                (each.task, each.in_set, each.admitted, ", ".join(why[:17] for why in each.because))
                for each in found
            ],
        )
    raise typer.Exit(EXIT_HELD)


@app.command()
def baseline(
    into: Annotated[
        Path, typer.Option("--into", help="Folder of the reference set, in your work tree.")
    ],
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Write the active checkpoint's result next to each task, for people to read."""
    require_extra("train")
    with open_controller(Home(home), repo, branch=branch) as controller:
        head = controller.line.head
        tasks = controller.place.reference_set(head.commit)
        known = measurement.recorded(controller.place, commit=head.commit, tasks=tasks)
    if known is None:
        raise ProctorError("this checkpoint has not been measured; `proctor infra measure` does")
    for result in known:
        folder = into / reference_set.TASKS / result.task_id
        if not folder.is_dir():
            raise TaskError(f"{folder} is missing; name a folder with this reference set")
        told = {"commit": head.commit, "success": result.success, "metrics": dict(result.metrics)}
        text = json.dumps(told, indent=1, sort_keys=True) + "\n"
        (folder / reference_set.BASELINE).write_text(text, encoding="utf-8")
    if as_json:
        print_json({"written": [result.task_id for result in known]})
    else:
        console.print(words(f"wrote {counted(len(known), 'baseline')} into {into}"))
    raise typer.Exit(EXIT_HELD)


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="New folder for the sample.")
    ] = None,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Demonstrate the gauntlet on the sample: a harmful, a good and a bypassing change."""
    require_extra("train")
    raise typer.Exit(tell_demo(Home(home), folder or home / "sample", as_json=as_json))


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
    touched = [each.path for each in place.repository.changes(head.tree, tree)]
    wanted = " ".join(
        f"--tier {shlex.quote(f'{path}={manifest.tier_of(path)}')}" for path in touched
    )
    raise ProctorError(f"a proposal declares the tier of each file that it touches: {wanted}")


def _tell(controller: Controller, proposals: list[Proposal], *, as_json: bool) -> int:
    """Tell what became of proposals; return the exit code that this means."""
    rows: list[dict[str, Any]] = [
        {**describe_proposal(each), "waits_for": controller.waits(each)} for each in proposals
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            state = row["outcome"] or f"at {row['stage']}"
            more = row["reason"] or row["waits_for"] or "`proctor infra run` carries on"
            console.print(words(f"{row['proposal']} {state}: {more}"))
    bad = any(row["outcome"] not in (None, "promoted") for row in rows)
    return EXIT_FOUND if bad else EXIT_HELD
