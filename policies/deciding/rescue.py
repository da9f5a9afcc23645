"""The policy that undoes damage: back to a sound state, with settings that were measured.

Where a rule tells of damage or of a wrong learning rate, one decision goes back to the best epoch
in which no rule fired, or to fresh weights, and sets the rate: the update ratio is proportional to
it, so one step brings it where healthy trainings have it. Everything else is answered as the
playbook does, and so is a rule for which going back did not help twice.
I/O: none.
"""

import math

from aggregates.decisions import Observation
from aggregates.playbook import FRESH, GO_BACK, MAX_LR, MIN_LR
from aggregates.rules import RuleEvaluation
from policies.playbook import Chosen, PlaybookPolicy

TARGET = 0.004  # mean update ratio of healthy trainings: 0.002 to 0.008 (docs/studies/rules.md)
TRIES = 2  # for each rule


class RescuePolicy(PlaybookPolicy):
    """Goes back where the playbook would go on with what is damaged."""

    name = "rescue"

    def remedy(self, rule: str, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
        """Return what answers a rule that fired, None if nothing is left."""
        tried = sum(
            past.decision.direction == GO_BACK and rule in past.decision.cites
            for past in seen.decisions
            if past.outcome == "applied"
        )
        if GO_BACK not in seen.directions(rule) or tried >= TRIES:
            return super().remedy(rule, seen, evaluation)
        lr, back = seen.settings.lr, _sound(seen)
        if rule == "R1" and evaluation.value:
            measured = min(max(lr * TARGET / evaluation.value, MIN_LR), MAX_LR)
            if evaluation.side == "low":
                why = "updates are too small for the weights, and proportional to the rate"
                return Chosen(GO_BACK, {"epoch": seen.epoch, "lr": measured}, why)
            why = "updates are too large for the weights, and proportional to the rate"
            return Chosen(GO_BACK, {"epoch": back, "lr": measured}, why)
        if rule == "R7":
            lr = lr if tried == 0 else max(lr / 10, MIN_LR)
            params = {"epoch": back, "lr": lr, "clip_norm": self.numbers.clip_norm}
            return Chosen(GO_BACK, params, "the gradients that did the damage are bounded now")
        usual = super().remedy(rule, seen, evaluation)
        if usual is not None and usual.direction in ("add_norm", "add_residual"):
            return usual
        return Chosen(GO_BACK, {"epoch": back, "lr": lr}, "the model is damaged, not its settings")


def _sound(seen: Observation) -> int:
    """Return the best epoch in which no rule fired and that can be gone back to, or FRESH."""
    losses = {
        signals.val_loss: signals.epoch
        for signals in seen.history[:-1]
        if signals.epoch in seen.back and math.isfinite(signals.val_loss)
        if seen.fired is not None and not seen.fired[signals.epoch]
    }
    return losses[min(losses)] if losses else FRESH
