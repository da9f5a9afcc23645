"""The history of a run: which rules fired when, and the effect of remedies on them.

An observation holds the measurements of every epoch, the evaluation of the last one and, where the
run is at hand, which rules fired before. Elsewhere that follows from the measurements, by the
function that the monitor and the judge call. A policy carries what it has derived to the next
observation.
I/O: none.
"""

from dataclasses import dataclass

from aggregates.decisions import Observation
from aggregates.firing import evaluate_epochs
from aggregates.rules import AppliedRemedy, RulesConfig, fired_in_precedence
from aggregates.signals import EpochSignals
from aggregates.strategy import Effect, remedy_effects


@dataclass(frozen=True)
class Hindsight:
    """Which rules fired in the epochs before the last one, and what this was derived from."""

    rules: RulesConfig | None = None
    history: tuple[EpochSignals, ...] = ()
    remedies: tuple[AppliedRemedy, ...] = ()
    fired: tuple[tuple[str, ...], ...] = ()  # by precedence, for each epoch of `history`

    def at(self, seen: Observation) -> "Hindsight":
        """Return the same for `seen`; of its epochs, only those are evaluated that are new."""
        history = seen.history[:-1]
        remedies = tuple(
            AppliedRemedy(past.epoch, rule)
            for past in seen.decisions
            if past.outcome == "applied"
            for rule in past.decision.cites
        )
        fired = seen.fired
        if fired is None:
            known = self._known(seen.rules, history, remedies)
            later = evaluate_epochs(history, remedies, seen.rules, first=known)
            fired = (*self.fired[:known], *map(fired_in_precedence, later))
        return Hindsight(seen.rules, history, remedies, fired)

    def _known(
        self,
        rules: RulesConfig,
        history: tuple[EpochSignals, ...],
        remedies: tuple[AppliedRemedy, ...],
    ) -> int:
        """Return for how many epochs, from the first on, nothing is different."""
        if rules != self.rules:
            return 0
        known = 0
        for old, new in zip(self.history, history, strict=False):
            if old is not new and old != new:
                break
            known += 1
        # A remedy bears on the epochs behind its own.
        changed = [remedy.epoch + 1 for remedy in {*self.remedies} ^ {*remedies}]
        return max(0, min([known, *changed]))


NO_HINDSIGHT = Hindsight()


def fired_by_epoch(
    seen: Observation, hindsight: Hindsight = NO_HINDSIGHT
) -> tuple[tuple[str, ...], ...]:
    """Return the rules that fired in each epoch, by precedence."""
    return (*hindsight.at(seen).fired, fired_in_precedence(seen.evaluations))


def last_effects(seen: Observation, hindsight: Hindsight = NO_HINDSIGHT) -> dict[str, Effect]:
    """Return the effect of each rule's latest remedy."""
    fired = fired_by_epoch(seen, hindsight)
    return {effect.rule: effect for effect in remedy_effects(fired, seen.decisions)}
