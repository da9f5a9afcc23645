"""Simulated changes that are put to the gate, many at once, and to the document's plain rule.

The stochastic tasks here are the worst of their kind: a repeat fails in either arm with the flake
rate, whatever the other arm does with the same seed. The decisions are those of e_values.py.

Source of the plain rule: the design record's promotion criteria, with one run of each arm.
I/O: none; random numbers are passed in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from judge.gauntlet.comparison.e_values import (
    SUCCESS_SHARE,
    Bools,
    ComparisonSettings,
    Floats,
    LogEValues,
    SequentialState,
    log_e,
    schedule,
    standing,
)
from judge.gauntlet.comparison.evaluate import error_level
from judge.gauntlet.comparison.weighing import GUARDED

__all__ = [
    "Trials",
    "World",
    "mixed_sequences",
    "null_sequences",
    "plain_rule",
    "try_changes",
]

Ints = npt.NDArray[np.int64]
_OUTCOMES = np.array([-1.0, 0.0, 1.0])  # only the base succeeds, no difference, only the candidate
_CHUNK = 10_000  # changes that are weighed at once: tens of megabytes


@dataclass(frozen=True, kw_only=True)
class World:
    """A reference set of stochastic tasks, and what a change does to the first two of them."""

    flake: float
    tasks: int = 20
    improves: float = 0.0  # the first task
    harms: float = 0.0  # the second
    exact: bool = False  # a deterministic task is improved as well

    def failures(self) -> tuple[Floats, Floats]:
        """Return (base, candidate): each task's chance of failing, of shape (tasks,)."""
        base = np.full(self.tasks, self.flake)
        candidate = base.copy()
        base[0] += self.improves
        candidate[1] += self.harms
        return base, candidate


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What became of N changes."""

    better: Bools  # (N,)
    worse: Bools  # (N,)
    pairs: Ints  # (N,), of all tasks together


def try_changes(
    world: World,
    levels: Floats,
    *,
    rng: np.random.Generator,
    settings: ComparisonSettings,
    cached: Ints | None = None,
) -> Trials:
    """Put one change to the gate for each level of `levels`, of shape (N,).

    `cached` are the base's failures in the pairs from each look to the next, if all changes are
    compared to the same answers of the base: (tasks, looks). Else every change has its own.
    """
    parts = [
        _try_chunk(world, levels[at : at + _CHUNK], rng=rng, settings=settings, cached=cached)
        for at in range(0, max(1, len(levels)), _CHUNK)
    ]
    return Trials(
        better=np.concatenate([each.better for each in parts]),
        worse=np.concatenate([each.worse for each in parts]),
        pairs=np.concatenate([each.pairs for each in parts]),
    )


def _try_chunk(
    world: World,
    levels: Floats,
    *,
    rng: np.random.Generator,
    settings: ComparisonSettings,
    cached: Ints | None,
) -> Trials:
    looks = np.array(schedule(settings))
    base, candidate = world.failures()
    shape = (len(levels), world.tasks)
    counts = np.zeros((*shape, 3))
    look = np.zeros(shape, dtype=np.int64)  # how often each task was looked at
    better, worse = np.zeros(len(levels), dtype=bool), np.zeros(len(levels), dtype=bool)
    going = np.arange(len(levels))
    wanted = np.ones(shape, dtype=bool)
    while going.size:
        row, task = np.nonzero(wanted)
        row = going[row]
        at = look[row, task]
        new = np.diff(looks, prepend=0)[at]
        failed = rng.binomial(new, base[task]) if cached is None else cached[task, at]
        lost = rng.binomial(new - failed, candidate[task])
        won = rng.binomial(failed, 1.0 - candidate[task])
        counts[row, task] += np.stack([lost, new - lost - won, won], axis=-1)
        look[row, task] += 1
        found = _weigh(counts[going], look[going] == len(looks), levels[going], world, settings)
        better[going], worse[going] = found.better, found.worse
        left = found.wanted.any(axis=-1)
        going, wanted = going[left], found.wanted[left]
    return Trials(better=better, worse=worse, pairs=counts.sum(axis=(1, 2)).astype(np.int64))


def _weigh(
    counts: Floats, spent: Bools, levels: Floats, world: World, settings: ComparisonSettings
) -> SequentialState:
    """Weigh counts of shape (changes, tasks, 3) as weighing.py does; no task has metrics."""
    improved = log_e(_OUTCOMES, counts, margin=0.0)
    metrics = np.zeros((len(counts), 1))  # money that is on claims which nobody disputes
    guards = np.zeros((len(counts), (len(GUARDED) - 1) * world.tasks))  # all but success
    return standing(
        LogEValues(
            improved=np.concatenate([improved, metrics], axis=-1),
            weights=np.array([SUCCESS_SHARE / world.tasks] * world.tasks + [1.0 - SUCCESS_SHARE]),
            unharmed=log_e(_OUTCOMES, counts, margin=settings.margin),
            harmed=np.concatenate([log_e(-_OUTCOMES, counts, margin=0.0), guards], axis=-1),
            hopeless=log_e(-_OUTCOMES, counts, margin=settings.margin),
            spent=spent,
            level=levels,
            exact=np.full(len(counts), world.exact),
        ),
        settings=settings,
    )


def null_sequences(
    world: World,
    *,
    sequences: int,
    proposals: int,
    cached: bool,
    rng: np.random.Generator,
    settings: ComparisonSettings,
) -> tuple[Bools, Ints]:
    """Return (promoted, pairs), both (sequences, proposals), of changes that change nothing.

    `cached`: all proposals of a sequence are compared to the same answers of the base.
    """
    promoted = np.zeros((sequences, proposals), dtype=bool)
    pairs = np.zeros((sequences, proposals), dtype=np.int64)
    new = np.diff(schedule(settings), prepend=0)
    for sequence in range(sequences):
        failed = rng.binomial(new, world.flake, size=(world.tasks, len(new))) if cached else None
        at = 0
        while at < proposals:  # as if nothing more were promoted; where something is, from there on
            before = promoted[sequence, :at].tolist()
            levels = [error_level([*before, *[False] * more]) for more in range(proposals - at)]
            found = try_changes(world, np.array(levels), rng=rng, settings=settings, cached=failed)
            upto = 1 + (int(found.better.argmax()) if found.better.any() else len(levels) - 1)
            promoted[sequence, at : at + upto] = found.better[:upto]
            pairs[sequence, at : at + upto] = found.pairs[:upto]
            at += upto
    return promoted, pairs


def mixed_sequences(
    worlds: Sequence[World],
    *,
    wrong: Sequence[bool],
    sequences: int,
    proposals: int,
    rng: np.random.Generator,
    settings: ComparisonSettings,
) -> tuple[Floats, Floats]:
    """Return each sequence's (wrong, right) promotions; its proposals are drawn from `worlds`."""
    promoted = np.zeros((sequences, 0), dtype=bool)
    counts = np.zeros((2, sequences))  # right, wrong
    for _ in range(proposals):
        levels = np.array([error_level(earlier) for earlier in promoted.tolist()])
        kind = rng.integers(len(worlds), size=sequences)
        better = np.zeros(sequences, dtype=bool)
        for number, world in enumerate(worlds):
            those = np.flatnonzero(kind == number)
            better[those] = try_changes(world, levels[those], rng=rng, settings=settings).better
            counts[int(wrong[number]), those] += better[those]
        promoted = np.concatenate([promoted, better[:, None]], axis=1)
    return counts[1], counts[0]


def plain_rule(
    world: World, *, metrics: int, changes: int, rng: np.random.Generator
) -> Mapping[str, float]:
    """Return how often one run of each arm leads to what, by the document's criteria.

    Each of `metrics` is measured over the whole set, with noise of its own that a change does not
    move; being better in any of them is an improvement, as a higher share of successes is.
    """
    base, candidate = world.failures()
    before = rng.random((changes, world.tasks)) >= base
    after = rng.random((changes, world.tasks)) >= candidate
    regressed = (before & ~after).any(axis=-1)
    noise = rng.normal(size=(2, changes, metrics))
    gained = (noise[0] < noise[1]).any(axis=-1)
    more = after.sum(axis=-1) > before.sum(axis=-1)
    return {
        "regressed": float(regressed.mean()),
        "gained": float(gained.mean()),
        "promoted": float((~regressed & (gained | more)).mean()),
    }
