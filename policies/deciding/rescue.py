"""The policy that undoes damage: back to a sound state, with settings that were measured.

Where a rule tells of damage or of a wrong learning rate, one decision goes back to the best sound
epoch or to fresh weights, and sets the rate. The update ratio is proportional to the rate, so one
step brings it to TARGET. Other firings are answered as the playbook does, and so is a rule for
which the training went back twice. Where the rules keep no states, all answers are the playbook's.
I/O: none.
"""

import math

from aggregates.decisions import Observation, mean_rate
from aggregates.playbook import FRESH, GO_BACK, MIN_LR
from aggregates.rules import RuleEvaluation
from policies.offers import band
from policies.playbook import Chosen, PlaybookPolicy

TARGET = 0.004  # mean update ratio; the built-in network has 0.002 to 0.007 at its default rate
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
        usual = super().remedy(rule, seen, evaluation)
        lr, back = seen.settings.lr, _best(seen)
        if rule == "R1":
            return self._rate(seen, evaluation, back) or usual
        if usual is not None and usual.direction in ("add_norm", "add_residual"):
            return usual
        if rule != "R7":
            why = "the model is damaged, not its settings"
            return Chosen(GO_BACK, {"epoch": back, "lr": lr}, why)
        bound = seen.settings.clip_norm
        if bound is None:
            params = {"epoch": back, "lr": lr, "clip_norm": self.numbers.clip_norm}
            return Chosen(GO_BACK, params, "the gradients that did the damage are bounded now")
        params = {"epoch": back, "lr": max(lr / 10, MIN_LR), "clip_norm": bound}
        return Chosen(GO_BACK, params, "bounded gradients did the damage, so the steps are shorter")

    def _rate(self, seen: Observation, evaluation: RuleEvaluation, back: int) -> Chosen | None:
        found = band(seen)
        if found is None or not evaluation.value:
            return None
        low, high = found
        rate = mean_rate(seen.settings, epoch=seen.epoch) * TARGET / evaluation.value
        rate = max(low, min(high, rate))
        if evaluation.side == "high":
            why = "updates are too large for the weights, and proportional to the rate"
            return Chosen(GO_BACK, {"epoch": back, "lr": rate}, why)
        kept = seen.epoch if seen.epoch in seen.back else FRESH
        why = "updates are too small for the weights, and proportional to the rate"
        return Chosen(GO_BACK, {"epoch": kept, "lr": rate}, why)


def _best(seen: Observation) -> int:
    """Return the earlier epoch with the best validation loss of those kept, or FRESH."""
    losses = {
        signals.val_loss: signals.epoch
        for signals in seen.history[:-1]
        if signals.epoch in seen.back and math.isfinite(signals.val_loss)
    }
    return losses[min(losses)] if losses else FRESH
