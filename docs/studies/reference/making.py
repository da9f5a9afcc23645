"""What the makers of reference tasks have in common: a task without its name, and situations.

The same random numbers give the same task, byte for byte.
I/O: none.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from aggregates.decisions import Decision, Observation, PastDecision, Settings
from aggregates.playbook import DEFER, DIRECTIONS, FRESH, MIN_LR, REMEDIES
from aggregates.rules import FIRST_RULES
from aggregates.spec import ACTIVATIONS, MAX_BLOCKS, MAX_WIDTH, BlockSpec, ModelSpec
from judge.reference.rules import REFERENCE_RULES
from judge.reference.situations import SIDES, digits, observe, uniform_spec


@dataclass(frozen=True, kw_only=True)
class Made:
    """A task without its name."""

    kind: str  # as the worker knows it
    scorer: str
    expected: Mapping[str, Any]
    categories: tuple[str, ...]
    description: str
    outcome: str  # what is expected, in words
    files: Mapping[str, Any]  # name -> value of JSON


Maker = Callable[[Random, str], Made]
"""A random generator and a difficulty in, a task out."""


def past_decision(
    number: int, epoch: int, rule: str, outcome: str | None, words: str = "so"
) -> PastDecision:
    """Return an earlier decision on a rule, with what became of it."""
    side = next(iter(DIRECTIONS[rule]))
    direction = DIRECTIONS[rule][side][0] if outcome else DEFER
    values: Mapping[str, Any] = {"lr": 0.01, "batch_size": 32, "to": "gelu", "epochs": 3}
    params = {name: values[name] for name in REMEDIES[direction].needs}
    said = Decision.of((rule,), direction, params, words)
    return PastDecision(number, epoch, "policy", said, outcome)


def any_side(rng: Random, rule: str) -> str:
    """Return one of the sides that a rule can fire on."""
    return rng.choice([side for other, side in SIDES if other == rule])


def observe_several(rng: Random, count: int) -> Observation:
    """Return an observation in which so many rules are due."""
    rules = rng.sample(FIRST_RULES, count)
    return observe(rng, {rule: any_side(rng, rule) for rule in rules})


def going_back(rng: Random) -> list[Observation]:
    """Return observations that may go back, one rule due in each, some at the limits."""
    rules = REFERENCE_RULES["relative"]

    def seen(rule: str, side: str, value: float | None = None, **settings: Any) -> Observation:
        epoch = rng.randint(6, 12)
        back = (FRESH, *sorted(rng.sample(range(epoch), 3)))
        now = Settings(**{"lr": 0.05, "batch_size": 64, **settings})
        found = observe(rng, {rule: side}, rules=rules, epoch=epoch, back=back, settings=now)
        if value is None:
            return found
        told = replace(found.evaluations[rule], ema=value, value=value)
        return replace(found, evaluations={**found.evaluations, rule: told})

    return [
        *(seen(rule, side) for rule, side in SIDES),
        *(replace(seen(rule, side), back=()) for rule, side in (("R1", "high"), ("R2", "high"))),
        *(
            replace(seen(rule, side), back=(FRESH,))
            for rule, side in (("R5", "high"), ("R1", "low"))
        ),
        seen("R1", "low", 1e-9),  # the largest rate there is does not reach the band
        seen("R1", "low", 1e-5),  # and here ends it
        seen("R1", "high", 1e6),
        seen("R1", "high", 3e4),
        seen("R1", "high", 2 * rules.r1_high, lr=2 * MIN_LR),  # one rate alone is open
        seen("R1", "low", 0.0),
        seen("R2", "high", 9.0, batch_size=2),
        seen("R2", "high", 500.0, batch_size=20),
        seen("R2", "high", 3.0, batch_size=5),
        seen("R2", "high", math.inf),
        seen("R2", "low", batch_size=1, accumulation=512),
        seen("R2", "low", batch_size=1, accumulation=513),
        seen("R6", "low", lr=3e-8),
        seen("R7", "high", lr=3e-8, clip_norm=1.0),
    ]


def trying_rates(rng: Random) -> list[Observation]:
    """Return observations that may go back and try rates, one rule due in each."""
    rules = REFERENCE_RULES["relative_4"]

    def seen(rule: str, side: str, tries: int, **changes: Any) -> Observation:
        epoch = rng.randint(6, 12)
        kept = (FRESH, *sorted(rng.sample(range(epoch), 3)))
        lr = changes.pop("lr", 0.05)
        now = Settings(lr=digits(lr * rng.uniform(0.9, 1.1)), batch_size=64)
        usual = {"epoch": epoch, "back": kept, "tries": tries, "settings": now, "rules": rules}
        return observe(rng, {rule: side}, **{**usual, **changes})

    bare = uniform_spec(3, norm="none")
    sides = (*SIDES, ("R1", "guessing"))
    return [
        *(seen(rule, side, tries) for rule, side in sides for tries in (0, rng.randint(5, 20))),
        *(seen("R1", side, tries) for side in ("low", "guessing") for tries in (2, 3, 4, 5)),
        *(seen("R1", "low", 3, spec=spec) for spec in (bare, uniform_spec(2, head="none"))),
        *(seen("R1", "guessing", 3, spec=spec) for spec in (bare, odd_spec(rng))),
        *(seen("R1", "guessing", 3, back=back) for back in ((), (FRESH,))),
        seen("R7", "high", 2, back=(FRESH,)),
        *(
            seen(rule, side, 4, lr=lr)
            for rule, side in (("R1", "high"), ("R1", "low"), ("R1", "guessing"), ("R7", "high"))
            for lr in (1.5e-8, 6e-8, 2.0, 5.0)
        ),
        # A third, or three times as much, is the end of what there is.
        *(
            seen(rule, side, 4, settings=Settings(lr=lr, batch_size=64))
            for rule, side in (("R1", "guessing"), ("R1", "low"), ("R7", "high"))
            for lr in (math.nextafter(3e-8, 1), 10 / 3)
        ),
    ]


def odd_spec(rng: Random) -> ModelSpec:
    """Return a model whose blocks differ."""
    blocks = tuple(
        BlockSpec(
            rng.choice((16, 32, 48)),
            rng.random() < 0.6,
            rng.choice(("batch", "batch", "none")),
            rng.choice(ACTIVATIONS),
        )
        for _ in range(rng.randint(1, 5))
    )
    return ModelSpec(10, 16, 2, blocks, rng.choice(("batch", "batch", "none")), "relu")


def _uneven(blocks: int, widest: int) -> ModelSpec:
    """Return a model with one block as wide as that, and narrow ones in front."""
    spec = uniform_spec(blocks, width=16)
    return replace(spec, blocks=(*spec.blocks[1:], replace(spec.blocks[0], width=widest)))


def _mild(rng: Random, side: str) -> Observation:
    """Return an observation in which R1 asks for little more than the least change."""
    seen = observe(rng, {"R1": side}, settings=Settings(lr=0.01, batch_size=32))
    ema = digits(seen.rules.r1_low / 3.5 if side == "low" else seen.rules.r1_high * 3.5)
    found = replace(seen.evaluations["R1"], ema=ema, value=ema)
    return replace(seen, evaluations={**seen.evaluations, "R1": found})


def at_limits(rng: Random) -> list[Observation]:
    """Return observations around the limits of what remedies may set, one rule due in each."""

    def lr(rule: str, side: str, value: float) -> Observation:
        return observe(rng, {rule: side}, settings=Settings(lr=value, batch_size=32))

    def batch(side: str, size: int, summed: int, fit: int, examples: int) -> Observation:
        now = Settings(lr=0.05, batch_size=size, accumulation=summed)
        return observe(rng, {"R2": side}, settings=now, max_batch_size=fit, train_examples=examples)

    def model(rule: str, spec: ModelSpec) -> Observation:
        side = next(iter(DIRECTIONS[rule]))
        return observe(rng, {rule: side}, spec=spec)

    near = digits(rng.uniform(1.1, 1.9))
    one_bare = uniform_spec(3)
    bare = replace(one_bare.blocks[1], norm="none")
    plain = replace(one_bare.blocks[1], residual=False)
    leaky = replace(one_bare.blocks[1], activation="leaky_relu")
    still = observe(rng, {"R1": "low"})
    nothing = replace(still.evaluations["R1"], ema=0.0, value=0.0)
    lost = observe(rng, {"R7": "not_finite"})
    unknown = replace(lost.evaluations["R7"], ema=None, value=None)
    return [
        *(
            lr("R7", side, value)
            for side in ("high", "not_finite")
            for value in (1e-7, 9.5e-8, 5e-8)
        ),
        *(lr("R1", side, 1e-8 * near) for side in ("high", "plateau")),
        *(lr("R1", side, 3.05e-8 * near) for side in ("high", "plateau")),
        lr("R1", "low", 3.35 * near),
        lr("R1", "low", 3.2),
        lr("R1", "low", 10 / 3),  # three times as much is the most that there is
        lr("R1", "high", math.nextafter(3e-8, 1)),  # and a third of this the least
        lr("R1", "low", 1.2),
        replace(still, evaluations={**still.evaluations, "R1": nothing}),
        replace(lost, evaluations={**lost.evaluations, "R7": unknown}),
        *(_mild(rng, side) for side in ("low", "high")),
        batch("high", 33, 1, 512, 3000),
        batch("high", 2, 1, 512, 3000),
        batch("high", 1, 1, 512, 3000),
        batch("low", 64, 1, 128, 3000),
        batch("low", 64, 1, 127, 3000),
        batch("low", 64, 2, 64, 3000),
        batch("low", 64, 2, 512, 256),
        batch("low", 64, 2, 512, 255),
        batch("low", 64, 1, 64, 127),
        model("R4", uniform_spec(MAX_BLOCKS, width=MAX_WIDTH // 2)),
        model("R4", uniform_spec(MAX_BLOCKS, width=MAX_WIDTH)),
        model("R4", uniform_spec(2, width=MAX_WIDTH)),
        model("R4", _uneven(MAX_BLOCKS, MAX_WIDTH)),
        model("R4", _uneven(3, MAX_WIDTH // 2)),
        model("R5", replace(one_bare, blocks=(*one_bare.blocks, leaky))),
        model("R6", uniform_spec(2, head="none")),
        model("R6", replace(one_bare, blocks=(one_bare.blocks[0], bare, bare))),
        model("R6", replace(one_bare, blocks=(plain, one_bare.blocks[0], plain))),
        *(
            model(rule, uniform_spec(2, activation=name))
            for rule in ("R5", "R6")
            for name in ACTIVATIONS
        ),
    ]
