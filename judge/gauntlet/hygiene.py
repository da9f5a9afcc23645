"""A checkpoint is taken back: marked with all that descend from it, and the branch behind it.

The rollback is recorded first, and the branch follows by comparing and swapping. Where it cannot
follow the record stands all the same: whoever works on the line next brings the branch after it, or
is told what people have to do first.

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

__all__ = ["Rollback", "roll_back"]


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
    place: Workplace, checkpoint: str, reason: str, *, author: AuthorKey | None = None
) -> Rollback:
    """Mark a checkpoint and its descendants, and bring the branch back to what is active then.

    One that was rolled back by name is not marked again, but the branch is brought after it. One
    that went with an ancestor is, for a reason of its own: salvage leaves it alone. Raises
    GauntletError where there is no such line, checkpoint or reason; ConflictError's like, and
    whatever the ledger says of the author's key, from the log. Whoever calls holds the line's lock.
    """
    if not reason.strip():
        raise GauntletError("a rollback gives its reason: whoever meets what it taints will ask")
    if place.line_id not in place.log.repository:
        raise GauntletError(
            f"{place.branch!r} of {place.repository.path} is no line of this ledger: name another "
            "with --repo and --line, or another --home"
        )
    found = place.line().checkpoints.get(checkpoint)
    if found is None:
        raise GauntletError(f"there is no checkpoint {checkpoint} on this line")
    if found.parent is None:
        raise GauntletError(
            f"checkpoint {checkpoint} is where the line began: there is nothing to go back to; "
            "commit what is right, and `proctor infra adopt` it"
        )
    if checkpoint not in place.line().rollbacks:
        place.save(lambda: [_marked(place, checkpoint, reason)], author=author)
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


def _marked(place: Workplace, checkpoint: str, reason: str) -> Line:
    """Return the line with the checkpoint marked; a valley that leads over it ends."""
    line = place.line()
    valley = line.valley
    if valley is not None and line.active in line.descendants(checkpoint):
        line.close_valley(f"checkpoint {checkpoint} was rolled back")
    if checkpoint not in line.rollbacks:  # somebody may have been quicker
        line.roll_back(checkpoint, reason)
    return line


def _bring_back(place: Workplace) -> str | None:
    """Move the branch to the active checkpoint if it may be; return what people must do if not."""
    try:
        settle_branch(place)
    except RepositoryError as error:
        return f"the branch has not moved: {error}; then run this again"
    line, head = place.line(), place.repository.head(place.branch)
    if head == line.head.commit:
        return None
    return (
        f"{place.branch!r} is at {head[:12]}, where people moved it, and was left there; the "
        f"active checkpoint is {line.head.commit[:12]}: revert what is bad by a commit of your "
        "own, and `proctor infra adopt` that"
    )
