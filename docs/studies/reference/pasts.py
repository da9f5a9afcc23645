"""Makers of reference tasks about runs with a past, and about the playbook's own numbers.

What they draw lies wide: earlier decisions of every outcome, lost and ruined losses, ratios far
outside of their bands and values at the very limits.
The same random numbers give the same task, byte for byte.
I/O: none.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from aggregates.decisions import Observation, PastDecision, Settings
from aggregates.playbook import DEFER, MAX_ACCUMULATION
from aggregates.rules import FIRST_RULES, RulesConfig
from aggregates.spec import MAX_BLOCKS, MAX_WIDTH, Spec
from judge.reference.observations import to_plain
from judge.reference.oracle import expected_answers
from judge.reference.rules import REFERENCE_RULES
from judge.reference.situations import digits, healthy, observe, uniform_spec
from studies.reference.decisions import IN_A_LOOP, watched_model
from studies.reference.making import Made, any_side, odd_spec, past_decision

_OBSERVATIONS = 50
_OUTCOMES = ("applied", "applied", "refused", None)
_LAGS = 4  # epochs for which an average of a document's rules may lag


def make_past(rng: Random, _: str) -> Made:
    """Runs that have decided before: all that a playbook has to keep in mind, in any mixture."""
    seen = [*_at_ends(rng), *(_with_a_past(rng) for _ in range(_OBSERVATIONS))]
    return Made(
        kind="decisions",
        scorer="decisions",
        expected={"answers": [expected_answers(each) for each in seen]},
        categories=("decisions", "precedence", "false_alarms", "boundaries", "limits"),
        description="Rules are due in runs that decided before, whose losses may be lost and whose "
        "ratios may be large",
        outcome="every due rule is answered as the playbook says, and no other",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


def make_numbers(rng: Random, _: str) -> Made:
    """The playbook with other numbers of its own: what it records of itself, and what it does."""
    numbers: dict[str, Any] = {
        "least_lr_factor": digits(rng.uniform(3.1, 5.0)),
        "most_lr_factor": digits(rng.uniform(9.1, 9.9)),
        "clip_norm": digits(rng.uniform(0.1, 50.0)),
        "most_blocks": rng.randint(3, 12),
        "lag_patience": rng.randint(1, 6),
    }
    seen, expected = [], []

    def case(one: Observation, direction: str, params: dict[str, Any]) -> None:
        seen.append(one)
        expected.append([[direction, params]])

    def growing(blocks: int, width: int) -> Observation:
        return observe(rng, {"R4": "stalled"}, spec=uniform_spec(blocks, width=width))

    one = observe(rng, {"R7": "high"}, epoch=7)
    case(one, "decrease_lr", {"lr": one.settings.lr / 10, "clip_norm": numbers["clip_norm"]})
    one = observe(rng, {"R1": "plateau"})
    case(one, "decrease_lr", {"lr": one.settings.lr / numbers["least_lr_factor"]})
    for factor, away in (("least_lr_factor", 1.01), ("most_lr_factor", 1e3)):
        one = observe(rng, {"R1": "high"}, rules=REFERENCE_RULES["relative_4"])
        ema = away * math.sqrt(one.rules.r1_low * one.rules.r1_high)
        told = replace(one.evaluations["R1"], ema=ema, value=0.1)
        one = replace(one, evaluations={**one.evaluations, "R1": told})
        case(one, "decrease_lr", {"lr": one.settings.lr / numbers[factor]})
    one = observe(rng, {"R1": "low"})  # whose band is so narrow that the factor is none of its ends
    ema, middle = one.rules.r1_low / 1.001, math.sqrt(one.rules.r1_low * one.rules.r1_high)
    low = replace(one.evaluations["R1"], ema=ema)
    case(
        replace(one, evaluations={**one.evaluations, "R1": low}),
        "increase_lr",
        {"lr": one.settings.lr * (middle / ema)},
    )
    most = numbers["most_blocks"]
    case(growing(most - 1, 32), "add_block", {})
    case(growing(most, 32), "widen", {"factor": 2})
    case(growing(most, MAX_WIDTH), "add_block", {})
    case(growing(MAX_BLOCKS, MAX_WIDTH // 2), "widen", {"factor": 2})
    for since in (numbers["lag_patience"], numbers["lag_patience"] + 1):
        before = (past_decision(1, 12 - since, "R2", "applied"),)
        lagging = {"rules": REFERENCE_RULES["document"], "epoch": 12, "decisions": before}
        one = observe(rng, {"R2": "high"}, **lagging)
        halved = ("decrease_batch_size", {"batch_size": one.settings.batch_size // 2})
        case(one, *((DEFER, {}) if since <= numbers["lag_patience"] else halved))
    return Made(
        kind="numbers",
        scorer="exact",
        expected={"answer": {"said": {"name": "playbook", **numbers}, "answers": expected}},
        categories=("decisions", "remedies", "limits"),
        description="The playbook follows other numbers than those of the file, and records them",
        outcome="what it records is what it follows",
        files={"numbers.json": numbers, "observations.json": [to_plain(each) for each in seen]},
    )


def _at_ends(rng: Random) -> list[Observation]:
    """Return observations at the very ends of what the playbook says, and just beyond."""
    rules, latest = REFERENCE_RULES["calibrated"], REFERENCE_RULES["relative_4"]
    found = []
    for since in (rules.persistence - 1, rules.persistence):
        told = (past_decision(1, 10 - since, "R1", "applied"),)
        found.append(observe(rng, {"R4": "stalled"}, epoch=10, decisions=told))
    for value in (0.2, 0.2001):
        seen = observe(rng, {"R1": "high"})
        told_by = replace(seen.evaluations["R1"], value=value)
        found.append(replace(seen, evaluations={**seen.evaluations, "R1": told_by}))
    for summed in (MAX_ACCUMULATION // 2, MAX_ACCUMULATION):
        now = Settings(lr=0.01, batch_size=16, accumulation=summed)
        full = {"settings": now, "max_batch_size": 16, "train_examples": 300_000}
        found.append(observe(rng, {"R2": "low"}, **full))
    for norm in (0.0499, 0.05):
        bare = uniform_spec(2, norm="none")
        seen = observe(rng, {"R1": "low"}, rules=latest, spec=bare)
        last = replace(seen.history[-1], max_layer_grad_norm=norm)
        found.append(replace(seen, history=(*seen.history[:-1], last)))
        found.append(replace(seen, history=()))
    for loss in (10.0, 10.001, math.inf, math.nan):
        seen = observe(rng, {"R7": "high"}, epoch=8)
        last = replace(seen.history[-1], val_loss=loss * math.log(seen.spec.classes or 1))
        found.append(replace(seen, history=(*seen.history[:-1], last)))
        found.append(replace(seen, history=()))
    return found


def _with_a_past(rng: Random) -> Observation:
    rules = rng.choice([*REFERENCE_RULES.values()])
    epoch = rng.choice((0, 1, *(rng.randint(8, 18) for _ in range(6))))
    several = rng.sample(FIRST_RULES, rng.choice((1, 1, 2, 2, 3)))
    fired = {rule: any_side(rng, rule) for rule in several}
    if "R1" in fired and "R4" not in fired and rng.random() < 0.2:
        fired["R1"] = "guessing"
    told = _told(rng, epoch, [*fired], rules)
    seen = observe(
        rng,
        fired,
        rules=rules,
        epoch=epoch,
        spec=_spec(rng),
        settings=_settings(rng),
        max_batch_size=rng.choice((16, 64, 512)),
        train_examples=rng.choice((100, 3000, 3000, 300_000)),
        decisions=told,
    )
    seen = replace(seen, history=_history(rng, seen, told))
    return replace(seen, evaluations={**seen.evaluations, **_far(rng, seen)})


def _told(
    rng: Random, epoch: int, fired: Sequence[str], rules: RulesConfig
) -> tuple[PastDecision, ...]:
    """Return earlier decisions, mostly on the rules that are due, deferrals in a row among them."""
    found = []
    for _ in range(rng.choice((0, 1, 2, 3)) if epoch else 0):
        rule = rng.choice((*fired, *fired, *fired, *FIRST_RULES))
        when, outcome = rng.randrange(max(0, epoch - 9), epoch), rng.choice(_OUTCOMES)
        if outcome == "applied" and not rules.restart_after_remedy:
            when = min(when, epoch - 1 - _LAGS)  # whether its average lags is asked elsewhere
            if when < 0:
                continue
        change = past_decision(1, when, rule, outcome)
        if rule == "R6" and outcome and rng.random() < 0.5:
            swap = past_decision(1, when, "R5", outcome).decision
            change = replace(change, decision=replace(swap, cites=("R6",)))
        if outcome and rule in ("R1", "R7") and rng.random() < 0.3:
            params = {**change.decision.params, "reinitialise": True}
            change = replace(change, decision=replace(change.decision, params=params))
        found.append(change)
        if outcome is None and when + 1 < epoch:
            found.append(past_decision(1, when + 1, rule, None))
    found.sort(key=lambda past: past.epoch)
    return tuple(replace(past, number=number) for number, past in enumerate(found, start=1))


def _history(rng: Random, seen: Observation, told: Sequence[PastDecision]) -> tuple[Any, ...]:
    """Return a history whose losses may be lost; what came after a change began at its best."""
    changes = [
        past.epoch
        for past in told
        if past.outcome == "applied"
        and (past.decision.edit is not None or past.decision.params.get("reinitialise"))
    ]
    change = max(changes, default=-1)
    patience = min(seen.rules.r1_patience, seen.rules.r3_patience)
    may_be_lost = not changes or seen.epoch - change <= patience
    lost = set(rng.sample(range(seen.epoch + 1), rng.randint(0, seen.epoch + 1)))
    if rng.random() < 0.6 or not may_be_lost:
        lost = {each for each in lost if each <= change}
    rows = []
    for number in range(seen.epoch + 1):
        loss = digits(0.4 + 0.01 * number if number <= change else 0.9 + 0.02 * (number - change))
        if number in lost:
            loss = rng.choice((math.nan, math.inf))
        rows.append(healthy(rng, number, val_loss=loss))
    ruined = rng.choice((None, None, 9.9, 10.0, 10.1, 1e6))
    if ruined and not any(rule in seen.due for rule in ("R1", "R3")):
        classes = seen.spec.classes or 10
        rows[-1] = replace(rows[-1], val_loss=ruined * math.log(classes))
    norm = rng.choice((rows[-1].max_layer_grad_norm, 0.01, 0.05, None))
    rows[-1] = replace(rows[-1], max_layer_grad_norm=norm)
    if rng.random() < 0.1:
        changed = rng.choice(({"gradients_finite": False}, {"epoch_update_ratio": math.nan}))
        rows[-1] = replace(rows[-1], **changed)
    return tuple(rows) if changes or rng.random() < 0.97 else ()


def _far(rng: Random, seen: Observation) -> dict[str, Any]:
    """Return other numbers of R1 and R2: little or far outside of their bands, or no average."""
    found: dict[str, Any] = {}
    for rule in ("R1", "R2"):
        side = seen.evaluations[rule].side
        if rule not in seen.due or side not in ("high", "low"):
            continue
        low, high = (getattr(seen.rules, f"{rule.lower()}_{end}") for end in ("low", "high"))
        away = rng.choice((1.01, 1.3, 3.0, 1e3, 1e6))
        value = digits(high * away if side == "high" else low / away)
        ema: float | None = rng.choice((value, value, value, None))
        if rule == "R1" and side == "high":
            value = rng.choice((value, value, 0.2, 0.2001))
        found[rule] = replace(seen.evaluations[rule], value=value, ema=ema)
    return found


def _settings(rng: Random) -> Settings:
    near = digits(rng.uniform(1.0, 9.9))
    lr = rng.choice((0.01 * near, 0.01 * near, 1e-8 * near, near, 1e-7, 3e-8, 10 / 3))
    size = rng.choice((1, 2, 8, 16, 32, 33, 64))
    summed = rng.choice((1, 1, 2, MAX_ACCUMULATION // 2, MAX_ACCUMULATION))
    return Settings(lr=lr, batch_size=size, accumulation=summed, clip_norm=rng.choice((None, 1.0)))


def _spec(rng: Random) -> Spec:
    kind = rng.randrange(8)
    if kind == 0:
        kinds = [rng.choice(("relu", "gelu", "leaky_relu")) for _ in range(rng.randint(0, 2))]
        offers = rng.sample(IN_A_LOOP, rng.randint(0, len(IN_A_LOOP)))
        return watched_model(*kinds, offers=offers, classes=rng.choice((10, 3, None)))
    if kind == 1:
        return odd_spec(rng)
    blocks = rng.choice((2, 5, 6, 7, MAX_BLOCKS)) if kind == 2 else rng.randint(1, 4)
    width = rng.choice((32, MAX_WIDTH // 2, MAX_WIDTH)) if kind == 2 else 32
    bare: Any = rng.choice(({}, {}, {"norm": "none"}, {"head": "none"}))
    spec = uniform_spec(blocks, width=width, residual=rng.random() < 0.8, **bare)
    return replace(spec, classes=rng.choice((10, 10, 3, 100)))
