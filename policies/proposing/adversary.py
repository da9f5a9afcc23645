"""The adversary: situations near the rules' bounds, made of situations that there were.

A rule's signal is scaled, in every epoch, until its average lies just inside or just outside of a
bound; or a setting is moved to where a remedy is at its limit. The rules are evaluated anew on what
comes of it, so that nothing contradicts itself. What the right answer is, others say.

Source: the rules' bounds are aggregates.rules.RulesConfig's.
I/O: none.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from aggregates.decisions import Observation
from aggregates.firing import evaluate_rules
from aggregates.playbook import MAX_LR, MIN_LR
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import RulesConfig
from aggregates.signals import EpochSignals

_NEAR = (0.999, 1.001, 0.98, 1.02)  # times the bound
_ENDS = ("signal_to_noise_low", "signal_to_noise_high")
_MOST_TRIES = 20  # for each situation that is asked for


def edge_cases(
    situations: Sequence[Observation], *, seed: int, count: int
) -> Iterator[Observation]:
    """Give at most `count` situations in which something is due; the same seed, the same ones."""
    draw = random.Random(seed)  # noqa: S311 - situations, no secrets
    found = 0
    for _ in range(count * _MOST_TRIES if situations else 0):
        seen = draw.choice(situations)
        seen = draw.choice((_at_bound, _at_bound, _at_limit))(seen, draw)
        if seen.due and all(math.isfinite(each.train_loss) for each in seen.history):
            yield seen
            found += 1
        if found == count:
            return


def _at_bound(seen: Observation, draw: random.Random) -> Observation:
    """Return the situation with one signal's average just beside one of its bounds."""
    rule, name, bound = draw.choice(_bounds(seen.rules))
    # Where the value counts too, the last epochs all lie where the average does.
    flat = seen.rules.persistence if seen.rules.band_needs_value else 0
    before = seen.history[: len(seen.history) - flat]
    if not before:
        return seen
    average = _evaluated(replace(seen, history=before)).evaluations[rule].ema
    if not average or not math.isfinite(average):
        return seen
    level = bound * draw.choice(_NEAR)
    history = tuple(_scaled(signals, name, level / average) for signals in before)
    last = seen.history[len(before) :]
    return _evaluated(replace(seen, history=history + tuple(_set(e, name, level) for e in last)))


def _at_limit(seen: Observation, draw: random.Random) -> Observation:
    """Return the situation with a setting where remedies have no room left, or just enough."""
    size = seen.max_batch_size
    changes = draw.choice(
        (
            {"lr": MIN_LR * draw.choice((2.9, 3.1, 9.9, 10.1))},
            {"lr": MAX_LR / draw.choice((2.9, 3.1, 9.9, 10.1))},
            {"batch_size": size},
            {"batch_size": max(1, size // 2)},
            {"batch_size": max(1, size // 2 + 1)},
            {"batch_size": 1},
        )
    )
    return replace(seen, settings=replace(seen.settings, **changes))


def _evaluated(seen: Observation) -> Observation:
    found = evaluate_rules(seen.history, seen.remedies, seen.rules)
    due = tuple(rule for rule in fired_in_precedence(found) if rule not in seen.waived)
    return replace(seen, evaluations=dict(found), due=due, fired=None)


def _bounds(rules: RulesConfig) -> tuple[tuple[str, str, float], ...]:
    """Return rule, signal and bound of everything that has one."""
    return (
        ("R1", rules.r1_signal, rules.r1_low),
        ("R1", rules.r1_signal, rules.r1_high),
        ("R2", rules.r2_signal, rules.r2_low),
        ("R2", rules.r2_signal, rules.r2_high),
        ("R5", rules.r5_signal, rules.r5_high),
        ("R6", "min_layer_grad_norm", rules.r6_low),
        ("R7", "max_layer_grad_norm", rules.r7_high),
    )


def _scaled(signals: EpochSignals, name: str, factor: float) -> EpochSignals:
    value: float | None = getattr(signals, name)
    if value is None:
        return signals
    return _set(signals, name, value * factor)


def _set(signals: EpochSignals, name: str, value: float) -> EpochSignals:
    """Return the epoch with another value of a signal; an interval shrinks to it."""
    names = (name, *_ENDS) if name == "signal_to_noise" else (name,)
    changes: dict[str, Any] = dict.fromkeys(names, value)
    return replace(signals, **changes)
