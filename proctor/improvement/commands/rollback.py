"""`proctor line rollback`: a checkpoint and its descendants are taken back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from aggregates.improvement.line import INSTALLED
from judge.bisection.salvage import Salvaged, salvage
from judge.gauntlet.promotion import Rollback, roll_back
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.wording import counted
from monitor.code import code_sha256
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import SigningKeyOption, Takes
from proctor.errors import ProctorError
from proctor.home import runs_under
from proctor.improvement.home import (
    CheckpointArgument,
    LineOptions,
    checkpoint_of,
    checkpoints_like,
)
from proctor.inputs import operator_key
from proctor.output.columns import Shows
from proctor.output.terminal import console, print_rows, print_words
from proctor.runs.labels import lines

app = CommandGroup()

_SHORT = 12  # characters of an id


@dataclass(frozen=True, kw_only=True)
class RolledBack(Rollback):
    """A rollback by a person; exit code 1 if the branch is not moved."""

    runs: int
    salvaged: list[Salvaged]


@app.command(prints=RolledBack)
def rollback(
    where: LineOptions,
    checkpoint: CheckpointArgument,
    reason: Annotated[str | None, "Reason; shown wherever the taint is reported."] = None,
    again: Annotated[
        bool,
        "Propose again, without the checkpoint, the changes that are rolled back with it; "
        "without --reason if the checkpoint is rolled back already.",
        Takes(option="--salvage"),
    ] = False,
    run: Annotated[
        bool, "With --salvage: run each through the gauntlet before the next one."
    ] = False,
    key: SigningKeyOption = None,
) -> Output:
    """Roll back a checkpoint and its descendants; exit code 1 if the branch is not moved.

    The checkpoint may be a version of the installed code, which is in no repository.
    """
    if reason is None and not again:
        raise ProctorError("give --reason TEXT: it is shown wherever the taint is reported")
    if run and not again:
        raise ProctorError("--run is for --salvage")
    author = operator_key(key)
    with where.home.open_log() as log:
        done = _roll_back_installed(log, checkpoint, reason, author=author)
        if done is not None:
            return _rolled_back(done, [], runs=len(runs_under(log, done.reached)))
    with where.open() as controller:
        place = controller.place
        if place.line_id not in place.log.repository:
            raise ProctorError(f"{where.branch!r} of {where.repo} is not a line of this ledger")
        chosen = checkpoint_of(controller.line, checkpoint)
        with controller.locked():
            done = roll_back(place, chosen, reason, author=author)
        ready = again and done.advice is None
        salvaged = salvage(controller, chosen, run=run) if ready else []
        return _rolled_back(done, salvaged, runs=len(runs_under(place.log, done.reached)))


def _roll_back_installed(
    log: LedgerApplication, checkpoint: str, reason: str | None, *, author: AuthorKey | None
) -> Rollback | None:
    """Roll back a version of the installed code, by its id or hash or the beginning of either.

    None where that is no such checkpoint, or may be another line's as well. Raises ProctorError
    for the first version: there is none before it.
    """
    found = [(line, each) for line in lines(log) for each in checkpoints_like(line, checkpoint)]
    if len(found) != 1 or found[0][0].branch != INSTALLED:
        return None
    line, chosen = found[0]
    if reason is None:
        raise ProctorError(
            f"give --reason TEXT: checkpoint {chosen.id} is a version of the installed code, which "
            "has no proposals to make again"
        )
    if chosen.parent is None:
        raise ProctorError(
            f"checkpoint {chosen.id} is the first version of the installed code in this home, so "
            "there is none to return to; install another version, or begin a new home"
        )
    if chosen.id not in line.rollbacks:
        line.roll_back(chosen.id, reason)
        log.save(line, author=author)
    reached = tuple(line.descendants(chosen.id))
    runs_here = code_sha256() in {line.checkpoints[each].code for each in reached}
    return Rollback(
        checkpoint=chosen.id,
        reached=reached,
        to=line.active,
        commit=line.head.commit,
        branch_at=line.head.commit,
        advice="this version is still installed: install another one" if runs_here else None,
    )


def _rolled_back(done: Rollback, salvaged: list[Salvaged], *, runs: int) -> Output:
    def tell() -> None:
        for each in done.reached:
            print_words(f"rolled back: {each}")
        print_words(f"active: {done.to}, commit {done.commit}")
        if runs:
            console.print(
                f"made under what was rolled back, and tainted: {counted(runs, 'run')}; "
                "`proctor data why` says what they were handed out in"
            )
        if salvaged:
            columns: Mapping[str, Shows] = {
                "checkpoint": lambda each: each.checkpoint[:_SHORT],
                "proposal": lambda each: each.original[:_SHORT],
                "again as": "proposal",
                "what": "what",
            }
            print_rows(columns, salvaged)
        if done.advice is not None:
            print_words(done.advice)

    told = RolledBack(**vars(done), runs=runs, salvaged=salvaged)
    return Output(told, tell, found=bool(done.advice))
