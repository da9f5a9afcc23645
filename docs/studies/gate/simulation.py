"""Simulates the error rates of the gate and of the plain rule; gives the figures in the docs.

Source: docs/studies/gate.md.  I/O: none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field

import numpy as np

from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.evaluate import error_level
from studies.gate.disturbances import (
    DISTURBANCES,
    Change,
    follow,
    follow_exact,
)
from studies.gate.times import MACHINES, PROMISED, measured
from studies.gate.trials import (
    World,
    mixed_sequences,
    null_sequences,
    plain_rule,
    try_changes,
)
from studies.statistics import Share, Table, percent

__all__ = [
    "Scale",
    "disturbed_row",
    "exact_row",
    "positions",
    "power_row",
    "simulate",
]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is simulated."""

    seed: int = 0
    trials: int = 1_000  # changes of each kind
    sequences: int = 50
    proposals: int = 1_000  # of a sequence that changes nothing
    mixed: int = 60  # of a sequence that changes something
    disturbed: int = 1_000  # sequences on a machine that changes
    following: int = 20  # proposals of each of them
    exact: int = 200  # sequences whose deterministic tasks fail at random
    timed: int = 200  # changes of each kind on each machine whose answers take time
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)


def simulate(scale: Scale | None = None) -> Iterator[Table]:
    """Yield the tables, the slow one last; each row has random numbers of its own."""
    scale = scale or Scale()
    yield _plain_table(scale)
    yield _power_table(scale)
    yield _effect_table(scale)
    yield _mixed_table(scale)
    yield _disturbed_table(scale)
    yield _exact_table(scale)
    yield _times_table(scale)
    yield _null_table(scale)


def positions() -> Mapping[str, float]:
    """Return places in the queue, and the levels that proposals have there."""
    return {
        "the 1st": error_level([]),
        "the 30th, after 5 promotions": error_level([True] * 5 + [False] * 24),
        "the 1,000th, after none": error_level([False] * 999),
    }


def _rng(scale: Scale, *row: int) -> np.random.Generator:
    return np.random.default_rng([scale.seed, *row])


def _plain_table(scale: Scale) -> Table:
    rows = []
    for number, flake in enumerate((0.01, 0.05, 0.20)):
        changes, rng = 100 * scale.trials, _rng(scale, 1, number)
        found = plain_rule(World(flake=flake), metrics=4, changes=changes, rng=rng)
        bad, rng = World(flake=flake, harms=0.10), _rng(scale, 1, number, 1)
        harmed = plain_rule(bad, metrics=4, changes=changes, rng=rng)["promoted"]
        rows.append(
            {
                "flake rate": f"{flake:.0%}",
                "null changes with a regression": percent(found["regressed"]),
                "with an improvement": percent(found["gained"]),
                "promoted": percent(found["promoted"]),
                "changes that harm one task by ten points: promoted": percent(harmed),
            }
        )
    return Table.of("The plain rule: one run of each arm, 20 tasks, four noisy metrics", rows)


def _power_table(scale: Scale) -> Table:
    kinds = [(flake, 20) for flake in (0.01, 0.05, 0.10, 0.20, 0.30)] + [(0.05, 4), (0.20, 4)]
    rows = [
        power_row(scale, flake=flake, tasks=tasks, position=position)
        for flake, tasks in kinds
        for position in positions()
    ]
    return Table.of(f"The gate: at most {scale.settings.most:,} pairs a task", rows)


def power_row(scale: Scale, *, flake: float, tasks: int, position: str) -> dict[str, str]:
    """Return one row of the gate's table."""
    levels = np.full(scale.trials, positions()[position])
    place = list(positions()).index(position)
    rng = _rng(scale, 2, round(1_000 * flake), tasks, place)
    good, bad, null = (
        try_changes(world, levels, rng=rng, settings=scale.settings)
        for world in (
            World(flake=flake, tasks=tasks, improves=0.10),
            World(flake=flake, tasks=tasks, improves=0.10, harms=0.10),
            World(flake=flake, tasks=tasks),
        )
    )
    most = np.quantile(good.pairs, 0.9)
    return {
        "flake rate": f"{flake:.0%}",
        "stochastic tasks": str(tasks),
        "proposal": position,
        "improves one task by ten points: promoted": percent(good.better.mean()),
        "pairs a task (mean, 90%)": f"{good.pairs.mean() / tasks:.0f}, {most / tasks:.0f}",
        "improves one, harms one by ten points: not promoted": percent(1.0 - bad.better.mean()),
        "shown to be worse": percent(bad.worse.mean()),
        "no change: not promoted": percent(1.0 - null.better.mean()),
        "pairs a task": f"{null.pairs.mean() / tasks:.0f}",
    }


def _effect_table(scale: Scale) -> Table:
    rows = []
    for number, points in enumerate((0.02, 0.05, 0.10, 0.15, 0.20)):
        rng = _rng(scale, 3, number)
        levels = np.full(scale.trials, positions()["the 1st"])
        good, bad = (
            try_changes(world, levels, rng=rng, settings=scale.settings)
            for world in (
                World(flake=0.05, improves=points),
                World(flake=0.05, harms=points, exact=True),
            )
        )
        harm = "harmful changes not promoted, although they improve a deterministic task"
        rows.append(
            {
                "effect on one task": f"{100 * points:.0f} points",
                "improvements promoted": percent(good.better.mean()),
                "pairs a task": f"{good.pairs.mean() / 20:.0f}",
                harm: percent(1.0 - bad.better.mean()),
                "pairs a task with harm": f"{bad.pairs.mean() / 20:.0f}",
            }
        )
    return Table.of(
        "Smaller and larger effects: 20 tasks, a flake rate of 5%, the 1st proposal", rows
    )


def _mixed_table(scale: Scale) -> Table:
    rows = []
    for number, flake in enumerate((0.01, 0.05)):
        worlds = [
            World(flake=flake),
            World(flake=flake, improves=0.10, harms=0.10),
            World(flake=flake, harms=0.10, exact=True),
            World(flake=flake, improves=0.10),
            World(flake=flake, exact=True),
        ]
        wrong, right = mixed_sequences(
            worlds,
            wrong=(True, True, True, False, False),
            sequences=scale.sequences,
            proposals=scale.mixed,
            rng=_rng(scale, 4, number),
            settings=scale.settings,
        )
        share = (wrong / np.maximum(1.0, wrong + right)).mean()
        good = scale.mixed * 2 / len(worlds)
        rows.append(
            {
                "flake rate": f"{flake:.0%}",
                "good ones promoted": f"{right.mean() / good:.0%}",
                "wrong ones promoted, a sequence": f"{wrong.mean():.2f}",
                "share of wrong ones among promotions": percent(share),
            }
        )
    return Table.of(
        f"{scale.sequences} sequences of {scale.mixed} proposals, a fifth of each: no change; "
        "one task better and one worse; a deterministic one better and one worse; "
        "one better; a deterministic one better",
        rows,
    )


def _disturbed_table(scale: Scale) -> Table:
    return Table.of(
        f"A machine that changes: {scale.disturbed:,} sequences of {scale.following} proposals, "
        "20 tasks",
        [disturbed_row(scale, name) for name in DISTURBANCES],
    )


def disturbed_row(scale: Scale, name: str) -> dict[str, str]:
    """Return one row of the table of disturbances."""
    place = list(DISTURBANCES).index(name)
    told = {"disturbance": name}
    for cached, what in ((False, "no change, asked in turn"), (True, "no change, base cached")):
        found = follow(
            DISTURBANCES[name],
            Change(),
            sequences=scale.disturbed,
            proposals=scale.following,
            rng=_rng(scale, 6, place, int(cached)),
            settings=scale.settings,
            cached=cached,
        )
        told[f"{what}: sequences with any promoted"] = percent(found.promoted.any(axis=-1).mean())
        if not cached:
            told["called worse"] = percent(found.worse.mean())
            told["pairs a task"] = f"{found.pairs.mean() / 20:.0f}"
    good = follow(
        DISTURBANCES[name],
        Change(improves=0.10),
        sequences=scale.disturbed,
        proposals=1,
        rng=_rng(scale, 6, place, 2),
        settings=scale.settings,
    )
    told["one task better by ten points: promoted"] = percent(good.promoted.mean())
    told["of these called worse"] = percent(good.worse.mean())
    return told


def _exact_table(scale: Scale) -> Table:
    return Table.of(
        f"Tasks declared deterministic that fail at random: {scale.exact} sequences of 5 "
        "proposals, 6 tasks",
        [exact_row(scale, flake) for flake in (0.0, 0.05, 0.15, 0.5)],
    )


def exact_row(scale: Scale, flake: float) -> dict[str, str]:
    """Return one row of the table of deterministic tasks that are none."""
    place = round(1_000 * flake)
    null, good = (
        follow_exact(
            flake=flake,
            tasks=6,
            sequences=scale.exact,
            proposals=1 if improved else 5,
            rng=_rng(scale, 7, place, int(improved)),
            settings=scale.settings,
            improved=improved,
        )
        for improved in (False, True)
    )
    return {
        "answers that fail": f"{flake:.0%}",
        "no change: sequences with any promoted": percent(null.promoted.any(axis=-1).mean()),
        "called worse": percent(null.worse.mean()),
        "pairs a task": f"{null.pairs.mean() / 6:.0f}",
        "one task cured: promoted": percent(good.promoted.mean()),
        "of these called worse": percent(good.worse.mean()),
    }


def _times_table(scale: Scale) -> Table:
    found = {
        name: measured(name, worlds=scale.timed, seed=scale.seed, settings=scale.settings)
        for name in MACHINES
    }
    rows = []
    for claim, most in PROMISED.items():
        shares = {name: each[claim] for name, each in found.items()}
        whole = Share(*map(sum, zip(*map(astuple, shares.values()), strict=True)))
        low, high = (f"{100 * each:.2f}%" for each in whole.interval())
        rows.append(
            {
                "change": claim,
                "promised": "-" if most is None else f"{100 * most:.1f}%",
                **{name: _exactly(each) for name, each in shares.items()},
                "all, with its 95% interval": f"{_exactly(whole)}, {low} to {high}",
            }
        )
    return Table.of(
        f"Fixes, refactorings and times: {scale.timed:,} changes of each kind on each machine", rows
    )


def _exactly(share: Share) -> str:
    return f"{100 * share.count / share.of:.2f}%"


def _null_table(scale: Scale) -> Table:
    rows = []
    for number, flake in enumerate((0.01, 0.05, 0.20)):
        for cached in (False, True):
            promoted, pairs = null_sequences(
                World(flake=flake),
                sequences=scale.sequences,
                proposals=scale.proposals,
                cached=cached,
                rng=_rng(scale, 5, number, int(cached)),
                settings=scale.settings,
            )
            any_promoted = promoted.any(axis=-1).sum()
            rows.append(
                {
                    "flake rate": f"{flake:.0%}",
                    "base's answers": "cached" if cached else "anew",
                    "proposals promoted": f"{promoted.sum():,} of {promoted.size:,}",
                    "sequences with any promoted": f"{any_promoted} of {len(promoted)}",
                    "pairs a task and proposal": f"{pairs.mean() / 20:.0f}",
                }
            )
    return Table.of(
        f"Null proposals: {scale.sequences} sequences of {scale.proposals:,}, 20 tasks", rows
    )
