"""`proctor checkpoints`: the versions of the infrastructure, and what was made under each.

What is listed is asked of the projection, and so can be asked as of an earlier index.
"""

from typing import Annotated, Any

import typer

from judge.gauntlet.hygiene import Rollback, roll_back
from ledger.wording import counted
from proctor.cli import checkpoints_bisect, checkpoints_drift
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.inputs import operator_key
from proctor.cli.options import AsOfOption, SigningKeyOption
from proctor.errors import ProctorError
from proctor.home import Home, runs_under
from proctor.improvement.home import (
    LineOptions,
    find_checkpoint,
)
from proctor.output.terminal import as_records, console, print_table, words
from proctor.remembering import open_session
from proctor.runs.labels import roll_back_installed
from proctor.schemas.improvement import LISTED, METRICS, PROPOSALS, RUNS, USES
from projections.reading import Session

app = CommandGroup(
    "checkpoints", "Manage checkpoints: list, roll back, bisect, and watch for drift."
)

_SHORT = 12  # characters of an id
CheckpointArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="An id or commit, the beginning of one, `active` or `latest`."
    ),
]


@app.command("list", long=True, prints="list[improvement.Checkpoint]")
def list_(home: Home, as_of: AsOfOption = None) -> Output:
    """List checkpoints with the runs made under each."""
    found = _ask(open_session(home, as_of=as_of), LISTED)

    def tell() -> None:
        columns = ("checkpoint", "line", "place", "origin", "commit", "state", "runs", "eligible")
        print_table(columns, [_row(each) for each in found])

    return Output(found, tell)


@app.command(long=True, prints="improvement.CheckpointParts")
def show(
    home: Home,
    checkpoint: CheckpointArgument = "active",
    as_of: AsOfOption = None,
) -> Output:
    """Show a checkpoint: its measures, its proposals, its runs, and uses of tainted runs."""
    session = open_session(home, as_of=as_of)
    listed = {each["checkpoint_id"]: each for each in _ask(session, LISTED)}
    commits = {each: row["commit"] for each, row in listed.items()}
    active = [each for each, row in listed.items() if row["active"]]
    name = find_checkpoint(commits, active, checkpoint)
    found = listed[name]
    (measured,) = _ask(session, METRICS, found["line_id"], name)
    parts = {
        "proposals": _ask(session, PROPOSALS, name),
        "runs": _ask(session, RUNS, name),
        "uses": _ask(session, USES, name),
    }

    def tell() -> None:
        print_table(("", ""), {**found, **measured}.items())
        for title, rows in parts.items():
            if rows:
                console.print()
                print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], title=title)

    return Output({**found, "metrics": measured, **parts}, tell)


@app.command(prints="improvement.RolledBack")
def rollback(
    where: LineOptions,
    checkpoint: CheckpointArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="Reason; shown wherever the taint is reported.")
    ],
    key: SigningKeyOption = None,
) -> Output:
    """Roll back a checkpoint and its descendants; exit code 1 if the branch is not moved.

    The checkpoint may be a version of the installed code, which is in no repository.
    """
    author = operator_key(key)
    with where.home.open_log() as log:
        done = roll_back_installed(log, checkpoint, reason, author=author)
        if done is not None:
            return _rolled_back(done, runs=len(runs_under(log, done.reached)))
    with where.open() as controller:
        place = controller.place
        if place.line_id not in place.log.repository:
            raise ProctorError(f"{where.branch!r} of {where.repo} is not a line of this ledger")
        line = controller.line
        commits = {each.id: each.commit for each in line.checkpoints.values()}
        chosen = find_checkpoint(commits, [line.active], checkpoint)
        with controller.locked():
            done = roll_back(place, chosen, reason, author=author)
        return _rolled_back(done, runs=len(runs_under(place.log, done.reached)))


checkpoints_drift.register(app)
checkpoints_bisect.register(app)


def _rolled_back(done: Rollback, *, runs: int) -> Output:
    def tell() -> None:
        for each in done.reached:
            console.print(words(f"rolled back: {each}"))
        console.print(words(f"active: {done.to}, commit {done.commit}"))
        if runs:
            console.print(
                f"made under what was rolled back, and tainted: {counted(runs, 'run')}; "
                "`proctor data why` says what they were handed out in"
            )
        if done.advice is not None:
            console.print(words(done.advice))

    return Output({**vars(done), "runs": runs}, tell, found=bool(done.advice))


def _ask(session: Session, sql: str, *parameters: Any) -> list[dict[str, Any]]:
    found = session.query(sql, parameters)
    return as_records(found.columns, found.rows)


def _row(found: dict[str, Any]) -> tuple[Any, ...]:
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
