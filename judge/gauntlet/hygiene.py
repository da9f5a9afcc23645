"""Rolls back a checkpoint: marks it and its descendants, and moves the branch back.

The rollback is recorded first; then the branch is moved by compare-and-swap. If that fails, the
record still stands: the next process on the line moves the branch, or reports what people must do
first.

Source: docs/explanation/hygiene.md; docs/reference/gauntlet.md, "Stages".
Trust: whoever calls may roll back; an author's signature is checked where it is recorded.
I/O: the workplace.
"""

from dataclasses import dataclass

from aggregates.improvement.line import Line
from judge.gauntlet.errors import GauntletError, RepositoryError
from judge.gauntlet.promotion import settle_branch
from judge.gauntlet.workplace import Workplace
from ledger.entries import AuthorKey


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """What was taken back, and what is in force now."""

    checkpoint: str
    reached: tuple[str, ...]  # the checkpoint and what descends from it, in the chain's order
    to: str  # the checkpoint that is active now
    commit: str  # of that one
    branch_at: str  # commit at which the branch is now
    advice: str | None  # what people have to do; None: the branch is where it belongs


def roll_back(
    place: Workplace, checkpoint: str, reason: str | None, *, author: AuthorKey | None = None
) -> Rollback:
    """Mark a checkpoint and its descendants, and bring the branch back to what is active then.

    One that was rolled back by name is not marked again, but the branch is brought after it. One
    that went with an ancestor is, for a reason of its own: salvage leaves it alone. Without a
    reason, one that is rolled back already stays as it is marked. Raises
    GauntletError where there is no such line, checkpoint or reason; ConflictError's like, and
    whatever the ledger says of the author's key, from the log. Whoever calls holds the line's lock.
    """
    if reason is not None and not reason.strip():
        raise GauntletError(
            "a rollback needs a reason: it is shown with everything that the rollback taints"
        )
    if place.line_id not in place.log.repository:
        raise GauntletError(
            f"{place.branch!r} of {place.repository.path} is not a line of this ledger: choose "
            "another with --repo and --line, or another --home"
        )
    found = place.line().checkpoints.get(checkpoint)
    if found is None:
        raise GauntletError(f"checkpoint {checkpoint} not found on this line")
    if found.parent is None:
        raise GauntletError(
            f"checkpoint {checkpoint} is the first of the line, so there is no earlier one to "
            "return to; commit a fix, and take it over with `proctor line sign adopt --key KEY`"
        )
    if reason is None:
        if found.rolled_back is None:
            raise GauntletError(
                f"checkpoint {checkpoint} is not rolled back; do that first: `proctor line "
                f"rollback {checkpoint} --reason TEXT`"
            )
    elif checkpoint not in place.line().rollbacks:
        place.change_line(lambda line: _mark(line, checkpoint, reason), author=author)
    advice = _bring_back(place)
    line = place.line()
    return Rollback(
        checkpoint=checkpoint,
        reached=tuple(line.descendants(checkpoint)),
        to=line.active,
        commit=line.head.commit,
        branch_at=place.repository.head(place.branch),
        advice=advice,
    )


def _mark(line: Line, checkpoint: str, reason: str) -> None:
    """Mark a checkpoint; a valley that leads over it ends."""
    valley = line.valley
    if valley is not None and line.active in line.descendants(checkpoint):
        line.close_valley(f"checkpoint {checkpoint} was rolled back")
    if checkpoint not in line.rollbacks:  # somebody may have been quicker
        line.roll_back(checkpoint, reason)


def _bring_back(place: Workplace) -> str | None:
    """Move the branch to the active checkpoint if it may be; return what people must do if not."""
    try:
        settle_branch(place)
    except RepositoryError as error:
        return f"the branch was not moved: {error}; then run this command again"
    line, head = place.line(), place.repository.head(place.branch)
    if head == line.head.commit:
        return None
    return (
        f"branch {place.branch!r} is at {head[:12]}, because it was moved by hand, and was not "
        f"changed; the active checkpoint is {line.head.commit[:12]}: revert the bad change in a "
        "commit, and take that over with `proctor line sign adopt --key KEY`"
    )
