"""The policy that undoes damage: back to a sound state, with settings that were measured.

Where a rule tells of damage or of a wrong setting, one decision goes back to the best sound epoch
or to fresh weights. Two ratios are proportional to a setting, so one step brings each to where it
should be: the update ratio to the learning rate, the gradient's signal to the batch. Other firings
are answered as the playbook does, and so is a rule for which going back was no help. An edited
model gets fresh weights, if a second rule that fired asks for them. Where the rules keep no states,
all answers are the playbook's.
I/O: none.
"""

import math
from collections.abc import Mapping
from statistics import median

from aggregates.decisions import Decision, Observation, batch_band, mean_rate
from aggregates.playbook import FRESH, GO_BACK, MIN_LR, RESTORING
from aggregates.rulebook.folds import is_lower
from aggregates.rules import RuleEvaluation
from aggregates.spec import ModelSpec
from policies.offers import band
from policies.playbook import Chosen, PlaybookPolicy, act

# Mean update ratio that later steps aim at. Healthy epochs of 12 kinds have 0.002 to 0.03, the
# built-in network at its default rate 0.002 to 0.007; a later epoch has less than the first.
TARGET = 0.008
LEARNING = 0.02  # the aim after an epoch that learned: its long steps did little harm
LOST = 0.5  # mean update ratio above which nothing is left of the weights; no rate follows from it
# Epoch update ratio above which the weights before it were far too small. Rates that are too high
# reach 5, weights that begin at a thousandth of their usual size 100 to 400.
GROWN = 30.0
# Share of the first validation loss that is gone where a model learns. Rates that are 300 times too
# low lose less in three epochs; if large weights make steps look short, longer ones ruin a model.
LEARNS = 0.02
# How often going back answers a rule. If the damage returns, the settings are at fault.
TRIES: Mapping[str, int] = {"R1": 2, "R2": 2, "R5": 1, "R6": 1, "R7": 2}


class RescuePolicy(PlaybookPolicy):
    """Goes back where the playbook would go on with what is damaged."""

    name = "rescue"

    def decide(self, observation: Observation) -> list[Decision]:
        """Return one decision for each due rule, the acting one first."""
        decisions = super().decide(observation)
        edited = any(each.edit is not None and each.cites[0] in TRIES for each in decisions)
        for place, each in enumerate(decisions if edited else ()):
            rule = each.cites[0]
            evaluation = observation.evaluations[rule]
            usual = None if each.acts else self.remedy(rule, observation, evaluation)
            if usual is not None and usual.direction == GO_BACK and rule != "R2":
                params = {**usual.params, "epoch": FRESH}
                if evaluation.side == "low":  # whose ratio is the other model's
                    params["lr"] = observation.settings.lr
                why = "the edited model begins with fresh weights"
                decisions[place] = act(rule, evaluation, Chosen(GO_BACK, params, why))
                break
        return decisions

    def remedy(self, rule: str, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
        """Return what answers a rule that fired, None if nothing is left."""
        usual = super().remedy(rule, seen, evaluation)
        tried = sum(
            past.decision.direction == GO_BACK and rule in past.decision.cites
            for past in seen.applied
        )
        if GO_BACK not in seen.directions(rule) or tried >= TRIES.get(rule, 0):
            return usual
        edits = usual is not None and usual.direction in ("add_norm", "add_residual")
        if edits and not (rule == "R1" and "R6" in seen.due):  # then R6 makes the edit
            return usual
        ours = isinstance(seen.spec, ModelSpec)
        match rule:
            case "R1" if evaluation.side == "guessing":
                return self._other(seen)
            case "R1" if evaluation.side == "low" and not ours and _learns(seen):
                return None
            case "R1":
                return self._rate(seen, evaluation) or usual
            case "R2":
                return _batch(seen, evaluation) or usual
            case "R7":
                return self._bounded(seen)
        if longest := _long_steps(seen):
            lr = seen.settings.lr * max(0.1, LEARNING / longest)
            why = "the model was damaged by long steps, so they begin again and are shorter"
            return Chosen(GO_BACK, {"epoch": FRESH, "lr": max(lr, MIN_LR)}, why)
        back = best_state(seen)
        if not ours and (back == FRESH or _is_best(seen)):
            return usual  # first weights may have had the damage; a worse state is no way out
        params = {"epoch": back, "lr": seen.settings.lr}
        return Chosen(GO_BACK, params, "the model is damaged, not its settings")

    def _rate(self, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
        found = band(seen)
        if found is None or not evaluation.value:
            return None
        lost = evaluation.value > LOST or _grown(seen)
        if lost and seen.settings.clip_norm is None and seen.rules.back_bounds_steps:
            params = {"epoch": FRESH, "lr": seen.settings.lr, "clip_norm": self.numbers.clip_norm}
            why = "nothing is left of the weights, so the next steps are bounded"
            return Chosen(GO_BACK, params, why)
        low, high = found
        aim = LEARNING if evaluation.side == "high" and _learned(seen) else TARGET
        rate = mean_rate(seen.settings, epoch=seen.epoch) * aim / evaluation.value
        rate = max(low, min(high, rate))
        if evaluation.side == "high":
            why = "updates are too large for the weights, and proportional to the rate"
            return Chosen(GO_BACK, {"epoch": best_state(seen), "lr": rate}, why)
        why = "updates are too small for the weights, and proportional to the rate"
        return Chosen(GO_BACK, {"epoch": _present(seen), "lr": rate}, why)

    def _other(self, seen: Observation) -> Chosen | None:
        lr = seen.settings.lr
        if seen.settings.clip_norm is None:
            params = {"epoch": FRESH, "lr": lr, "clip_norm": self.numbers.clip_norm}
            return Chosen(GO_BACK, params, "the model only guesses, and bounded steps are tried")
        if lr / 10 < MIN_LR:
            return None
        params = {"epoch": FRESH, "lr": lr / 10}
        return Chosen(GO_BACK, params, "the model still guesses, and shorter steps are tried")

    def _bounded(self, seen: Observation) -> Chosen:
        lr, bound = seen.settings.lr, seen.settings.clip_norm
        if bound is None:
            bound = _usual_bound(seen) or self.numbers.clip_norm
            params = {"epoch": best_state(seen), "lr": lr, "clip_norm": bound}
            return Chosen(GO_BACK, params, "the gradients that did the damage are bounded now")
        params = {"epoch": best_state(seen), "lr": max(lr / 10, MIN_LR), "clip_norm": bound}
        return Chosen(GO_BACK, params, "bounded gradients did the damage, so the steps are shorter")


def _learned(seen: Observation) -> bool:
    """Return whether the latest epoch lowered the run's best validation loss by R1's share.

    R1 itself compares with the best one since its last remedy.
    """
    gain = seen.rules.r1_learning_gain
    if gain is None or not seen.history:
        return False
    *earlier, latest = seen.history
    losses = [each.val_loss for each in earlier if math.isfinite(each.val_loss)]
    return is_lower(latest.val_loss, min(losses, default=latest.train_loss), gain)


def _long_steps(seen: Observation) -> float | None:
    """Return the largest update ratio above R1's band since the run last went back, if any.

    Only the last `kept_states` epochs count.
    """
    if seen.rules.r1_learning_gain is None:
        return None
    back = [past.epoch for past in seen.applied if past.decision.direction in RESTORING]
    since = max(*back, seen.epoch - seen.rules.kept_states, -1)
    ratios = [each.update_ratio or 0.0 for each in seen.history if each.epoch > since]
    return max((each for each in ratios if seen.rules.r1_high < each < math.inf), default=None)


def _grown(seen: Observation) -> bool:
    """Return whether the built-in network's weights were far too small before the epoch.

    Other models get their own first weights back, which would be as small again.
    """
    change = seen.history[-1].epoch_update_ratio if seen.history else None
    return isinstance(seen.spec, ModelSpec) and change is not None and change > GROWN


def _batch(seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
    sizes = batch_band(evaluation, seen.settings, seen.rules)
    if sizes is None:
        return None
    middle = math.sqrt(seen.rules.r2_low * seen.rules.r2_high)
    size = round(seen.settings.batch_size * middle / (evaluation.ema or math.inf))
    # Noise can make the steps of a batch that is k times smaller longer by the square root of k.
    ratio = seen.history[-1].update_ratio if seen.history else None
    longest = seen.rules.r1_high / 2
    if ratio is not None:
        if not ratio < longest:  # true for NaN
            return None
        size = max(size, math.ceil(seen.settings.batch_size * (ratio / longest) ** 2))
    if size > sizes[1]:
        return None
    params = {
        "epoch": _present(seen),
        "lr": seen.settings.lr,
        "batch_size": max(sizes[0], min(sizes[1], size)),
    }
    return Chosen(GO_BACK, params, "the gradient's signal is proportional to the batch")


def _present(seen: Observation) -> int:
    """Return the present epoch if its state is sound, or FRESH."""
    return seen.epoch if seen.epoch in seen.back else FRESH


def _usual_bound(seen: Observation) -> float | None:
    """Return a bound between the gradients before this epoch and those at which R7 fires.

    It has the loss's scale. None where no gradient was measured before, or no bound is allowed.
    """
    norms = [each.max_layer_grad_norm or 0.0 for each in seen.history[:-1]]
    known = [each for each in norms if 0 < each < math.inf]
    bound = math.sqrt(seen.rules.r7_high) * median(known) if known else 0.0
    return bound if 1e-6 <= bound <= 1e6 else None


def _learns(seen: Observation) -> bool:
    """Return whether the best validation loss is below the first epoch's losses by LEARNS.

    The first epoch may have learned, so its training loss counts, too.
    """
    first = seen.history[0]
    losses = [each.val_loss for each in seen.history if math.isfinite(each.val_loss)]
    return is_lower(min(losses, default=math.inf), max(first.train_loss, first.val_loss), LEARNS)


def _is_best(seen: Observation) -> bool:
    """Return whether the validation loss is lower than that of each state that is kept."""
    kept = [each.val_loss for each in seen.history[:-1] if each.epoch in seen.back]
    return seen.history[-1].val_loss < min(filter(math.isfinite, kept), default=math.inf)


def best_state(seen: Observation) -> int:
    """Return the earlier epoch with the best validation loss of those kept, or FRESH."""
    losses = {
        signals.val_loss: signals.epoch
        for signals in seen.history[:-1]
        if signals.epoch in seen.back and math.isfinite(signals.val_loss)
    }
    return losses[min(losses)] if losses else FRESH
