"""The playbook policy: policies/prompts/playbook.md, followed to the letter, without going back.

In each epoch it acts on the due rule that goes first and defers the others to it, so that the
effect of each remedy can be told from the next one's. It comes back to what it deferred as long
as the rule keeps firing. A rule without a remedy left, or one that waits for the effect of another
remedy, does not hold up the others.
I/O: none.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER, FACTORS, MAX_ACCUMULATION, MAX_LR, MIN_LR, REMEDIES
from aggregates.rulebook import RULE_TITLES
from aggregates.rules import RuleEvaluation
from aggregates.spec import MAX_BLOCKS, MAX_WIDTH, ModelSpec, WatchedModel
from policies.numbers import PlaybookNumbers, load_numbers

_STOPPED = "validation loss has stopped improving; the best weights are kept"
AT_LIMIT = "every remedy of the playbook is at its limit"
GUESSING = (
    "the model is no better than guessing, and nothing measured says why: try other learning rates "
    "from fresh weights, and look at the labels"
)
RUINED = 10.0  # validation loss, in units of what guessing costs (the logarithm of the classes)
# Largest layer gradient norm below which the gradient counts as vanished. The built-in network has
# 0.2 to 0.6 where it learns, at most 0.0002 where the gradient vanishes in all layers alike.
QUIET = 0.05
OVERWRITTEN = 0.2  # mean update ratio of an epoch whose first steps were longer than the weights


@dataclass(frozen=True)
class Chosen:
    """A remedy with its parameters, and why it is taken."""

    direction: str
    params: Mapping[str, Any]
    why: str


class PlaybookPolicy:
    """Decides for every rule that is due, by precedence."""

    name = "playbook"

    def __init__(self, numbers: PlaybookNumbers | None = None) -> None:
        self.numbers = numbers or load_numbers().playbook

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {"name": self.name, **asdict(self.numbers)}

    def decide(self, observation: Observation) -> list[Decision]:
        """Return one decision for each due rule, the acting one first."""
        decisions: list[Decision] = []
        first: str | None = None  # the rule that the others are deferred to
        for rule in observation.due:
            evaluation = observation.evaluations[rule]
            if first is not None:
                decisions.append(_defer(rule, f"{first} goes first", deferred_to=first))
                continue
            if wait := self._reason_to_wait(rule, observation):
                reason, others_act = wait
                decisions.append(_defer(rule, reason))
                first = None if others_act else rule
                continue
            remedy = self.remedy(rule, observation, evaluation)
            if remedy is None or not _offered(remedy, observation):
                guesses = evaluation.side == "guessing"
                decisions.append(_defer(rule, GUESSING if guesses else AT_LIMIT))
                continue
            first = rule
            decisions.append(act(rule, evaluation, remedy))
        return decisions

    def remedy(self, rule: str, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
        """Return what answers a rule that fired, None if nothing is left."""
        return _REMEDIES.get(rule, _plainly)(self.numbers, seen, evaluation)

    def _reason_to_wait(self, rule: str, seen: Observation) -> tuple[str, bool] | None:
        """Return why a rule is not acted on in this epoch, and whether others act meanwhile."""
        acted = {cited: past.epoch for past in seen.applied for cited in past.decision.cites}
        since, since_r1 = (seen.epoch - acted.get(each, -math.inf) for each in (rule, "R1"))
        side = seen.evaluations[rule].side
        match rule:
            case "R7" if side == "not_finite" and not seen.may_reset:
                why = "a loss is not finite, but every gradient and weight that was measured is"
                return why, True
            case "R2" if since_r1 <= 1:
                why = (
                    "the noise scale moves with the learning rate: one epoch is left to R1's remedy"
                )
                return why, False
            case "R1" if "R7" in seen.due:
                return "gradients explode: R7 alone moves the learning rate", True
            case "R4" if "R1" in seen.due and seen.evaluations["R1"].side != "plateau":
                return "the learning rate holds the model back: R1 acts", True
            case "R4" if since_r1 < seen.rules.persistence:
                return f"R1's remedy was applied {since_r1} epochs ago and needs time to show", True
        if side == "plateau" and _recovers(rule, seen):
            return "the changed model still gains on its own best", True
        if since > self.numbers.lag_patience:
            return None
        clipped = rule == "R7" and side == "high" and seen.settings.clip_norm is not None
        if clipped and not _ruined(seen):
            return f"gradients have been clipped for {since} epochs, so no step is too long", True
        if not seen.rules.restart_after_remedy:
            why = f"its remedy was applied {since} epochs ago and the average still lags behind"
            return why, True
        return None


def _offered(remedy: Chosen, seen: Observation) -> bool:
    """Return whether the remedy can be carried out, which is a question in a watched loop only."""
    return not isinstance(seen.spec, WatchedModel) or remedy.direction in seen.spec.offers


def _r7(numbers: PlaybookNumbers, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
    lr = seen.settings.lr / 10
    if lr < MIN_LR:
        return None
    params: dict[str, Any] = {"lr": lr, "clip_norm": numbers.clip_norm}
    fresh = {**params, "reinitialise": True}
    if evaluation.side == "not_finite":
        # Parameters that met a gradient that is not finite are lost.
        return Chosen("decrease_lr", fresh, "the loss or a gradient is not finite")
    if seen.may_reset and _ruined(seen):
        why = "the largest layer gradient norm is above its limit and the model far below guessing"
        return Chosen("decrease_lr", fresh, why)
    if seen.may_reset and seen.epoch == 0 and _normalised(seen):
        # Fresh weights cost one epoch. Without normalisation they would explode again.
        why = "the largest layer gradient norm is far above its limit in the first epoch"
        return Chosen("decrease_lr", fresh, why)
    return Chosen("decrease_lr", params, "the largest layer gradient norm is above its limit")


def _ruined(seen: Observation) -> bool:
    """Return whether the model is so much worse than guessing that fresh weights are better."""
    if not seen.history or seen.spec.classes is None:
        return False
    return seen.history[-1].val_loss > RUINED * math.log(seen.spec.classes)


def _normalised(seen: Observation) -> bool:
    return seen.spec.norm != "none" and all(block.norm != "none" for block in seen.spec.blocks)


def _recovers(rule: str, seen: Observation) -> bool:
    """Return whether a changed or fresh model has not yet had the epochs to leave a plateau.

    The rule's patience is counted anew from the latest change of the model or its weights, for no
    longer than a deferral may last.
    """
    changed = [
        past.epoch
        for past in seen.applied
        if past.decision.edit is not None or past.decision.params.get("reinitialise")
    ]
    waits = [
        past.epoch
        for past in seen.decisions
        if rule in past.decision.cites
        and not past.decision.acts
        and past.epoch > max(changed or (0,))
    ]
    if not changed or (waits and seen.epoch - min(waits) >= seen.rules.deferral_limit - 1):
        return False
    patience = seen.rules.r1_patience if rule == "R1" else seen.rules.r3_patience
    if seen.epoch - max(changed) > patience:
        return False
    return any(
        math.isfinite(signals.val_loss) for signals in seen.history if signals.epoch > max(changed)
    )


def _r6(_: PlaybookNumbers, seen: Observation, __: RuleEvaluation) -> Chosen | None:
    why = "the smallest layer gradient norm is below its limit"
    if not _normalised(seen):
        return Chosen("add_norm", {}, why + " and there are layers without normalisation")
    if not all(block.residual for block in seen.spec.blocks):
        return Chosen("add_residual", {}, why + " and there are blocks without a shortcut")
    if any(
        past.decision.direction == "swap_activation" and "R6" in past.decision.cites
        for past in seen.applied
    ):
        return None  # nothing is in the gradient's way any more: it is small for another reason
    return _swap(seen, why)


def _swap(seen: Observation, why: str) -> Chosen | None:
    if not seen.spec.blocks:  # a watched model without an activation that can be swapped
        return None
    # The first changes the outputs least where inputs are far below zero, and still has a slope.
    watched = isinstance(seen.spec, WatchedModel)
    order = ("leaky_relu", "gelu") if watched else ("leaky_relu", "gelu", "prelu")
    now = seen.spec.blocks[-1].activation
    to = order[(order.index(now) + 1) % len(order)] if now in order else order[0]
    return Chosen("swap_activation", {"to": to}, why)


def _r4(numbers: PlaybookNumbers, seen: Observation, __: RuleEvaluation) -> Chosen | None:
    why = "training accuracy stands still while gradients and activations are healthy"
    if len(seen.spec.blocks) < numbers.most_blocks:
        return Chosen("add_block", {}, why)
    if all(block.width * 2 <= MAX_WIDTH for block in seen.spec.blocks):
        return Chosen("widen", {"factor": 2}, why)
    return Chosen("add_block", {}, why) if len(seen.spec.blocks) < MAX_BLOCKS else None


def _r1(numbers: PlaybookNumbers, seen: Observation, found: RuleEvaluation) -> Chosen | None:
    lr, low, high = seen.settings.lr, seen.rules.r1_low, seen.rules.r1_high
    least, most = numbers.least_lr_factor, numbers.most_lr_factor
    ema, middle = found.ema, math.sqrt(low * high)  # of the band: its edge would soon be left again
    if "add_norm" in seen.directions("R1") and _lacks_norm(seen, found):
        return Chosen("add_norm", {}, "nothing is learned, and layers lack normalisation")
    if found.side == "guessing":
        return None
    if found.side == "low":
        if lr * FACTORS["R1"][0] > MAX_LR:
            return None
        factor = most if not ema else min(most, max(least, middle / ema))
        why = "updates are too small for the weights"
        return Chosen("increase_lr", {"lr": min(lr * factor, MAX_LR)}, why)
    if lr / FACTORS["R1"][0] < MIN_LR:
        return None
    factor, params = least, dict[str, Any]()
    if found.side != "high":
        why = "validation loss no longer improves"
    elif seen.may_reset and _overwritten(seen, found):
        # The weights were too small; a lower learning rate alone would not make up for that.
        params = {"reinitialise": True}
        why = "the steps are as long as the weights, so nothing of the weights is left"
    else:
        factor = most if ema is None else min(most, max(least, ema / middle))
        why = "updates are too large for the weights"
    return Chosen("decrease_lr", {"lr": max(lr / factor, MIN_LR), **params}, why)


def _lacks_norm(seen: Observation, found: RuleEvaluation) -> bool:
    """Return whether the built-in network learns nothing and lacks normalisation."""
    largest = seen.history[-1].max_layer_grad_norm if seen.history else None
    quiet = largest is not None and largest < QUIET
    lacking = isinstance(seen.spec, ModelSpec) and not _normalised(seen)
    return lacking and (quiet or found.side == "guessing")


def _overwritten(seen: Observation, found: RuleEvaluation) -> bool:
    """Return whether an epoch's steps were so long that nothing of the earlier weights is left."""
    by_step = seen.rules.r1_signal == "update_ratio"
    return by_step and found.value is not None and found.value > OVERWRITTEN


def _r2(_: PlaybookNumbers, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
    size = seen.settings.batch_size
    if evaluation.side == "high":
        if size % 2:
            return None
        return Chosen(
            "decrease_batch_size",
            {"batch_size": size // 2},
            "batches are larger than noise asks for",
        )
    why = "noise outweighs the gradient's signal"
    if 2 * size * seen.settings.accumulation > seen.train_examples:
        return None
    if size * 2 <= seen.max_batch_size:
        return Chosen("increase_batch_size", {"batch_size": size * 2}, why)
    more = seen.settings.accumulation * 2
    if more > MAX_ACCUMULATION:
        return None
    return Chosen("accumulate_gradients", {"accumulation": more}, f"{why} and memory is full")


def _plainly(_: PlaybookNumbers, seen: Observation, found: RuleEvaluation) -> Chosen | None:
    """Return the first remedy of a rule that needs no number: the playbook's text has no other."""
    able = (each for each in seen.directions(found.rule) if not REMEDIES[each].needs)
    return next((Chosen(direction, {}, "it left its limits") for direction in able), None)


_REMEDIES: Mapping[str, Callable[[PlaybookNumbers, Observation, RuleEvaluation], Chosen | None]] = {
    "R1": _r1,
    "R2": _r2,
    "R3": lambda *_: Chosen("stop", {}, _STOPPED),
    "R4": _r4,
    "R5": lambda _, seen, __: _swap(seen, "the activation has no slope for too many units"),
    "R6": _r6,
    "R7": _r7,
}


def act(rule: str, evaluation: RuleEvaluation, remedy: Chosen) -> Decision:
    """Return the decision that takes a remedy, with its reason in words."""
    number = evaluation.ema if evaluation.ema is not None else evaluation.value
    shown = "" if number is None else f" (at {number:.3g})"
    words = f"{rule} ({RULE_TITLES[rule]}): {remedy.why}{shown}."
    return Decision.of((rule,), remedy.direction, dict(remedy.params), words)


def _defer(rule: str, why: str, *, deferred_to: str | None = None) -> Decision:
    params = {} if deferred_to is None else {"deferred_to": deferred_to}
    return Decision.of((rule,), DEFER, params, f"{rule} ({RULE_TITLES[rule]}) waits: {why}.")
