"""What the playbook asks for, written once more: the expected outcomes of reference tasks.

Made from docs and not from the policy that is measured. Where the playbook leaves a choice, every
choice is right: each due rule gets the list of all acts that are, with the bounds of their values.
I/O: none.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.playbook import MAX_ACCUMULATION, MAX_LR, MIN_LR
from aggregates.spec import ACTIVATIONS, MAX_BLOCKS, MAX_WIDTH, WatchedModel

Acts = list[dict[str, Any]]  # [{direction, params {name: [low, high] or [value, ...]}}]
_LEAST, _MOST = 3.0, 10.0  # by which a learning rate is moved
_CLIPPED = 4  # epochs for which bounded steps are trusted
_LONGER = 0.2  # update ratio of steps that are longer than the weights
_QUIET = 0.05  # gradient norm below which nothing is learned
_SLACK = 1.5  # around the factor that the average asks for
_EXACT = 1e-6  # relative


def expected_answers(
    seen: Observation, *, acts: Callable[[str, Observation], Acts] | None = None
) -> list[dict[str, Any]]:
    """Return what is right for each due rule: {rule, acts, for}; `acts` tells what is open to one.

    A rule that waits has no acts; `for` is then the rule that goes first, None where it waits for
    an effect or has no remedy left.
    """
    open_to = acts or acts_for
    answers: list[dict[str, Any]] = []
    first: str | None = None  # the rule that the others wait for
    for rule in seen.due:
        wait = _must_wait(rule, seen)
        found: Acts = [] if first or wait else open_to(rule, seen)
        answers.append({"rule": rule, "acts": found, "for": first})
        if first is None and (found or wait == "others wait, too"):
            first = rule
    return answers


def acts_for(rule: str, seen: Observation) -> Acts:
    """Return the acts that are open for a rule, none where it is at its limit.

    In a loop of its owner, those are left that can be carried out there.
    """
    acts = _acts_of_the_playbook(rule, seen)
    if not isinstance(seen.spec, WatchedModel):
        return acts
    return [act for act in acts if act["direction"] in seen.spec.offers]


def _acts_of_the_playbook(rule: str, seen: Observation) -> Acts:
    side = seen.evaluations[rule].side
    lr, size = seen.settings.lr, seen.settings.batch_size
    match rule, side:
        case "R7", _:
            params: dict[str, Any] = {"lr": _about(lr / 10), "clip_norm": [0.01, 100.0]}
            first = seen.epoch == 0 and not _lacks_norm(seen)
            if not _kept(seen) and (side == "not_finite" or _ruined(seen) or first):
                params["reinitialise"] = [True]
            return [_act("decrease_lr", params)] if lr / 10 >= MIN_LR else []
        case "R1", _ if _adds_norm(seen):
            return [_act("add_norm", {})]
        case "R1", "guessing":
            return []
        case "R1", "low":
            if lr * _LEAST > MAX_LR:
                return []
            low, high = _wanted(_middle(seen), seen.evaluations[rule].ema)
            return [_act("increase_lr", {"lr": [min(lr * low, MAX_LR), min(lr * high, MAX_LR)]})]
        case "R1", _:
            if lr / _LEAST < MIN_LR:
                return []
            if side == "high" and _overwritten(seen) and not _kept(seen):
                anew = {"lr": _about(max(lr / _LEAST, MIN_LR)), "reinitialise": [True]}
                return [_act("decrease_lr", anew)]
            low, high = _LEAST, _MOST
            if side == "high":
                low, high = _wanted(seen.evaluations[rule].ema, _middle(seen))
            return [_act("decrease_lr", {"lr": [max(lr / high, MIN_LR), max(lr / low, MIN_LR)]})]
        case "R2", "high":
            half = {"batch_size": [size // 2]}
            return [] if size % 2 else [_act("decrease_batch_size", half)]
        case "R2", _:
            return _larger_batches(seen)
        case "R3", _:
            return [_act("stop", {})]
        case "R4", _:
            return _more_capacity(seen)
        case "R6", _ if _lacks_norm(seen):
            return [_act("add_norm", {})]
        case "R6", _ if any(not block.residual for block in seen.spec.blocks):
            return [_act("add_residual", {})]
        case "R6", _ if _swapped(seen):
            return []
    if not seen.spec.blocks:
        return []
    # The slope of a PReLU is a parameter, and a watched loop's optimizer is its owner's.
    strange = ("prelu",) if isinstance(seen.spec, WatchedModel) else ()
    now = seen.spec.blocks[-1].activation
    others = [name for name in ACTIVATIONS if name not in ("relu", now, *strange)]
    return [_act("swap_activation", {"to": others})]


def is_right(decision: Decision, expected: Mapping[str, Any]) -> bool:
    """Return whether a decision is one of those expected for the one rule that it cites."""
    if not expected["acts"]:
        goes_first = expected["for"]
        named = goes_first is None or decision.params.get("deferred_to") == goes_first
        return not decision.acts and named
    return any(_fits(decision, act) for act in expected["acts"])


def _fits(decision: Decision, act: Mapping[str, Any]) -> bool:
    wanted: Mapping[str, Sequence[Any]] = act["params"]
    if decision.direction != act["direction"] or set(decision.params) != set(wanted):
        return False
    return all(_lies_in(decision.params[name], bounds) for name, bounds in wanted.items())


def _lies_in(value: Any, bounds: Sequence[Any]) -> bool:
    if len(bounds) == 2 and all(isinstance(bound, float) for bound in bounds):
        low, high = bounds
        slack = _EXACT * abs(high)
        return isinstance(value, int | float) and low - slack <= value <= high + slack
    return value in bounds


def _must_wait(rule: str, seen: Observation) -> str | None:
    """Return why a rule is not acted on yet, if so."""
    applied = {
        cited: past.epoch
        for past in seen.decisions
        if past.outcome == "applied"
        for cited in past.decision.cites
    }
    if rule == "R7" and seen.evaluations[rule].side == "not_finite" and _kept(seen):
        return "only a loss is not finite, and the owner's weights are not given up for that"
    if rule == "R2" and seen.epoch - applied.get("R1", -math.inf) <= 1:
        return "others wait, too"
    if rule == "R4" and seen.evaluations["R1"].side in ("high", "low"):
        return "the learning rate is outside of its band"
    if rule == "R4" and seen.epoch - applied.get("R1", -math.inf) < seen.rules.persistence:
        return "R1's remedy has to show"
    if rule == "R7" and seen.epoch - applied.get("R7", -math.inf) <= _CLIPPED:
        clipped = seen.settings.clip_norm is not None
        if clipped and seen.evaluations[rule].side == "high" and not _ruined(seen):
            return "its steps are bounded"
    if rule == "R1" and "R7" in seen.due:
        return "gradients explode"
    if seen.evaluations[rule].side == "plateau" and _gains_since_change(rule, seen):
        return "the changed model still gains"
    found = seen.evaluations[rule]
    lags = not seen.rules.restart_after_remedy and rule in applied and found.side == "high"
    if lags and found.value is not None and found.value < _limit(rule, seen):
        return "its average lags"
    return None


def _middle(seen: Observation) -> float:
    return math.sqrt(seen.rules.r1_low * seen.rules.r1_high)


def _ruined(seen: Observation) -> bool:
    """Return whether the validation loss is above ten times that of guessing."""
    if seen.spec.classes is None:  # a watched loop with another loss than cross-entropy
        return False
    guessing = math.log(seen.spec.classes)
    return bool(seen.history) and seen.history[-1].val_loss > 10 * guessing


def _overwritten(seen: Observation) -> bool:
    value = seen.evaluations["R1"].value
    return seen.rules.r1_signal == "update_ratio" and value is not None and value > _LONGER


def _kept(seen: Observation) -> bool:
    """Return whether a watched model has all that was measured of it finite: it keeps its weights.

    Other models begin anew with fresh weights where the playbook wants that.
    """
    if not isinstance(seen.spec, WatchedModel):
        return False
    if not seen.history:
        return True
    last = seen.history[-1]
    moved = last.epoch_update_ratio
    return last.gradients_finite and (moved is None or not math.isnan(moved))


def _adds_norm(seen: Observation) -> bool:
    """Return whether R1 asks for normalisation: low or guessing, and if low with no gradient."""
    side = seen.evaluations["R1"].side
    if not seen.rules.r1_adds_norm or not _lacks_norm(seen):
        return False
    norm = seen.history[-1].max_layer_grad_norm if seen.history else None
    return side == "guessing" or (side == "low" and norm is not None and norm < _QUIET)


def _swapped(seen: Observation) -> bool:
    return any(
        (past.decision.direction, past.outcome) == ("swap_activation", "applied")
        for past in seen.decisions
        if "R6" in past.decision.cites
    )


def _gains_since_change(rule: str, seen: Observation) -> bool:
    """Return whether a plateau is none if counted from the latest change of model or weights."""
    change = -1
    for past in seen.decisions:
        anew = past.decision.edit is not None or past.decision.params.get("reinitialise", False)
        if past.outcome == "applied" and anew:
            change = max(change, past.epoch)
    if change < 0:
        return False
    deferred = [
        past.epoch
        for past in seen.decisions
        if not past.decision.acts and rule in past.decision.cites and past.epoch > change
    ]
    if deferred and seen.epoch - deferred[0] >= seen.rules.deferral_limit - 1:
        return False
    best, since = math.inf, 0
    for signals in seen.history:
        if signals.epoch <= change:
            continue
        since += 1
        if signals.val_loss < best:
            best, since = signals.val_loss, 0
    return best < math.inf and since < (
        seen.rules.r1_patience if rule == "R1" else seen.rules.r3_patience
    )


def _limit(rule: str, seen: Observation) -> float:
    limits = {"R1": seen.rules.r1_high, "R7": seen.rules.r7_high, "R5": seen.rules.r5_high}
    return limits.get(rule, 0.0)


def _larger_batches(seen: Observation) -> Acts:
    size, summed = seen.settings.batch_size, seen.settings.accumulation
    if 2 * size * summed > seen.train_examples:
        return []
    if 2 * size <= seen.max_batch_size:
        return [_act("increase_batch_size", {"batch_size": [2 * size]})]
    doubled = _act("accumulate_gradients", {"accumulation": [2 * summed]})
    return [doubled] if 2 * summed <= MAX_ACCUMULATION else []


def _more_capacity(seen: Observation) -> Acts:
    acts = []
    if len(seen.spec.blocks) < MAX_BLOCKS:
        acts.append(_act("add_block", {}))
    if all(block.width * 2 <= MAX_WIDTH for block in seen.spec.blocks):
        acts.append(_act("widen", {"factor": [2]}))
    return acts


def _lacks_norm(seen: Observation) -> bool:
    return seen.spec.norm == "none" or any(block.norm == "none" for block in seen.spec.blocks)


def _wanted(above: float | None, below: float | None) -> tuple[float, float]:
    """Return the factors that are right where an average has left its band by above / below."""
    if not above or not below:
        return _MOST / _SLACK, _MOST
    wanted = min(_MOST, max(_LEAST, above / below))
    return max(_LEAST, wanted / _SLACK), min(_MOST, wanted * _SLACK)


def _about(value: float) -> list[float]:
    return [value * (1 - _EXACT), value * (1 + _EXACT)]


def _act(direction: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"direction": direction, "params": params}
