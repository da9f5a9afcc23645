"""Makers of reference tasks about decisions: what is open, what is answered, what the text advises.

The same random numbers give the same task, byte for byte.
I/O: none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

from aggregates.decisions import Decision, Observation, PastDecision, Settings
from aggregates.playbook import (
    DIRECTIONS,
    GO_BACK,
    MAX_ACCUMULATION,
    MAX_LR,
    MIN_LR,
    TRY_RATES,
    UNDONE,
)
from aggregates.rules import FIRST_RULES, RulesConfig
from aggregates.spec import (
    ACTIVATIONS,
    MAX_BLOCKS,
    MAX_WIDTH,
    ModelSpec,
    WatchedActivation,
    WatchedModel,
)
from judge.reference.observations import to_plain
from judge.reference.oracle import expected_answers
from judge.reference.rules import REFERENCE_RULES
from judge.reference.situations import (
    SIDES,
    digits,
    healthy,
    observe,
    uniform_spec,
)
from studies.reference.making import (
    Made,
    at_limits,
    going_back,
    odd_spec,
    past_decision,
    trying_rates,
)


def _decisions(
    observations: Sequence[Observation], categories: tuple[str, ...], description: str
) -> Made:
    return Made(
        kind="decisions",
        scorer="decisions",
        expected={"answers": [expected_answers(seen) for seen in observations]},
        categories=categories,
        description=description,
        outcome="every due rule is answered as the playbook says, and no other",
        files={"observations.json": [to_plain(seen) for seen in observations]},
    )


def make_remedies(rng: Random, difficulty: str) -> Made:
    """One due rule at a time, on every side: usual settings, odd ones, or those at a limit."""
    if difficulty == "hard":
        seen = at_limits(rng)
    else:
        rounds = 1 if difficulty == "easy" else 3
        seen = [observe(rng, {rule: side}) for _ in range(rounds) for rule, side in SIDES]
        if difficulty == "medium":
            seen = [replace(each, spec=odd_spec(rng)) for each in seen]
    return _decisions(
        seen,
        ("decisions", "remedies", *(("limits",) if difficulty == "hard" else ())),
        "One rule is due at a time, on each side that it can fire on"
        + (", at the limits of what a remedy may set" if difficulty == "hard" else ""),
    )


def make_precedence(rng: Random, difficulty: str) -> Made:
    """Several due rules: the first is acted on, the others wait for it."""
    sides = {rule: [side for other, side in SIDES if other == rule] for rule in FIRST_RULES}
    if difficulty == "hard":
        chosen = [rng.sample(FIRST_RULES, count) for count in (3, 3, 3, 4, 4, 4, 5, 5, 6, 7)]
    else:
        pairs = [[one, two] for one in FIRST_RULES for two in FIRST_RULES if one < two]
        chosen = rng.sample(pairs, 7) if difficulty == "easy" else pairs
    seen = [observe(rng, {rule: rng.choice(sides[rule]) for rule in rules}) for rules in chosen]
    return _decisions(
        seen,
        ("decisions", "precedence"),
        "Several rules are due at once: the first one is acted on",
    )


def make_blocked(rng: Random, _: str) -> Made:
    """The rule that goes first has no remedy left, and another one has."""
    spent = Settings(lr=5e-9 * rng.uniform(2, 4), batch_size=32)
    deep = uniform_spec(MAX_BLOCKS, width=MAX_WIDTH)
    odd = Settings(lr=0.05, batch_size=33)
    seen = [
        observe(rng, {"R7": "high", "R4": "stalled"}, settings=spent),
        observe(rng, {"R4": "stalled", "R1": "high"}, spec=deep),
        observe(rng, {"R4": "stalled", "R2": "low"}, spec=deep),
        observe(rng, {"R2": "high", "R3": "plateau"}, settings=odd),
    ]
    return _decisions(
        seen,
        ("decisions", "precedence", "limits"),
        "The rule that goes first has no remedy left: the next one that has is acted on",
    )


def make_waiting(rng: Random, difficulty: str) -> Made:
    """Rules that are due and wait all the same: an effect needs an epoch, or an average lags."""
    seen = _after_another(rng) if difficulty == "medium" else _lagging(rng)
    return _decisions(
        seen,
        ("decisions", "false_alarms"),
        "A remedy was applied just before"
        + (", and only the average has not come right yet" if difficulty == "hard" else ""),
    )


def _after_another(rng: Random) -> list[Observation]:
    found = []
    told: tuple[PastDecision, ...]
    for since in (0, 1, 2, 4):
        told = (past_decision(1, 10 - since, "R1", "applied"),)
        found.append(observe(rng, {"R2": "low"}, epoch=10, decisions=told))
        found.append(observe(rng, {"R2": "high", "R3": "plateau"}, epoch=10, decisions=told))
        found.append(observe(rng, {"R4": "stalled", "R2": "low"}, epoch=10, decisions=told))
    for outcome in ("refused", None):
        told = (past_decision(1, 9, "R1", outcome), past_decision(2, 9, "R5", "applied"))
        found.append(observe(rng, {"R2": "low"}, epoch=10, decisions=told))
    again = (past_decision(1, 2, "R1", "applied"), past_decision(2, 9, "R1", "applied"))
    found.append(observe(rng, {"R2": "low"}, epoch=10, decisions=again))
    return found


def _lagging(rng: Random) -> list[Observation]:
    found = []
    document = REFERENCE_RULES["document"]
    for rule, other in (("R7", "R1"), ("R1", "R2"), ("R5", "R1"), ("R7", "R2")):
        for since, inside in ((2, True), (3, True), (8, False)):
            told = (past_decision(1, 20 - since, rule, "applied"),)
            side = {"R7": "high", "R1": "high", "R5": "high"}[rule]
            fired = {rule: side, other: next(iter(DIRECTIONS[other]))}
            seen = observe(rng, fired, epoch=20, decisions=told, rules=document)
            limit = {"R1": document.r1_high, "R5": document.r5_high, "R7": document.r7_high}[rule]
            value = digits(limit * (0.4 if inside else 1.6))
            evaluation = replace(seen.evaluations[rule], value=value)
            found.append(replace(seen, evaluations={**seen.evaluations, rule: evaluation}))
    fresh = (
        past_decision(1, 17, "R1", "applied"),
    )  # the calibrated profile starts averages afresh
    found.append(observe(rng, {"R1": "high"}, epoch=20, decisions=fresh))
    found.append(observe(rng, {"R1": "high"}, epoch=20, decisions=(), rules=document))
    return found


def make_changed(rng: Random, _: str) -> Made:
    """A plateau after a change of the model or its weights: it waits, for as long as it may."""
    calibrated, document = REFERENCE_RULES["calibrated"], REFERENCE_RULES["document"]
    seen = []
    for rule, rules in (("R1", calibrated), ("R3", calibrated), ("R3", document)):
        patience = rules.r1_patience if rule == "R1" else rules.r3_patience
        for since in (1, rng.randint(2, patience - 1), patience, patience + 1):
            seen.append(_after_change(rng, {rule: "plateau"}, since, rules=rules))
        lost = tuple(range(1, patience))
        seen.append(_after_change(rng, {rule: "plateau"}, patience, rules=rules, lost=lost))
        lost = (*lost, patience)
        seen.append(_after_change(rng, {rule: "plateau"}, patience, rules=rules, lost=lost))
        seen.append(_after_change(rng, {rule: "plateau"}, 2, rules=rules, outcome="refused"))
        again = (("R4", 2, "applied"), ("R2", 1, "applied"))
        seen.append(_after_change(rng, {rule: "plateau"}, patience + 2, *again, rules=rules))
        seen.append(_after_change(rng, {rule: "plateau"}, 3, (rule, 9, None), rules=rules))
        later = ("R4", 2, "applied")  # and since then, every loss is lost
        seen.append(_after_change(rng, {rule: "plateau"}, 5, later, rules=rules, lost=(4, 5)))
        never = (past_decision(1, 5, rule, None),)
        seen.append(observe(rng, {rule: "plateau"}, decisions=never, rules=rules))
    between = rng.randint(calibrated.r1_patience + 1, calibrated.r3_patience)
    both = {"R1": "plateau", "R3": "plateau"}
    seen += [_after_change(rng, both, since) for since in (2, between)]
    for other, side in (("R2", "low"), ("R5", "high")):
        seen.append(_after_change(rng, {"R1": "plateau", other: side}, 3))
    seen += [_after_change(rng, {"R1": side}, 2) for side in ("high", "low")]
    last = calibrated.deferral_limit - 1
    for waited in (
        [("R3", last, None)],
        [("R3", last - 1, None)],
        [("R3", last, None), ("R3", 2, None)],
        [("R1", last, None)],
        [("R3", last, "refused")],
        [("R4", last, "applied"), ("R3", last, None)],
    ):
        seen.append(_after_change(rng, {"R3": "plateau"}, calibrated.r3_patience, *waited))
    for rule, direction, outcome in (
        ("R6", "swap_activation", "applied"),
        ("R6", "swap_activation", "refused"),
        ("R6", "add_norm", "applied"),
        ("R5", "swap_activation", "applied"),
    ):
        params = {"to": "gelu"} if direction == "swap_activation" else {}
        swap = Decision.of((rule,), direction, params, "so")
        told = (PastDecision(1, 4, "policy", swap, outcome),)
        seen.append(observe(rng, {"R6": "low", "R2": "low"}, decisions=told))
    return _decisions(
        seen,
        ("decisions", "false_alarms"),
        "The validation loss stands still after the model was changed or initialised again",
    )


def _after_change(
    rng: Random,
    fired: Mapping[str, str],
    since: int,
    *later: tuple[str, int, str | None],
    outcome: str = "applied",
    lost: Sequence[int] = (),
    rules: RulesConfig = REFERENCE_RULES["calibrated"],
) -> Observation:
    """Return an observation so many epochs after a change; its first epoch was the best since.

    `later` are other decisions, each a rule, epochs ago and its outcome; `lost` are epochs after
    the change whose validation loss is not finite.
    """
    epoch = rng.randint(14, 18)
    change = past_decision(1, epoch - since, rng.choice(("R4", "R6", "R7")), outcome)
    if "R7" in change.decision.cites:
        fresh = {**change.decision.params, "reinitialise": True}
        change = replace(change, decision=replace(change.decision, params=fresh))
    told = [past_decision(2, epoch - ago, rule, became) for rule, ago, became in later]
    decisions = sorted([change, *told], key=lambda past: past.epoch)
    history = []
    for number in range(epoch + 1):
        after = number - (epoch - since)
        loss = digits(0.4 + 0.01 * number if after < 1 else 0.9 + 0.02 * after)
        history.append(healthy(rng, number, val_loss=math.nan if after in lost else loss))
    return observe(
        rng,
        fired,
        epoch=epoch,
        rules=rules,
        history=tuple(history),
        decisions=tuple(
            replace(past, number=number) for number, past in enumerate(decisions, start=1)
        ),
    )


def make_fresh(rng: Random, _: str) -> Made:
    """Weights that are lost, and weights that are not: fresh ones, bounded steps or neither."""
    seen = []
    for classes in (10, rng.randint(3, 9), rng.randint(11, 100)):
        for by in (9.0, 9.9, 10.1, 30.0):
            seen.append(_exploding(rng, by, classes=classes))
    bare = uniform_spec(3)
    bare = replace(bare, blocks=(*bare.blocks[1:], replace(bare.blocks[0], norm="none")))
    for epoch in (0, 1):
        for spec in (uniform_spec(2), bare, uniform_spec(2, head="none")):
            seen.append(_exploding(rng, 0.9, epoch=epoch, spec=spec))
    for since in (1, 2, 3, 4, 5):
        seen.append(_exploding(rng, 2.0, since=since))
    seen.append(_exploding(rng, 11.0, since=2))
    seen.append(_exploding(rng, 2.0, since=2, clip_norm=None))
    seen.append(_exploding(rng, 2.0, {"R7": "not_finite"}, since=2))
    for other, side in (("R1", "high"), ("R1", "plateau"), ("R2", "low"), ("R5", "high")):
        seen.append(_exploding(rng, 2.0, {"R7": "high", other: side}, since=2))
    spent = _exploding(rng, 2.0, {"R7": "high", "R1": "high", "R2": "low"})
    seen.append(replace(spent, settings=Settings(lr=5e-9 * rng.uniform(7, 15), batch_size=32)))
    for ratio in (0.19, 0.201, digits(rng.uniform(0.3, 2.0)), None):
        for profile in ("calibrated", "document"):
            long = observe(rng, {"R1": "high"}, rules=REFERENCE_RULES[profile])
            found = replace(long.evaluations["R1"], value=ratio)
            seen.append(replace(long, evaluations={**long.evaluations, "R1": found}))
    return _decisions(
        seen,
        ("decisions", "remedies", "boundaries"),
        "Gradients explode, or steps are as long as the weights: fresh weights or smaller steps",
    )


def _exploding(
    rng: Random,
    by: float,
    fired: Mapping[str, str] = MappingProxyType({"R7": "high"}),
    *,
    epoch: int | None = None,
    since: int | None = None,
    clip_norm: float | None = 1.0,
    classes: int = 10,
    spec: ModelSpec | None = None,
) -> Observation:
    """Return an observation in which R7 is due and the loss is so many times that of guessing.

    `since` is how many epochs ago R7's remedy was applied.
    """
    seen = observe(rng, fired, **({} if epoch is None else {"epoch": epoch}))
    if since is not None:
        seen = replace(
            seen,
            decisions=(past_decision(1, seen.epoch - since, "R7", "applied"),),
            settings=replace(seen.settings, clip_norm=clip_norm),
        )
    last = replace(seen.history[-1], val_loss=digits(by * math.log(classes)))
    return replace(
        seen,
        spec=replace(seen.spec if spec is None else spec, classes=classes),
        history=(*seen.history[:-1], last),
    )


def make_norms(rng: Random, _: str) -> Made:
    """R1 tells of a model that learns nothing: where norms are missing, it is for want of them."""
    bare = uniform_spec(3)
    bare = replace(bare, blocks=(*bare.blocks[1:], replace(bare.blocks[0], norm="none")))
    seen = []
    for side in (*DIRECTIONS["R1"], "guessing"):
        for norm in (digits(rng.uniform(0.001, 0.04)), 0.0499, 0.0501, None):
            for spec in (uniform_spec(2), uniform_spec(2, head="none"), bare):
                seen.append(_learning_nothing(rng, {"R1": side}, norm, spec))
    for other, other_side in (("R2", "low"), ("R4", "stalled"), ("R7", "high")):
        for spec in (uniform_spec(2), bare):
            fired = {"R1": "guessing" if other == "R2" else "low", other: other_side}
            seen.append(_learning_nothing(rng, fired, 0.01, spec))
    older = _learning_nothing(rng, {"R1": "low"}, 0.01, bare)
    seen.append(replace(older, rules=REFERENCE_RULES["relative"]))  # it adds no norm for R1
    loud = replace(older.history[-1], max_layer_grad_norm=0.3)
    seen.append(replace(older, history=(*older.history[:-2], older.history[-1], loud)))
    return _decisions(
        seen,
        ("decisions", "remedies", "boundaries"),
        "A model learns nothing: norms are added where they are missing and no gradient is there",
    )


def _learning_nothing(
    rng: Random, fired: Mapping[str, str], norm: float | None, spec: ModelSpec
) -> Observation:
    """Return an observation whose last epoch had this as the largest gradient norm of a layer."""
    seen = observe(rng, fired, rules=REFERENCE_RULES["relative_4"], spec=spec)
    last = replace(seen.history[-1], max_layer_grad_norm=norm)
    return replace(seen, history=(*seen.history[:-1], last))


IN_A_LOOP = ("decrease_lr", "increase_lr", "warm_up_lr", "cycle_lr", "swap_activation", "stop")


def watched_model(
    *kinds: str, offers: Sequence[str] = IN_A_LOOP, classes: int | None = 10
) -> WatchedModel:
    """Return what is known of a model that somebody else built, with these activations."""
    activations = tuple(
        WatchedActivation(f"layers.{place}", kind) for place, kind in enumerate(kinds)
    )
    return WatchedModel("Net", 5000, "0f" * 32, activations, tuple(offers), classes)


def make_watched(rng: Random, _: str) -> Made:
    """A model in a loop of its owner: what cannot be carried out there is not decided on."""
    whole = watched_model("relu", "relu")
    seen = [observe(rng, {rule: side}, spec=whole) for rule, side in SIDES]
    for offers in ((), ("stop",), ("decrease_lr",), ("swap_activation", "increase_lr")):
        for fired in ({"R1": "high", "R3": "plateau"}, {"R1": "low"}, {"R5": "high", "R1": "high"}):
            seen.append(observe(rng, fired, spec=watched_model("relu", offers=offers)))
    for kind in ACTIVATIONS:
        seen.append(observe(rng, {"R5": "high"}, spec=watched_model("relu", kind)))
        seen.append(observe(rng, {"R6": "low", "R2": "low"}, spec=watched_model(kind)))
    seen.append(observe(rng, {"R5": "high", "R1": "high"}, spec=watched_model()))
    for changes in ({}, {"gradients_finite": False}, {"epoch_update_ratio": math.nan}):
        for fired, by in (
            ({"R7": "not_finite"}, 2.0),
            ({"R7": "not_finite", "R5": "high"}, 2.0),
            ({"R7": "not_finite", "R1": "high"}, 2.0),
            ({"R7": "high"}, 2.0),
            ({"R7": "high"}, 30.0),
            ({"R1": "high"}, 2.0),
        ):
            seen.append(_in_a_loop(rng, fired, by, whole, changes))
    for classes in (10, None):
        for since in (None, 2):
            lost = _exploding(rng, 30.0, since=since)
            seen.append(replace(lost, spec=watched_model("relu", classes=classes)))
    return _decisions(
        seen,
        ("decisions", "remedies", "limits"),
        "A model is watched in a loop of its owner, which carries out some remedies and not others",
    )


def _in_a_loop(
    rng: Random, fired: Mapping[str, str], by: float, spec: WatchedModel, changes: Mapping[str, Any]
) -> Observation:
    """Return an observation whose loss is so many times that of guessing, its steps very long."""
    seen = observe(rng, fired, spec=spec, epoch=0 if by == 2.0 else 7)
    last = replace(seen.history[-1], val_loss=digits(by * math.log(10)), **changes)
    long = replace(seen.evaluations["R1"], value=digits(rng.uniform(0.3, 2.0)))
    evaluations = {**seen.evaluations, **({"R1": long} if "R1" in fired else {})}
    return replace(seen, history=(*seen.history[:-1], last), evaluations=evaluations)


def make_silent(rng: Random, _: str) -> Made:
    """Rules that fired and want no answer: waived ones, and ones that are decided on elsewhere."""
    found = []
    for fired, waived in (
        ({"R7": "high", "R1": "low"}, ("R7",)),
        ({"R6": "low", "R4": "stalled", "R2": "low"}, ("R4", "R6")),
        ({"R1": "plateau", "R3": "plateau"}, ("R1",)),
    ):
        seen = observe(rng, fired, waived=waived)
        found.append(replace(seen, due=tuple(rule for rule in seen.due if rule not in waived)))
    apart = observe(rng, {"R7": "high", "R5": "high", "R2": "high"})
    found.append(replace(apart, due=("R5", "R2")))
    found.append(replace(apart, due=("R2",)))
    found.append(observe(rng, {}))
    return _decisions(
        found, ("decisions", "false_alarms"), "Rules that are waived or decided on elsewhere fire"
    )


def make_offers(rng: Random, difficulty: str) -> Made:
    """The values that are open to each direction, as they are told to a model."""
    if difficulty == "hard":
        seen = [
            *at_limits(rng),
            *(observe(rng, {"R6": "low"}, spec=odd_spec(rng)) for _ in "1234"),
        ]
    elif difficulty == "easy":
        seen = going_back(rng)
    else:
        seen = [observe(rng, {rule: side}) for rule, side in SIDES]
    return Made(
        kind="offers",
        scorer="offers",
        expected={"offers": [{rule: _open_to(rule, each) for rule in each.due} for each in seen]},
        categories=("offers", *(("limits",) if difficulty == "hard" else ())),
        description="What may be answered to a rule: each direction with the values that are open",
        outcome="all that is open is offered, and nothing that would be refused",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


def make_trials(rng: Random, _: str) -> Made:
    """What is open where earlier states are kept and several rates may be tried."""
    seen = trying_rates(rng)
    for finite in (True, False):  # a watched model's weights are kept while they are finite
        lost = observe(rng, {"R7": "not_finite"}, spec=watched_model("relu"))
        last = replace(lost.history[-1], gradients_finite=finite)
        seen.append(replace(lost, history=(*lost.history[:-1], last)))
    return Made(
        kind="offers",
        scorer="offers",
        expected={"offers": [{rule: _open_to(rule, each) for rule in each.due} for each in seen]},
        categories=("offers", "limits"),
        description="What may be answered where rates can be tried, or a model only guesses",
        outcome="all that is open is offered, and nothing that would be refused",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


def _open_to(rule: str, seen: Observation) -> dict[str, Any]:
    side = str(seen.evaluations[rule].side)
    found = {way: _values(rule, side, way, seen) for way in DIRECTIONS[rule].get(side, ())}
    if seen.rules.r1_adds_norm and rule == "R1" and side in ("low", "guessing"):
        found["add_norm"] = _values(rule, side, "add_norm", seen)
    answers = side in UNDONE.get(rule, ()) or (rule, side) == ("R2", "high")
    if seen.back and answers:
        back = found[GO_BACK] = _back(rule, seen)
        if back and seen.rules.tries_rates:
            back.setdefault("states", list(seen.back))
    if seen.back and seen.rules.tries_rates and seen.tries and answers and rule in ("R1", "R7"):
        found[TRY_RATES] = _tried(side, seen)
    return found


def _tried(side: str, seen: Observation) -> dict[str, Any] | None:
    """Two to four rates, one of which goes a third of the way that the side asks for, or more."""
    lr, ends = seen.settings.lr, dict[str, float]()
    if side != "low" and lr / 3 >= MIN_LR:
        ends["most"] = lr / 3
    if side in ("low", "guessing") and lr * 3 <= MAX_LR:
        ends["least"] = lr * 3
    if not ends:
        return None
    states = [-1] if side == "guessing" else list(seen.back)
    words = ["epoch", "fresh", "rates", "2", str(min(4, seen.tries)), "clip_norm"]
    return _offer(words) | {"states": states, "one": ends}


def _back(rule: str, seen: Observation) -> dict[str, Any] | None:
    lr, size, rules = seen.settings.lr, seen.settings.batch_size, seen.rules
    found = seen.evaluations[rule]
    words = ["epoch", "fresh", *map(str, seen.back[1:])]
    if rule == "R2":
        if not found.ema or not math.isfinite(found.ema):
            return None
        ends = [end * size / found.ema for end in (rules.r2_low, rules.r2_high)]
        low, high = max(1, math.ceil(ends[0])), min(math.floor(ends[1]), size - 1)
        if low > high:
            return None
        return _offer(words, exact={"lr": lr}, between={"batch_size": (low, high)})
    words.append("clip_norm")
    if found.side == "guessing":
        near = {"lr": (max(lr / 10, MIN_LR), min(lr * 10, MAX_LR))}
        return _offer(["clip_norm", "factor", "3"], between=near) | {"states": [-1]}
    if rule != "R1":
        told = {"lr": (max(lr / 10, MIN_LR), lr)}
        if rule == "R7":
            return _offer([*words, "third"], between=told)
        return _offer(words, without=["third"], between=told)
    if not found.value:
        return None
    least, most = (end / found.value * lr for end in (rules.r1_low, rules.r1_high))
    least, most = max(least, MIN_LR), min(most, MAX_LR)
    return _offer(words, between={"lr": (least, most)}) if least <= most else None


def _offer(
    words: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    exact: Mapping[str, float] | None = None,
    between: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Any]:
    bounds = {name: [low, high] for name, (low, high) in (between or {}).items()}
    return {"words": list(words), "without": list(without), "exact": exact or {}, "between": bounds}


def _values(rule: str, side: str, way: str, seen: Observation) -> dict[str, Any] | None:
    lr, size, blocks = seen.settings.lr, seen.settings.batch_size, seen.spec.blocks
    down, up = (max(lr / 10, MIN_LR), lr / 3), (lr * 3, min(lr * 10, MAX_LR))
    if rule == "R7":
        fresh = side == "not_finite"
        if isinstance(seen.spec, WatchedModel):
            fresh = fresh and not seen.history[-1].gradients_finite
        words = ["clip_norm", *(["reinitialise", "true"] if fresh else [])]
        without = [] if fresh else ["reinitialise"]
        at = {"lr": lr / 10}
        return _offer(words, exact=at, without=without) if lr / 10 >= MIN_LR else None
    if rule == "R1" and way != "add_norm":
        low, high = up if side == "low" else down
        if low > high:
            return None
        if way in ("decrease_lr", "increase_lr"):
            return _offer(between={"lr": (low, high)})
        if way == "warm_up_lr":
            return _offer(between={"lr": (low, high), "epochs": (1, 1000)})
        moved = "lr_max" if side == "low" else "lr_min"
        return _offer(["lr_min", "lr_max"], between={"epochs": (1, 1000), moved: (low, high)})
    if rule == "R2":
        if way == "decrease_batch_size":
            return None if size % 2 else _offer(exact={"batch_size": size // 2})
        if 2 * size * seen.settings.accumulation > seen.train_examples:
            return None
        if way == "accumulate_gradients":
            more = 2 * seen.settings.accumulation
            return _offer(exact={"accumulation": more}) if more <= MAX_ACCUMULATION else None
        fits = 2 * size <= seen.max_batch_size
        return _offer(exact={"batch_size": 2 * size}) if fits else None
    if way == "widen":
        most = min(8, MAX_WIDTH // max(block.width for block in blocks))
        return _offer(["block"], between={"factor": (2, most)}) if most > 1 else None
    if way == "swap_activation":
        used = {seen.spec.activation, *(block.activation for block in blocks)}
        to = [name for name in ACTIVATIONS if used != {name}]
        return _offer([*to, "block"], without=[name for name in ACTIVATIONS if name not in to])
    if way in ("add_norm", "add_residual"):
        lacks = [
            str(number)
            for number, block in enumerate(blocks)
            if (block.norm == "none" if way == "add_norm" else not block.residual)
        ]
        if not lacks:
            return _offer() if way == "add_norm" and seen.spec.norm == "none" else None
        others = [str(number) for number in range(len(blocks)) if str(number) not in lacks]
        return _offer(["block", *lacks], without=others)
    return _offer() if way == "stop" or len(blocks) < MAX_BLOCKS else None
