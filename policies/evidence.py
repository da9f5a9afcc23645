"""Evidence: which epochs and which earlier decisions go into a prompt that has room for some.

What bears on the due rules goes first, the latest before the earlier, and what is left of the room
is filled with what came last. It is sorted before the cap, so that the cap takes the least.
I/O: none.  Units: epochs from 0; sizes in bytes of UTF-8.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aggregates.decisions import Observation

LATEST, STREAK, TURN, FILL = 3, 2, 1, 0  # what an epoch or a decision is to the question


@dataclass(frozen=True)
class Piece:
    """One thing that could be shown."""

    number: int  # of the epoch, or of the decision
    importance: int
    size: int


def epochs_to_show(
    seen: Observation, sizes: Mapping[int, int], *, rows: int, most: int
) -> tuple[int, ...]:
    """Return which of the last `rows` epochs are shown, in order, within `most` bytes.

    `sizes` holds what the row of each epoch takes, by its number.
    """
    streak = max((seen.evaluations[rule].streak for rule in seen.due), default=0)
    began = seen.epoch - min(streak, seen.rules.persistence) + 1
    turns = _turning_points(seen)
    pieces = [
        Piece(
            signals.epoch,
            LATEST
            if signals.epoch == seen.epoch
            else STREAK
            if signals.epoch >= began
            else TURN
            if signals.epoch in turns
            else FILL,
            sizes[signals.epoch],
        )
        for signals in seen.history[-rows:]
    ]
    return within_cap(pieces, most)


def decisions_to_show(
    seen: Observation, sizes: Mapping[int, int], *, rows: int, most: int
) -> tuple[int, ...]:
    """Return the numbers of the last `rows` decisions that are shown, in order, in `most` bytes."""
    settled: dict[str, int] = {}  # due rule -> the decision that was last carried out or refused
    for past in seen.decisions[-rows:]:
        if past.outcome is not None:
            settled.update({rule: past.number for rule in past.decision.cites if rule in seen.due})
    pieces = [
        Piece(
            past.number,
            STREAK
            if past.number in settled.values()
            else TURN
            if any(rule in seen.due for rule in past.decision.cites)
            else FILL,
            sizes[past.number],
        )
        for past in seen.decisions[-rows:]
    ]
    return within_cap(pieces, most)


def within_cap(pieces: Collection[Piece], most: int) -> tuple[int, ...]:
    """Return the numbers of the most important pieces that fit into `most` bytes, in order."""
    chosen, room = [], most
    for piece in sorted(pieces, key=lambda one: (one.importance, one.number), reverse=True):
        if piece.size <= room:
            chosen.append(piece.number)
            room -= piece.size
    return tuple(sorted(chosen))


def _turning_points(seen: Observation) -> set[int]:
    """Return the epochs behind which a remedy was applied, those that follow, and the best one."""
    applied = {past.epoch for past in seen.applied}
    best = min(seen.history, key=lambda signals: (signals.val_loss, signals.epoch))
    return {*applied, *(epoch + 1 for epoch in applied), best.epoch}
