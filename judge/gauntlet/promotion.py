"""Moves the line: the end of a proposal or of a valley, and the rollback of a checkpoint.

A line moves in two steps. A promotion first moves the branch by compare-and-swap and is then
recorded; a return from a valley and a rollback are first recorded, and then the branch is moved. If
a crash comes between the two, the next process completes the move with settle(), or reports what
people must do first.

Source: docs/reference/gauntlet.md, "Stages" and "Valleys"; docs/explanation/hygiene.md.
Trust: whoever calls may roll back; an author's signature is checked where it is recorded.
I/O: the workplace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregates.errors import InvariantError
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from judge.approvals import read_approval
from judge.errors import ApprovalError
from judge.gauntlet.errors import GauntletError, MovedError, RepositoryError
from judge.gauntlet.records import ProposalIndex
from judge.gauntlet.repository.git import PROPOSALS
from judge.gauntlet.workplace import Workplace
from ledger.entries import AuthorKey

INTENT = "promoting"


def is_step(line: Line, proposal: Proposal) -> bool:
    """Tell whether a proposal is the step that comes next in the valley that is open."""
    valley = line.valley
    return (
        valley is not None
        and proposal.base == line.head.commit
        and proposal.diff == valley["steps"][valley["passed"]]
    )


def is_last_step(line: Line, proposal: Proposal) -> bool:
    """Tell whether with this step the valley is crossed, and the gate in force again."""
    valley = line.valley
    return (
        valley is not None
        and is_step(line, proposal)
        and valley["passed"] == len(valley["steps"]) - 1
    )


def opponent(line: Line, proposal: Proposal) -> str:
    """Return the commit that a proposal has to beat: its base, or where the valley began."""
    if line.valley is not None and is_last_step(line, proposal):
        return line.checkpoints[line.valley["from"]].commit
    return proposal.base


def is_let_through(line: Line, proposal: Proposal) -> bool:
    """Tell whether what is recorded of a proposal lets it onto the line."""
    if not proposal.tested or proposal.verdict is None:
        return False
    if is_step(line, proposal):
        return proposal.verdict == "better" or not is_last_step(line, proposal)
    return proposal.verdict in ("better", "no worse")


def promote(place: Workplace, proposal: Proposal) -> None:
    """Move the line to a candidate that was let through, and record it.

    Where somebody else has moved the branch nothing is done; the proposal waits for an answer.
    """
    assert proposal.commit is not None
    proposal.verify_promotable(_valley_of(place.line(), proposal))
    _intent(place).write_text(proposal.commit)
    try:
        place.repository.advance(place.branch, old=proposal.base, new=proposal.commit)
    except RepositoryError as error:
        if place.repository.head(place.branch) != proposal.commit:
            _intent(place).unlink()  # the branch was not moved, at least not by us
            if isinstance(error, MovedError):
                return
            raise
    _record_promotion(place, proposal)
    _intent(place).unlink()


def conclude(
    place: Workplace,
    proposal: Proposal,
    outcome: str,
    *,
    stage: str,
    reason: str,
    stops_line: bool = False,
    ends_valley: bool = True,
) -> None:
    """End a proposal that does not get onto the line; a valley ends with its step, by default.

    One that reaches for the controller stops the line, until somebody answers.
    """

    def make() -> list[Line | Proposal]:
        line, fresh = place.line(), place.proposal(proposal.id)
        of_valley = is_step(line, fresh)
        fresh.conclude(outcome, stage=stage, reason=reason)
        if of_valley and ends_valley:
            _turn_back(line, f"step {fresh.id} was {outcome}: {reason}")
        if stops_line and line.halt is None:
            line.stop(proposal=str(fresh.id), reason=reason)
        return [line, fresh]

    place.save(make)
    settle_branch(place)
    where = ", and the line with it" if stops_line else f" at {stage}"
    place.tell(str(proposal.id), f"{outcome}{where}: {reason}")


def settle(place: Workplace, records: ProposalIndex) -> None:
    """Finish what a killed process had begun; end a valley whose time is over or key is revoked."""
    line = place.line()
    head = place.repository.head(place.branch)
    intent = _intent(place)
    if head != line.head.commit and intent.exists() and intent.read_text() == head:
        for proposal_id in records.open_proposals():
            proposal = place.proposal(proposal_id)
            if proposal.commit == head and proposal.base == line.head.commit:
                try:
                    proposal.verify_promotable(_valley_of(line, proposal))
                except InvariantError:  # another word came before it was recorded
                    place.repository.advance(place.branch, old=head, new=line.head.commit)
                    continue
                _record_promotion(place, proposal)
    settle_branch(place)
    line = place.line()
    over = None if line.valley is None else _why_over(place, line.valley)
    if over is not None:
        place.change_line(lambda line: _turn_back(line, over))
        settle_branch(place)


def _why_over(place: Workplace, valley: Mapping[str, Any]) -> str | None:
    """Return why a valley may not stay open; None if it may."""
    if place.clock() >= valley["expires"]:
        return "it has expired"
    try:
        read_approval(valley["envelope"], operators=place.operators())
    except ApprovalError:
        return "the key of the operator who opened it is no longer in force"
    return None


def sweep(place: Workplace, records: ProposalIndex) -> None:
    """Delete the branches of this line's proposals that have been concluded."""
    concluded = set(records.proposals()) - set(records.open_proposals())
    names = {f"{PROPOSALS}{each}" for each in concluded}
    for name in names.intersection(place.repository.branches()):
        place.repository.delete_branch(name)


def settle_branch(place: Workplace) -> None:
    """Bring the branch back from a checkpoint that was rolled back to the active one."""
    line = place.line()
    head = place.repository.head(place.branch)
    if head == line.head.commit:
        return
    if head in {each.commit for each in line.checkpoints.values() if each.rolled_back is not None}:
        place.repository.advance(place.branch, old=head, new=line.head.commit)


def _intent(place: Workplace) -> Path:
    """Return the file that says which commit the branch is about to be moved to, by us."""
    return place.folder / INTENT


def _valley_of(line: Line, proposal: Proposal) -> str | None:
    """Return the valley that lets a proposal through although it is not better."""
    valley = line.valley
    return valley["id"] if valley is not None and proposal.verdict != "better" else None


def _record_promotion(place: Workplace, proposal: Proposal) -> None:
    contents = place.contents(str(proposal.commit))

    def make() -> list[Line | Proposal]:
        line, fresh = place.line(), place.proposal(proposal.id)
        crossed, lets = is_last_step(line, fresh), _valley_of(line, fresh)
        checkpoint = line.promote(proposals=[str(fresh.id)], **contents)
        if crossed:
            line.close_valley("crossed: better than at its start")
        reason = f"{fresh.verdict}: {'; '.join(fresh.reasons)}"
        fresh.conclude(
            "promoted", stage="conclude", reason=reason, checkpoint=checkpoint, valley=lets
        )
        return [line, fresh]

    place.save(make)


def _turn_back(line: Line, reason: str) -> None:
    """Close the valley, if it is open, and roll back whatever was let through in it."""
    if line.valley is None:
        return
    start, passed = line.valley["from"], line.valley["passed"]
    line.close_valley(f"not crossed: {reason}")
    if passed:
        first = next(
            each.id
            for each in line.checkpoints.values()
            if each.parent == start and each.rolled_back is None
        )
        line.roll_back(first, f"a valley was not crossed: {reason}")


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
