"""The history of a run: which rules fired when, and the effect of remedies on them.

An observation holds the measurements of every epoch, the evaluation of the last one and, where the
run is at hand, which rules fired before. Elsewhere that follows from the measurements, by the
function that the monitor and the judge call.
I/O: none.
"""

from aggregates.decisions import Observation
from aggregates.firing import evaluate_epochs
from aggregates.rulebook import fired_in_precedence
from aggregates.strategy import Effect, remedy_effects


def fired_by_epoch(seen: Observation) -> tuple[tuple[str, ...], ...]:
    """Return the rules that fired in each epoch, by precedence."""
    before = seen.fired
    if before is None:
        epochs = evaluate_epochs(seen.history[:-1], seen.remedies, seen.rules)
        before = tuple(map(fired_in_precedence, epochs))
    return (*before, fired_in_precedence(seen.evaluations))


def last_effects(seen: Observation) -> dict[str, Effect]:
    """Return the effect of each rule's latest remedy."""
    effects = remedy_effects(fired_by_epoch(seen), seen.decisions)
    return {effect.rule: effect for effect in effects}
