"""Situations that are made: observations in which some rules are due.

The same random numbers give the same situation.
I/O: none.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from aggregates.decisions import Observation, Settings
from aggregates.playbook import DIRECTIONS
from aggregates.rulebook import PRECEDENCE
from aggregates.rules import FIRST_RULES, RuleEvaluation
from aggregates.signals import EpochSignals
from aggregates.spec import BlockSpec, ModelSpec
from judge.reference.rules import REFERENCE_RULES

SIDES = tuple((rule, side) for rule in FIRST_RULES for side in DIRECTIONS[rule])
_INTERVAL = {"low": 0.9, "high": 1.1}  # of the signal-to-noise ratio, times the value
_HEALTHY = {"R1": 2.5e-3, "R2": 0.5, "R3": 0.4, "R4": None, "R5": 0.0, "R6": 0.1, "R7": 0.4}


def observe(rng: Random, fired: Mapping[str, str], **changes: Any) -> Observation:
    """Return an observation in which the rules of `fired` are due, each on its side."""
    rules = changes.get("rules", REFERENCE_RULES["calibrated"])
    epoch = changes.pop("epoch", rng.randint(6, 12))
    seen = Observation(
        run_id="run",
        epoch=epoch,
        due=tuple(rule for rule in PRECEDENCE if rule in fired),
        evaluations={rule: _evaluation(rng, rule, fired.get(rule), rules) for rule in FIRST_RULES},
        settings=Settings(
            lr=digits(10 ** rng.uniform(-3, -0.5)), batch_size=2 ** rng.randint(4, 7)
        ),
        max_batch_size=512,
        train_examples=3000,
        spec=uniform_spec(rng.randint(1, 4)),
        history=tuple(healthy(rng, number) for number in range(epoch + 1)),
        decisions=(),
        waived=(),
        rules=rules,
        edits="live",
    )
    return replace(seen, **changes)


def _evaluation(rng: Random, rule: str, side: str | None, rules: Any) -> RuleEvaluation:
    ema = _HEALTHY[rule]
    if side in ("high", "low"):
        name = f"r{rule[1]}_{side}"
        away = rng.uniform(1.2, 9.0)
        ema = digits(getattr(rules, name) * (away if side == "high" else 1 / away))
    elif side == "not_finite":
        return RuleEvaluation(rule, True, side, math.nan, _HEALTHY[rule], 0)
    value = 0.001 if ema is None else digits(ema * rng.uniform(0.9, 1.1))
    streak = rng.randint(3, 6) if side else 0
    return RuleEvaluation(rule, side is not None, side, value, ema, streak)


def healthy(rng: Random, epoch: int, **changes: Any) -> EpochSignals:
    """Return the signals of an epoch in which all is well, but for `changes`."""
    accuracy = round(0.95 - 0.8 * 0.85**epoch, 4)
    signals = EpochSignals(
        epoch=epoch,
        train_loss=digits(2.3 * (1 - accuracy)),
        train_accuracy=accuracy,
        val_loss=digits(2.4 * (1 - accuracy) + 0.3 * 0.97**epoch),
        gradients_finite=True,
        max_layer_grad_norm=digits(rng.uniform(0.2, 0.5)),
        min_layer_grad_norm=digits(rng.uniform(0.09, 0.17)),
        update_ratio=digits(rng.uniform(2e-3, 5e-3)),
        epoch_update_ratio=digits(rng.uniform(2e-3, 5e-3)),
        signal_to_noise=digits(rng.uniform(0.3, 1.2)),
        norm_noise_scale=digits(rng.uniform(100, 900)),
        dead_share=0.0,
        sparsity=0.4,
    )
    noise: Any = changes.get("signal_to_noise", signals.signal_to_noise)
    ends = {f"signal_to_noise_{end}": digits(noise * by) for end, by in _INTERVAL.items()}
    return replace(signals, **{**ends, **changes})


def uniform_spec(
    blocks: int,
    *,
    width: int = 32,
    norm: str = "batch",
    residual: bool = True,
    activation: str = "relu",
    head: str = "batch",
) -> ModelSpec:
    """Return a model whose blocks are all alike."""
    block = BlockSpec(width, residual, norm, activation)
    return ModelSpec(10, 16, 2, (block,) * blocks, head, activation)


def digits(value: float) -> float:
    """Return a number in four digits."""
    return float(f"{value:.4g}")
