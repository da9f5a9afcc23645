"""Reference tasks about going back: what undoes damage, written once more, and runs that need it.

The expected outcomes are made from the playbook's section on going back and from what is said of
the policy `rescue`, not from its code.
The same random numbers give the same task, byte for byte.
I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import median
from typing import Any

from aggregates.decisions import Decision, Observation, PastDecision
from aggregates.playbook import FRESH, GO_BACK, MAX_LR, MIN_LR, RESTORING
from aggregates.signals import EpochSignals
from aggregates.spec import WatchedModel
from judge.reference.observations import to_plain
from judge.reference.oracle import Acts, acts_for, expected_answers
from judge.reference.rules import REFERENCE_RULES
from judge.reference.situations import digits, healthy, observe, uniform_spec
from studies.reference.decisions import watched_model
from studies.reference.making import Made, any_side, past_decision

# What is due first, and in how many observations.
_DUE = (
    ("R1", "high", 40),
    ("R1", "low", 40),
    ("R1", "guessing", 24),
    ("R2", "high", 56),
    ("R5", "high", 64),
    ("R6", "low", 48),
    ("R7", "high", 40),
)
_TRIES: Mapping[str, int] = {"R1": 2, "R2": 2, "R5": 1, "R6": 1, "R7": 2}
_AIM, _LEARNED = 0.008, 0.02  # update ratios
_BEFORE: tuple[tuple[str, ...], ...] = (
    *[()] * 3,
    ("applied",),
    ("applied", "refused"),
    ("applied", "applied"),
    ("refused", "refused"),
)
_OFFERS = (
    *("decrease_lr", "increase_lr", "warm_up_lr", "cycle_lr", "swap_activation", "stop"),
    GO_BACK,
)


def make_going_back(rng: Random, _: str) -> Made:
    """Runs that keep earlier states: damage is undone, and settings that were measured are set."""
    seen = [_damaged(rng, rule, side) for rule, side, count in _DUE for _ in range(count)]
    return Made(
        kind="going-back",
        scorer="decisions",
        expected={"answers": [undoing_answers(each) for each in seen]},
        categories=("decisions", "remedies", "boundaries", "limits"),
        description="Rules tell of damage or wrong settings in runs that keep earlier states",
        outcome="the right state is gone back to with the right settings, as often as it may help",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


def undoing_answers(seen: Observation) -> list[dict[str, Any]]:
    """Return what is right for each due rule where going back is open, as expected_answers()."""
    answers = expected_answers(seen, acts=_acts)
    edits = ("add_norm", "add_residual", "swap_activation")
    if not any(each["acts"] and each["acts"][0]["direction"] in edits for each in answers):
        return answers
    for answer in answers:  # an edited model gets fresh weights, if a second rule asks for them
        rule, acts = answer["rule"], [] if answer["acts"] else _acts(answer["rule"], seen)
        if acts and acts[0]["direction"] == GO_BACK and rule != "R2":
            params = {**acts[0]["params"], "epoch": [FRESH]}
            if seen.evaluations[rule].side == "low":  # its ratio is the other model's
                params["lr"] = _just(seen.settings.lr)
            answer |= {"acts": [{"direction": GO_BACK, "params": params}], "for": None}
            break
    return answers


def _acts(rule: str, seen: Observation) -> Acts:
    usual = acts_for(rule, seen)
    tried = [
        past
        for past in seen.decisions
        if (past.decision.direction, past.outcome) == (GO_BACK, "applied")
        and rule in past.decision.cites
    ]
    if GO_BACK not in seen.directions(rule) or len(tried) >= _TRIES[rule]:
        return usual
    edits = bool(usual) and usual[0]["direction"] in ("add_norm", "add_residual")
    if edits and (rule != "R1" or "R6" not in seen.due):
        return usual
    watched = isinstance(seen.spec, WatchedModel)
    match rule, seen.evaluations[rule].side:
        case "R1", "guessing":
            return _other_settings(seen)
        case "R1", "low" if watched and _learns(seen):
            return []
        case "R1", _:
            return _measured_rate(seen) or usual
        case "R2", _:
            return _measured_batch(seen) or usual
        case "R7", _:
            return _bounded(seen)
    since = max((past.epoch for past in seen.decisions if _restored(past)), default=-1)
    since = max(since, seen.epoch - seen.rules.kept_states)
    long = [
        each.update_ratio
        for each in seen.history
        if each.epoch > since
        and each.update_ratio is not None
        and seen.rules.r1_high < each.update_ratio < math.inf
    ]
    lr = seen.settings.lr
    if long and seen.rules.r1_learning_gain is not None:
        lower = max(lr / 10, lr * _LEARNED / max(long), MIN_LR)
        return _back(FRESH, lr=_just(lower))
    state = _best(seen)
    if watched:
        kept = [each.val_loss for each in seen.history[:-1] if each.epoch in seen.back]
        lowest = min(filter(math.isfinite, kept), default=math.inf)
        if state == FRESH or seen.history[-1].val_loss < lowest:
            return usual
    return _back(state, lr=_just(lr))


def _restored(past: PastDecision) -> bool:
    return past.outcome == "applied" and past.decision.direction in RESTORING


def _other_settings(seen: Observation) -> Acts:
    lr = seen.settings.lr
    if seen.settings.clip_norm is None:
        return _back(FRESH, lr=_just(lr), clip_norm=[1.0])
    return _back(FRESH, lr=_just(lr / 10)) if lr / 10 >= MIN_LR else []


def _measured_rate(seen: Observation) -> Acts:
    lr, found, rules = seen.settings.lr, seen.evaluations["R1"], seen.rules
    if not found.value:
        return []
    low, high = (
        max(rules.r1_low / found.value * lr, MIN_LR),
        min(rules.r1_high / found.value * lr, MAX_LR),
    )
    if low > high:
        return []
    change = seen.history[-1].epoch_update_ratio if seen.history else None
    grown = change is not None and change > 30 and not isinstance(seen.spec, WatchedModel)
    if (found.value > 0.5 or grown) and seen.settings.clip_norm is None and rules.back_bounds_steps:
        return _back(FRESH, lr=_just(lr), clip_norm=[1.0])
    if found.side == "low":
        aimed = min(max(lr * _AIM / found.value, low), high)
        return _back(_present(seen), lr=_just(aimed))
    aimed = lr * (_LEARNED if _learned(seen) else _AIM) / found.value
    return _back(_best(seen), lr=_just(min(max(aimed, low), high)))


def _learned(seen: Observation) -> bool:
    """Return whether the epoch lowered the best loss by a tenth; the first one, its own loss."""
    if seen.rules.r1_learning_gain is None or not seen.history:
        return False
    last = seen.history[-1]
    before = [each.val_loss for each in seen.history[:-1] if math.isfinite(each.val_loss)]
    best = min(before) if before else last.train_loss
    return math.isfinite(last.val_loss) and (best - last.val_loss) > 0.1 * best


def _learns(seen: Observation) -> bool:
    first = seen.history[0]
    top = max(first.train_loss, first.val_loss)
    finite = [each.val_loss for each in seen.history if math.isfinite(each.val_loss)]
    return bool(finite) and math.isfinite(top) and top - min(finite) > 0.02 * top


def _measured_batch(seen: Observation) -> Acts:
    size, ema, rules = seen.settings.batch_size, seen.evaluations["R2"].ema, seen.rules
    if not ema or math.isinf(ema):
        return []
    least, most = math.ceil(rules.r2_low * size / ema), math.floor(rules.r2_high * size / ema)
    least, most = max(least, 1), min(most, size - 1)
    aimed = round(size * math.sqrt(rules.r2_low * rules.r2_high) / ema)
    ratio = seen.history[-1].update_ratio if seen.history else None
    if ratio is not None:  # steps get longer by the square root, up to half of the band's end
        end = rules.r1_high / 2
        if math.isnan(ratio) or ratio >= end:
            return []
        aimed = max(aimed, math.ceil(size * (ratio / end) ** 2))
    if least > most or aimed > most:
        return []
    return _back(
        _present(seen), lr=_just(seen.settings.lr), batch_size=[min(max(aimed, least), most)]
    )


def _bounded(seen: Observation) -> Acts:
    lr, bound = seen.settings.lr, seen.settings.clip_norm
    if bound is not None:
        return _back(_best(seen), lr=_just(max(lr / 10, MIN_LR)), clip_norm=_just(bound))
    norms = [each.max_layer_grad_norm for each in seen.history[:-1]]
    known = [each for each in norms if each is not None and 0 < each < math.inf]
    if known:  # between what gradients were and where the rule fires
        bound = math.sqrt(seen.rules.r7_high) * median(known)
    usual = bound is not None and 1e-6 <= bound <= 1e6
    return _back(_best(seen), lr=_just(lr), clip_norm=_just(bound) if usual and bound else [1.0])


def _best(seen: Observation) -> int:
    kept = [
        each
        for each in seen.history[:-1]
        if each.epoch in seen.back and math.isfinite(each.val_loss)
    ]
    lowest = min((each.val_loss for each in kept), default=None)
    return max((each.epoch for each in kept if each.val_loss == lowest), default=FRESH)


def _present(seen: Observation) -> int:
    return seen.epoch if seen.epoch in seen.back else FRESH


def _back(state: int, **params: Any) -> Acts:
    return [{"direction": GO_BACK, "params": {"epoch": [state], **params}}]


def _just(value: float) -> list[float]:
    return [value, value]  # which is_right() takes for bounds


def _damaged(rng: Random, rule: str, side: str) -> Observation:
    rules = REFERENCE_RULES[rng.choice(("relative", "relative_4", "relative_4"))]
    epoch = rng.randint(3, 14)
    fired = {rule: side}
    if rule == "R6" and rng.random() < 0.7:
        fired["R1"] = rng.choice(("low", "low", "guessing"))
    if side != "guessing" and rng.random() < (0.6 if rule == "R6" else 0.3):
        other = rng.choice([each for each in (*_TRIES, "R4") if each not in fired])
        if fired.get("R1") != "guessing" or other != "R4":
            fired[other] = any_side(rng, other)
    spec: Any = uniform_spec(
        rng.randint(1, 4),
        norm=rng.choice(("batch", "none")) if rule in ("R1", "R6") else "batch",
        residual=rng.random() < 0.7,
    )
    if rng.random() < (0.4 if (rule, side) in (("R1", "low"), ("R5", "high")) else 0.2):
        spec = watched_model("relu", "gelu", offers=_OFFERS)
    kept = sorted(rng.sample(range(epoch + 1), rng.randint(0, 4)))
    seen = observe(
        rng,
        fired,
        rules=rules,
        epoch=epoch,
        spec=spec,
        back=() if rng.random() < 0.03 else (FRESH, *kept),
        decisions=_gone_back(rng, epoch, rule),
        history=_history(rng, epoch, kept),
    )
    settings = replace(
        seen.settings,
        lr=rng.choice((*[seen.settings.lr] * 4, 3e-8, 9.5e-8, 1e-7, 1.05e-7, 2.0)),
        clip_norm=rng.choice((None, None, None, 1.0, 0.3)),
        batch_size=rng.choice((1, 2, 5, 16, 20, 64, 512)),
    )
    if not isinstance(spec, WatchedModel) and rng.random() < 0.1:
        seen = replace(seen, history=())
    return replace(_measured(rng, seen), settings=settings)


def _history(rng: Random, epoch: int, kept: Sequence[int]) -> tuple[EpochSignals, ...]:
    """Return epochs whose losses, steps and gradients are sound or not."""
    falls = rng.choice((1.0, 1.0, 0.95, 1.05))
    losses = [digits(falls**number * rng.uniform(0.998, 1.0)) for number in range(epoch + 1)]
    for number in range(epoch + 1):
        if rng.random() < 0.1:
            losses[number] = rng.choice((math.inf, math.nan))
    losses[0] = rng.choice((losses[0], losses[0], math.nan))
    losses[rng.randint(0, epoch)] = rng.choice((0.99, 0.985, 0.975, 0.9))
    finite = [losses[each] for each in kept if math.isfinite(losses[each])]
    lowest = min(finite, default=1.0)
    around = (lowest, digits(losses[-2] * 1.001), 0.85, 0.5, math.nan)
    losses[-1] = rng.choice((*[losses[-1]] * 3, *around))
    ratios: list[float | None] = [0.004] * (epoch + 1)
    for _ in range(rng.choice((0, 1, 2, 3))):
        at = rng.choice((0, 1, max(0, epoch - 10), max(0, epoch - 9), rng.randint(0, epoch)))
        ratios[at] = rng.choice((0.036, 0.05, 0.1, 0.15, 0.3, 0.6, math.inf, math.nan))
    if rng.random() < 0.4:
        ratios[-1] = rng.choice((0.012, 0.017, 0.018, 0.02, None, math.nan))
    # Of their median follows a bound, where it is no bound beyond those that are allowed.
    norm = rng.choice((None, 1.28e-7, 2.74e-7, 1.28e5, 2.74e5, *[rng.uniform(0.1, 9.0)] * 5))
    grown = rng.choice((0.01, 31.0))
    rows = []
    for number, (loss, ratio) in enumerate(zip(losses, ratios, strict=True)):
        largest = norm and rng.choice((norm, norm * 1.05, norm, 0.0, math.inf))
        rows.append(
            healthy(
                rng,
                number,
                train_loss=1.0 if number else rng.choice((0.9, 1.0, 2.0)),
                val_loss=loss,
                update_ratio=ratio,
                epoch_update_ratio=grown,
                max_layer_grad_norm=largest,
            )
        )
    last: dict[str, Any] = {"epoch_update_ratio": rng.choice((0.01, 0.01, 29.0, 30.0, 31.0, None))}
    if rng.random() < 0.3:
        last["max_layer_grad_norm"] = 0.01  # nothing is learned
    return (*rows[:-1], replace(rows[-1], **last))


def _gone_back(rng: Random, epoch: int, rule: str) -> tuple[PastDecision, ...]:
    """Return earlier decisions on a rule: going back, and the playbook's own remedies."""
    found = []
    for outcome in rng.choice(_BEFORE):
        when = rng.randrange(epoch)
        params = {"epoch": FRESH, "lr": 0.01}
        past = PastDecision(1, when, "policy", Decision.of((rule,), GO_BACK, params, "so"), outcome)
        if rng.random() < 0.15:
            past = past_decision(1, when, rule, rng.choice((outcome, None)))
        found.append(past)
    found.sort(key=lambda past: past.epoch)
    return tuple(replace(past, number=number) for number, past in enumerate(found, start=1))


def _measured(rng: Random, seen: Observation) -> Observation:
    """Return the observation with R1's and R2's ratios near their bands, or very far from them."""
    found = {}
    for rule, side in (("R1", "high"), ("R1", "low"), ("R2", "high")):
        if seen.evaluations[rule].side != side:
            continue
        end = getattr(seen.rules, f"{rule.lower()}_{side}")
        away = rng.choice((1.01, 1.5, 2.0, 5.0, 5.0, 1e3, 1e6))
        value = digits(end * away if side == "high" else end / away)
        if rule == "R1":
            others = (0.1, 0.5, 0.501, 0.9) if side == "high" else (0.0,)
            value = rng.choice((value, value, *others))
        elif rng.random() < 0.1:
            value = math.inf
        found[rule] = replace(seen.evaluations[rule], value=value, ema=value)
    return replace(seen, evaluations={**seen.evaluations, **found})
