"""Proposes changes again that were promoted after a culprit and rolled back with it.

Each of those proposals becomes a new one on the line's head, with the same diff, and is judged like
any other. A second call proposes only those again that were superseded in the meantime.

Source: docs/how-to/bisect.md.
I/O: the workplace; the gauntlet's where it is asked to go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid5

from aggregates.improvement.proposal import MAX_TEXT, Proposal
from judge.errors import BisectionError
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import DiffError
from judge.gauntlet.reviews import again

KIND = "salvage"  # of the evidence that names the proposal of before
PROPOSER = "salvage"


@dataclass(frozen=True, kw_only=True)
class Salvaged:
    """What became of one proposal of before."""

    checkpoint: str  # which it had made
    original: str  # its id; empty where people had made the checkpoint
    what: str  # in words
    proposal: str | None = None  # the new one
    outcome: str | None = None  # the new one's, where it has one


def salvage(controller: Controller, culprit: str, *, run: bool) -> list[Salvaged]:
    """Propose the culprit's descendants again, in their order; with `run` judge each at once.

    Raises BisectionError where the culprit has not been rolled back.
    """
    line = controller.line
    if line.checkpoints[culprit].rolled_back is None:
        raise BisectionError(
            f"checkpoint {culprit} is not rolled back; do that first: `proctor line rollback "
            f"{culprit} --reason TEXT`"
        )
    with controller.locked():
        return list(_salvaged(controller, culprit, run=run))


def _salvaged(controller: Controller, culprit: str, *, run: bool) -> Iterator[Salvaged]:
    line = controller.line
    # What was rolled back by name, and what descends from that.
    named = [each for each in line.descendants(culprit)[1:] if each in line.rollbacks]
    bad_too = {each for checkpoint in named for each in line.descendants(checkpoint)}
    for checkpoint in line.descendants(culprit)[1:]:
        if checkpoint in bad_too:
            what = "it was rolled back itself, or after a checkpoint that was"
            yield Salvaged(checkpoint=checkpoint, original="", what=what)
            continue
        proposals = line.checkpoints[checkpoint].proposals
        if not proposals:
            what = "it was made by people, who have to make it again"
            yield Salvaged(checkpoint=checkpoint, original="", what=what)
        for original in proposals:
            yield _again(controller, culprit, checkpoint, original, run=run)


def _again(
    controller: Controller, culprit: str, checkpoint: str, original: str, *, run: bool
) -> Salvaged:
    """Propose one again if that is still to be done; carry it on where that is wanted."""
    number, known = _latest(controller, original)
    if run and known is not None and known.outcome is None:
        known = controller.carry_on(known.id)  # which may find that the line has moved
    if known is None or known.outcome == "superseded":
        before = controller.place.proposal(UUID(original))
        retry = _retry_id(controller.place.line_id, original, number + 1)
        try:
            known = _submitted(controller, before, retry, culprit=culprit, checkpoint=checkpoint)
        except DiffError as error:
            what = f"its diff does not apply: {error}"
            return Salvaged(checkpoint=checkpoint, original=original, what=what)
        if run:
            known = controller.carry_on(known.id)
    if known.outcome is None:
        what = controller.waits(known) or "submitted; `proctor line run` judges it"
    else:
        what = f"{known.outcome}: {known.reason}"
    return Salvaged(
        checkpoint=checkpoint,
        original=original,
        proposal=str(known.id),
        outcome=known.outcome,
        what=what,
    )


def _submitted(
    controller: Controller, before: Proposal, retry: UUID, *, culprit: str, checkpoint: str
) -> Proposal:
    """Submit the diff of before for the head of now; raise DiffError if it does not apply."""
    diff = controller.place.blobs.get(before.diff)
    controller.tiers(diff)  # whether it applies
    why = {"proposal": str(before.id), "checkpoint": checkpoint, "culprit": culprit}
    told = again(before, retry, KIND, **why) | {
        "rationale": f"Again, without checkpoint {culprit}: {before.rationale}"[:MAX_TEXT],
        "proposer": PROPOSER,
    }
    return controller.submit(diff, **told)


def _latest(controller: Controller, original: str) -> tuple[int, Proposal | None]:
    """Return how often this one was proposed again, and the newest proposal that it became."""
    place, number = controller.place, 0
    while _retry_id(place.line_id, original, number + 1) in place.log.repository:
        number += 1
    newest = _retry_id(place.line_id, original, number)
    return number, place.proposal(newest) if number else None


def _retry_id(line: UUID, original: str, number: int) -> UUID:
    return uuid5(line, f"salvage {original} {number}")
