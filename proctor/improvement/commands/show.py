"""`proctor line show`: the line, its proposals and its checkpoints, and what waits for whom.

Checkpoints are asked of the projection, and so can be asked as of an earlier index.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from judge.gauntlet import anchors
from judge.gauntlet.controller import Controller
from judge.gauntlet.records import results_of
from judge.gauntlet.tasks import reference_set
from judge.gauntlet.tasks.reference_set import Task
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Argument, AsOfOption, Takes
from proctor.cli.remedies import completed, pasteable
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.carried import export_pending
from proctor.improvement.home import SERVER, LineOptions, find_proposal, hidden_tasks, line_folder
from proctor.improvement.reports import (
    describe_line,
    tell_alarms,
    tell_events,
    tell_line,
    tell_proposal,
)
from proctor.improvement.server import read_server
from proctor.improvement.shapes import (
    LISTED,
    PROPOSALS,
    RUNS,
    TRENDS,
    USES,
    Carried,
    WholeProposal,
)
from proctor.output.terminal import console, print_table, print_words
from proctor.remembering import open_session
from projections.reading import Session

app = CommandGroup()

_SHORT = 12  # characters of an id
_KNOWN = "SELECT proposal_id FROM proposal_standing"
_MEASURES = (
    "reference_success",
    "budget_utilisation",
    "retrieval_precision",
    "production_success",
    "validation_pass",
    "proposal_acceptance",
)


@app.command(
    long=True,
    prints="improvement.Line | improvement.WholeProposal | improvement.CheckpointParts "
    "| improvement.Checkpoints | list[improvement.Carried] | improvement.PendingFolder "
    "| list[improvement.Gap] | list[judge.gauntlet.anchors.AnchorCandidate]",
)
def show(
    where: LineOptions,
    name: Annotated[
        str | None,
        "An id, or the start of one: of a proposal, a checkpoint or its commit; `latest` "
        "is the newest proposal, `active` the active checkpoint. By default the line.",
        Argument("[PROPOSAL|CHECKPOINT]"),
    ] = None,
    listed: Annotated[
        Literal["waiting", "checkpoints", "gaps", "anchors"] | None,
        "What waits for an operator, with its diffs; all checkpoints with their runs and "
        "measures; the categories that the reference set covers least; or the tasks that "
        "detected a regression.",
        Takes(option="--list"),
    ] = None,
    out: Annotated[
        Path | None, "With `--list waiting`: new folder for it, to sign on another machine."
    ] = None,
    as_of: AsOfOption = None,
) -> Iterator[Output]:
    """Show the line, a proposal or a checkpoint; or list what the line has."""
    if name is not None and listed is not None:
        raise ProctorError(f"give {name} or --list {listed}, not both")
    if out is not None and listed != "waiting":
        raise ProctorError("--out is for `--list waiting`")
    if listed == "checkpoints":
        yield _checkpoints(open_session(where.home, as_of=as_of))
        return
    if name is not None and name != "latest":
        session = open_session(where.home, as_of=as_of)
        if (row := _checkpoint(session, name)) is not None:
            yield _whole_checkpoint(session, row)
            return
    if as_of is not None:
        raise ProctorError("--as-of is for checkpoints: give CHECKPOINT, or `--list checkpoints`")
    with where.open() as controller:
        if name is not None:
            yield _proposal(controller, name)
        elif listed == "waiting":
            yield _waiting(controller) if out is None else export_pending(controller, out)
        elif listed == "gaps":
            yield _gaps(controller)
        elif listed == "anchors":
            yield _anchors(controller, hidden_tasks(where.home, controller))
        else:
            yield _line(where.home, controller)


def _line(home: Home, controller: Controller) -> Output:
    server = read_server(line_folder(home, controller.line.id) / SERVER)
    told = describe_line(controller, server=server)
    return Output(told, lambda: tell_line(told))


def _proposal(controller: Controller, name: str) -> Output:
    found = controller.place.proposal(find_proposal(controller, name))
    text = controller.place.blobs.get(found.diff).decode(errors="replace")

    def tell() -> None:
        tell_proposal(controller, found, diff=True)
        tell_events(controller.place.log, found.id)

    return Output(WholeProposal.told(found, text=text, results=results_of(found)), tell)


def _waiting(controller: Controller) -> Output:
    pending = controller.pending()

    def tell() -> None:
        for each in pending:
            tell_proposal(controller, each, diff=True)
        tell_alarms(controller.line.open_alarms.values())
        count = counted(len(pending), "proposal")
        text = "approve, reject or revise: `proctor line sign VERDICT PROPOSAL --key KEY`"
        print_words(pasteable(f"{count} waiting; {text}"))

    subjects = controller.place.subjects
    return Output([Carried.told(each, subjects=subjects(each)) for each in pending], tell)


def _gaps(controller: Controller) -> Output:
    whole = controller.place.reference_set(controller.line.head.commit)
    rows = reference_set.gaps((*whole.tasks, *whole.unasked))

    def tell() -> None:
        columns = ("category", *reference_set.DIFFICULTIES)
        print_table(columns, [(name, *counts.values()) for name, counts in rows])
        name, counts = rows[0]
        rarest = min(counts, key=lambda each: counts[each])
        command = f"proctor line task new NAME --commit COMMIT --category {name}"
        command = completed(f"{command} --difficulty {rarest}")
        print_words(f"next: add {rarest} tasks of category {name}: `{command}`")

    return Output([{"category": name, **counts} for name, counts in rows], tell)


def _anchors(controller: Controller, hidden: Sequence[Task]) -> Output:
    found = anchors.candidates(controller.place, controller.records, hidden=hidden)
    rows = [
        (each.task, each.in_set, each.admitted, ", ".join(why[:17] for why in each.because))
        for each in found
    ]
    columns = ("task", "in the set", "admitted", "because of")
    return Output(found, lambda: print_table(columns, rows))


def _checkpoint(session: Session, name: str) -> dict[str, Any] | None:
    """Return the checkpoint that `name` means; None where it can only be a proposal's."""
    sought = name.lower()
    found = [
        row
        for row in session.query(LISTED).records
        if (row["active"] if name == "active" else _begins(row, sought))
    ]
    proposals = [id_ for (id_,) in session.query(_KNOWN).rows if str(id_).startswith(sought)]
    if len(found) > 1 or (found and proposals):
        raise ProctorError(
            f"{name!r} can mean {len(found)} checkpoints and {len(proposals)} proposals; give more "
            "of the id"
        )
    return found[0] if found else None


def _begins(row: Mapping[str, Any], sought: str) -> bool:
    return bool(sought) and any(row[key].startswith(sought) for key in ("checkpoint_id", "commit"))


def _whole_checkpoint(session: Session, row: dict[str, Any]) -> Output:
    parts = {
        title: session.query(sql, [row["checkpoint_id"]]).records
        for title, sql in (("proposals", PROPOSALS), ("runs", RUNS), ("uses", USES))
    }

    def tell() -> None:
        print_table(("", ""), row.items())
        for title, rows in parts.items():
            if rows:
                console.print()
                print_table(tuple(rows[0]), [tuple(each.values()) for each in rows], title=title)

    return Output({**row, **parts}, tell)


def _checkpoints(session: Session) -> Output:
    found, trends = session.query(LISTED).records, session.query(TRENDS).records

    def tell() -> None:
        columns = ("checkpoint", "line", "place", "origin", "commit", "state", "runs", "eligible")
        print_table(columns, [_standing(each) for each in found])
        if not any(each[name] is not None for each in found for name in _MEASURES):
            return
        console.print()
        print_table(
            ("checkpoint", *_MEASURES),
            [
                (each["checkpoint_id"][:_SHORT], *(_percent(each[name]) for name in _MEASURES))
                for each in found
            ],
        )

    return Output({"checkpoints": found, "trends": trends}, tell)


def _standing(found: Mapping[str, Any]) -> tuple[Any, ...]:
    if found["rolled_back"]:
        state = f"rolled back: {found['rollback_reason']}"
    else:
        state = "active" if found["active"] else "stands"
    if found["production_alarm"]:
        good, runs = found["production_good"], found["production_runs"]
        state += f"; ALARM: only {good} of {counted(runs, 'run')} succeeded"
    if found["tainted_evidence"]:
        state += "; on tainted evidence"
    runs = f"{found['runs']}" + (
        f" ({found['false_labels']} falsely)" if found["false_labels"] else ""
    )
    return (
        found["checkpoint_id"][:_SHORT],
        found["line_id"][:8],
        found["place"],
        found["origin"],
        found["commit"][:_SHORT],
        state,
        runs,
        found["eligible_runs"],
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
