"""Simulates drift alarms: the joint false alarm rate, and the delay until a real loss is found.

A stream is everything that is measured along one chain of checkpoints, its own baseline included:
what the repeats of a baseline leave unknown counts among the errors. The charts are the ones that
judge real lines.

Source: docs/explanation/drift.md.  I/O: none.  Units: shares of tasks, checkpoints.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from judge.drift.charts import (
    DEFICIT,
    RATCHET,
    SLACK,
    WINDOW,
    Array,
    Baseline,
    Flags,
    baseline_of,
    beyond,
    broken,
    counted,
    declined,
    evaluations_needed,
    grown,
    ratchet,
    stalled,
    unproductive,
)
from studies.statistics import Table, percent

__all__ = [
    "DriftSimulation",
    "correlated_table",
    "deficits",
    "disturbed_table",
    "production_table",
    "simulate",
    "small_set_table",
]

_SDS = (0.005, 0.008, 0.011, 0.02, 0.03, 0.042)
_FADING = 0.95  # of what Page-Hinkley remembers, a checkpoint
_BEGIN = 20  # checkpoints before something else begins
_GAIN = 0.01


@dataclass(frozen=True, kw_only=True)
class DriftSimulation:
    """What is simulated."""

    sd: float  # of one evaluation
    mean: float  # the original's share of right answers
    tasks: int = 52
    repeats: int = 20  # of the baseline
    streams: int = 1_000
    checkpoints: int = 100
    loss: float = 0.001  # a checkpoint of a ratchet
    within: int = 40  # checkpoints
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class _Streams:
    """What is measured; (streams, checkpoints) but for the baseline."""

    base: Baseline
    first: Array  # each checkpoint's evaluation
    again: Array  # what a later one would say
    thrice: Array  # the higher of that and one later still
    complexity: Array  # relative to the original's
    right: Array  # production runs, the original's first: one more column
    runs: Array


Noise = Callable[[np.random.Generator, Array], Array]
"""Measured values around the true ones."""


def simulate(plan: DriftSimulation) -> Iterator[Table]:
    """Yield the tables; each row has random numbers of its own."""
    yield _healthy_table(plan)
    yield _ratchet_table(plan)
    yield _sd_table(plan)
    yield _other_table(plan)
    yield correlated_table(plan)
    yield disturbed_table(plan)
    yield small_set_table(plan)
    yield production_table(plan)


def alarms(streams: _Streams) -> Mapping[str, Flags]:
    """Return for each kind of alarm where it is raised, (streams, checkpoints)."""
    first, again, base = streams.first, streams.again, streams.base
    sure = counted(first, base, again=again)
    return {
        "ratchet": ratchet(sure, base) > RATCHET,
        "decline": declined(sure, base),
        "three sigma": beyond(first, base, again=again),
        "circuit breaker": broken(first, base, again=streams.thrice),
        "complexity": grown(streams.complexity, first, base),
        "production": unproductive(streams.right, streams.runs)[..., 1:],
    }


def gaussian(sd: float) -> Noise:
    """Return noise that is as great everywhere."""
    return lambda rng, true: true + sd * rng.standard_normal(true.shape)


def rare_errors(sd: float, tasks: int) -> Noise:
    """Return noise of single tasks that are answered wrongly, and seldom.

    What the truth lacks to a whole number of tasks is answered wrongly at random, too.
    """
    rate = (sd * tasks) ** 2  # wrong answers in an evaluation: the variance of a rare count

    def draw(rng: np.random.Generator, true: Array) -> Array:
        whole = np.ceil(np.round(true * tasks, 9))
        wrong = rng.poisson(rate + whole - true * tasks)
        found: Array = np.maximum(whole - wrong, 0.0) / tasks
        return found

    return draw


def _streams(
    plan: DriftSimulation,
    noise: Noise,
    rng: np.random.Generator,
    *,
    loss: Any = 0.0,
    keeps: float | None = None,
) -> _Streams:
    """Draw streams whose checkpoints lose `loss` in all; nothing else goes wrong in them.

    With `keeps` the noise is normal and each evaluation keeps that share of the one before it; a
    confirmation then has the noise of the next checkpoint.
    """
    shape = (plan.streams, plan.checkpoints)
    true = np.broadcast_to(plan.mean - loss, shape)
    if keeps is None:
        drawn = noise(rng, np.full((plan.streams, plan.repeats), plan.mean))
        first, again, more = (noise(rng, true) for _ in range(3))
    else:
        steps = plan.repeats + plan.checkpoints
        kept = plan.sd * _autoregression(rng, (plan.streams, steps + 2), keeps)
        drawn = plan.mean + kept[:, : plan.repeats]
        first, again, more = (
            true + kept[:, plan.repeats + late : steps + late] for late in range(3)
        )
    runs = np.full((plan.streams, plan.checkpoints + 1), 20)  # enough to tell, and few
    return _Streams(
        base=baseline_of(drawn, resolution=0.0 if keeps is not None else 1 / plan.tasks),
        first=first,
        again=again,
        thrice=np.maximum(again, more),
        complexity=1.0 + np.cumsum(0.005 * rng.standard_normal(shape), axis=-1),
        right=rng.binomial(runs, 0.8).astype(float),
        runs=runs.astype(float),
    )


def _autoregression(rng: np.random.Generator, shape: tuple[int, int], keeps: float) -> Array:
    """Return standard normal noise of which each value keeps a share of the one before it."""
    found = rng.standard_normal(shape)
    for number in range(1, shape[1]):
        found[:, number] = keeps * found[:, number - 1] + sqrt(1.0 - keeps**2) * found[:, number]
    return found


def correlated_table(plan: DriftSimulation) -> Table:
    """Return how often stable streams alarm, and ratchets do, where noise is autocorrelated."""
    rows: list[dict[str, str]] = []
    numbers = np.arange(1, plan.checkpoints + 1)
    for repeats in (plan.repeats, 2 * plan.repeats):
        for keeps in (0.0, 0.3, 0.6, 0.9):
            drawn = replace(plan, repeats=repeats)
            place = (repeats, round(10 * keeps))
            told = {"repeats of the baseline": str(repeats), "correlation": f"{keeps:.1f}"}
            losses: tuple[tuple[str, Any], ...] = (
                ("false alarms", 0.0),
                ("ratchet alarmed in time", plan.loss * numbers),
                ("ratchet alarmed within 100", plan.loss * numbers),
                ("a loss of 10% at once: alarmed within 20", 0.1),
            )
            for number, (name, loss) in enumerate(losses):
                streams = _streams(
                    drawn, gaussian(plan.sd), _rng(plan, 9, *place, number), loss=loss, keeps=keeps
                )
                within = (None, plan.within, None, 20)[number]
                told[name] = percent(_any(alarms(streams), within).mean())
            rows.append(told)
    return Table.of("Noise that is autocorrelated (first order)", rows)


def disturbed_table(plan: DriftSimulation) -> Table:
    """Return how often the breaker rolls back where single evaluations are disturbed."""
    rng = _rng(plan, 10)
    streams = _streams(plan, gaussian(plan.sd), rng)
    shape = streams.first.shape

    def lost(chance: Any) -> Array:
        return np.asarray(0.25 * (rng.random(shape) < chance))

    first = lost(0.02)
    hit = replace(streams, first=streams.first - first)
    at_once = streams.again - lost(np.where(first > 0, 0.8, 0.02))
    later, later_still = streams.again - lost(0.02), streams.thrice - lost(0.02)
    rows = []
    for name, again in (
        ("once, at once (as in earlier versions)", at_once),
        ("once, after the pause", later),
        ("twice, after a pause each", np.maximum(later, later_still)),
    ):
        found = alarms(replace(hit, again=again, thrice=again))
        shares = {kind: percent(flags.any(axis=-1).mean()) for kind, flags in found.items()}
        told = {kind: shares[kind] for kind in ("ratchet", "decline", "three sigma")}
        rows.append({"confirmed": name, "rolled back": shares["circuit breaker"], **told})
    return Table.of(
        "2% of evaluations lose 25 points, and 80% of those made at once after one: "
        f"{plan.streams:,} streams that roll back, or alarm",
        rows,
    )


def small_set_table(plan: DriftSimulation) -> Table:
    """Return how often a loss rolls back a line whose original always answers seven tasks."""
    rows = []
    base = baseline_of(np.ones((plan.streams, 10)), resolution=1 / 7)
    for lost in (0, 1, 2, 3, 4):
        rng = _rng(plan, 11, lost)
        shape = (plan.streams, 1)
        found = [(rng.binomial(7 - lost, 0.99, shape)) / 7 for _ in range(3)]
        flags = broken(found[0], base, again=np.maximum(found[1], found[2]))
        rows.append(
            {"tasks lost of 7": str(lost), "rolled back": percent(flags.any(axis=-1).mean())}
        )
    return Table.of("Seven tasks, ten identical baselines, and 1% of the other answers wrong", rows)


def production_table(plan: DriftSimulation) -> Table:
    """Return how often the runs of a checkpoint alarm, by the share of them that succeed."""
    rows = []
    for number, share in enumerate((0.95, 0.9, 0.8, 0.05, 0.0)):
        rng = _rng(plan, 12, number)
        raised = deficits(rng.random((plan.streams, 100)) < share) >= DEFICIT
        told = {"runs that succeed": percent(share)}
        for runs in (8, 10, 100):
            told[f"alarm within {runs} runs"] = percent(raised[:, :runs].any(axis=-1).mean())
        rows.append(told)
    return Table.of(
        f"Production runs of one checkpoint: {plan.streams:,} streams with an alarm", rows
    )


def _healthy_table(plan: DriftSimulation) -> Table:
    rows: list[dict[str, str]] = []
    for name, noise in _noises(plan).items():
        streams = _streams(plan, noise, _rng(plan, 1, len(rows)))
        found = alarms(streams)
        shares = {kind: percent(flags.any(axis=-1).mean()) for kind, flags in found.items()}
        rows.append({"noise": name, **shares, "any": percent(_any(found).mean())})
    return Table.of(
        f"{plan.streams:,} stable streams of {plan.checkpoints} checkpoints at a standard "
        f"deviation of {plan.sd:.4f}: share with a false alarm",
        rows,
    )


def _ratchet_table(plan: DriftSimulation) -> Table:
    rows: list[dict[str, str]] = []
    numbers = np.arange(1, plan.checkpoints + 1)
    for name, noise in _noises(plan).items():
        stable = _streams(plan, noise, _rng(plan, 2, len(rows)))
        losing = _streams(plan, noise, _rng(plan, 3, len(rows)), loss=plan.loss * numbers)
        for chart, raised in _compared(stable, losing, plan).items():
            flags = raised[:, : plan.within]
            rows.append(
                {
                    "noise": name,
                    "chart": chart,
                    "alarmed": percent(flags.any(axis=-1).mean()),
                    "median checkpoint of those": _median_first(flags),
                }
            )
    return Table.of(
        f"A ratchet of {100 * plan.loss:.1f}% a checkpoint, {plan.streams:,} streams: alarmed "
        f"within {plan.within} checkpoints",
        rows,
    )


def _median_first(flags: Flags) -> str:
    """Return the median number of the first checkpoint with a flag, of streams that have one."""
    seen = flags.any(axis=-1)
    return f"{np.median(flags[seen].argmax(axis=-1) + 1):.0f}" if seen.any() else "-"


def _compared(stable: _Streams, losing: _Streams, plan: DriftSimulation) -> dict[str, Flags]:
    """Return where our charts and two others raise an alarm.

    The others' limits are what 3% of the stable streams exceed, so that all err equally often.
    """
    found = alarms(losing)
    raised = {"all, fixed reference": np.any(list(found.values()), axis=0)}
    raised["the sum alone, fixed reference"] = found["ratchet"]
    raised["Page-Hinkley, fading"] = _exceeding(stable, losing, _hinkley(plan))
    raised["against the last checkpoint"] = _exceeding(stable, losing, _last_fall)
    return raised


def _exceeding(stable: _Streams, losing: _Streams, statistic: Callable[[Array], Array]) -> Flags:
    """Return where a statistic is greater than what 3% of the stable streams ever reach."""
    limit = np.quantile(statistic(stable.first).max(axis=-1), 0.97)
    return np.asarray(statistic(losing.first) > limit)


def _hinkley(plan: DriftSimulation) -> Callable[[Array], Array]:
    delta = SLACK * plan.sd
    return lambda values: page_hinkley(values, fading=_FADING, delta=delta)


def page_hinkley(values: Array, *, fading: float, delta: float) -> Array:
    """Return the fading Page-Hinkley statistics of a loss; for comparison only.

    The reference is the mean of what has been seen; both it and the sum forget by `fading`.
    """
    found = np.zeros(values.shape)
    weight, mean, so_far = 0.0, np.zeros(values.shape[:-1]), np.zeros(values.shape[:-1])
    for number in range(values.shape[-1]):
        weight = fading * weight + 1.0
        mean = mean + (values[..., number] - mean) / weight
        so_far = np.maximum(0.0, fading * so_far + mean - values[..., number] - delta)
        found[..., number] = so_far
    return found


def _last_fall(values: Array) -> Array:
    return -np.diff(values, axis=-1, prepend=values[:, :1])


def _sd_table(plan: DriftSimulation) -> Table:
    rows = []
    numbers = np.arange(1, plan.checkpoints + 1)
    for number, sd in enumerate(_SDS):
        each = evaluations_needed(sd)
        shares = []
        for count in (1, each):
            measured = replace(plan, sd=sd / sqrt(count), tasks=plan.tasks * count)
            noise = gaussian(measured.sd)
            stable = _streams(measured, noise, _rng(plan, 4, number, count))
            losing = _streams(
                measured, noise, _rng(plan, 5, number, count), loss=plan.loss * numbers
            )
            seen = _any(alarms(losing), plan.within)
            shares += [_any(alarms(stable)).mean(), seen.mean()]
            if count == 1:
                fading = _exceeding(stable, losing, _hinkley(measured))[:, : plan.within]
                shares.append(fading.any(axis=-1).mean())
        rows.append(
            {
                "standard deviation": f"{sd:.4f}",
                "one evaluation each: false alarms": percent(shares[0]),
                "ratchet alarmed in time": percent(shares[1]),
                "by a fading Page-Hinkley at 3% false alarms": percent(shares[2]),
                "evaluations needed": str(each),
                "false alarms with them": percent(shares[3]),
                "ratchet alarmed in time with them": percent(shares[4]),
            }
        )
    return Table.of("Other standard deviations of one evaluation", rows)


def _other_table(plan: DriftSimulation) -> Table:
    """Tell what else is seen, and how soon: each begins after checkpoint 20."""
    noise, numbers = gaussian(plan.sd), np.arange(1, plan.checkpoints + 1)
    late = np.maximum(0, numbers - _BEGIN)
    cases: list[tuple[str, str, _Streams]] = []

    def streams(number: int, loss: Any = 0.0) -> _Streams:
        return _streams(plan, noise, _rng(plan, 6, number), loss=loss)

    cases.append(("a loss of 25% at once", "circuit breaker", streams(0, 0.25 * (late > 0))))
    cases.append(("a loss of 5% at once", "three sigma", streams(1, 0.05 * (late > 0))))
    cases.append(("four falls of 1.5% each", "decline", streams(2, 0.015 * np.minimum(late, 4))))
    worse = streams(3)
    right = worse.right.copy()
    right[:, _BEGIN + 1 :] = _rng(plan, 7).binomial(20, 0.4, right[:, _BEGIN + 1 :].shape)
    cases.append(("production falls from 80% to 40%", "production", replace(worse, right=right)))
    grows = streams(4)
    grows = replace(grows, complexity=grows.complexity + 0.02 * late)
    cases.append(("code grows by 2% a checkpoint without gain", "complexity", grows))
    rows = []
    for what, kind, drawn in cases:
        flags = alarms(drawn)[kind][:, _BEGIN:]
        told = f"{percent(flags.any(axis=-1).mean())} of streams"
        rows.append((what, kind, told, _median_first(flags)))
    gains = _streams(plan, noise, _rng(plan, 8), loss=-_GAIN * numbers)
    for what, drawn in (
        ("no gain at all", streams(5)),
        (f"a gain of {_GAIN:.0%} a checkpoint", gains),
    ):
        still = stalled(drawn.first, drawn.base)[:, WINDOW - 1 :]
        rows.append((what, "velocity (no alarm)", f"{percent(still.mean())} of checkpoints", "-"))
    return Table(
        title=f"Other alarms, from checkpoint {_BEGIN + 1} on",
        columns=("event", "alarm", "detected", "median number of checkpoints until then"),
        rows=tuple(rows),
    )


def deficits(success: Flags) -> Array:
    """Return by how much failures outnumber successes (..., runs); never below zero.

    The view production_charts does the same.
    """
    walk = np.cumsum(np.where(success, -1, 1), axis=-1)
    return np.asarray(walk - np.minimum.accumulate(np.minimum(walk, 0), axis=-1))


def _noises(plan: DriftSimulation) -> Mapping[str, Noise]:
    return {
        "normal": gaussian(plan.sd),
        "single wrong answers": rare_errors(plan.sd, plan.tasks),
    }


def _any(found: Mapping[str, Flags], within: int | None = None) -> Flags:
    each = [flags[..., :within].any(axis=-1) for flags in found.values()]
    return np.asarray(np.any(each, axis=0))


def _rng(plan: DriftSimulation, *row: int) -> np.random.Generator:
    return np.random.default_rng([plan.seed, *row])
