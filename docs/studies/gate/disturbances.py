"""Simulated sequences of proposals on a machine whose disturbances change with time.

A sequence has one time axis: all answers of all its proposals follow each other on it, and share
whatever disturbs the machine then. Tasks are therefore correlated, and so are successive answers.
The decisions are those of e_values.py, over success, recall and validity. An answer is right,
wrong (half of the recall) or missing (none of it, and invalid).

Source: docs/reference/gauntlet.md, "The calibrated gate".
I/O: none; random numbers are passed in.  Shapes: (S, ...) are sequences.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from judge.gauntlet.comparison.claims import QUALITIES, THRIFTS, Outcome, outcome
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
from judge.gauntlet.comparison.evaluate import compare, error_level, wanted_pairs
from judge.gauntlet.comparison.weighing import GUARDED
from judge.gauntlet.tasks.benchmark import ARMS, Arm, TaskResult
from judge.gauntlet.tasks.reference_set import Task, TaskEntry

__all__ = [
    "DISTURBANCES",
    "Change",
    "Outcomes",
    "follow",
    "follow_exact",
    "simulated_result",
    "simulated_task",
    "steady",
]

Chances = tuple[Floats, Floats]
"""Of a wrong answer and of a missing one, slot by slot: (S, slots) each."""
Disturbance = Callable[[np.random.Generator, int, tuple[int, int]], Chances]
"""From random numbers, the proposal's number and (S, slots)."""
_METRICS = len(QUALITIES) + len(THRIFTS) - 1  # all but success
_RIGHT, _WRONG, _MISSING = range(3)
_VALUES = {  # of an answer, by its kind
    "success": np.array([1.0, 0.0, 0.0]),
    "recall": np.array([1.0, 0.5, 0.0]),
    "validity": np.array([1.0, 1.0, 0.0]),
}
_DIFFERENCES = {  # of a pair, by 3 * base + candidate
    name: (values[None, :] - values[:, None]).reshape(-1) for name, values in _VALUES.items()
}
_SPELL = 10  # proposals
_CHUNK = 200  # sequences at once: tens of megabytes


@dataclass(frozen=True, kw_only=True)
class Change:
    """What each proposal does to a set of stochastic tasks."""

    tasks: int = 20
    improves: float = 0.0  # the first task: wrong answers that only the base gives
    harms: float = 0.0  # the second


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What became of the proposals; (S, proposals) each."""

    promoted: Bools
    worse: Bools
    pairs: npt.NDArray[np.int64]  # of all tasks together


def steady(wrong: float, missing: float = 0.0) -> Disturbance:
    """Return disturbances that are as frequent at any time."""
    return lambda _rng, _number, shape: (np.full(shape, wrong), np.full(shape, missing))


def _spells(rng: np.random.Generator, number: int, shape: tuple[int, int]) -> Chances:
    """Ten busy proposals (15% wrong) and ten quiet ones (5%) take turns."""
    busy = number // _SPELL % 2 == 0
    return steady(0.15 if busy else 0.05)(rng, number, shape)


def _missing_spells(rng: np.random.Generator, number: int, shape: tuple[int, int]) -> Chances:
    """Answers are missing: 15% in ten busy proposals, 5% in ten quiet ones."""
    busy = number // _SPELL % 2 == 0
    return steady(0.02, 0.15 if busy else 0.05)(rng, number, shape)


def _load(rng: np.random.Generator, _number: int, shape: tuple[int, int]) -> Chances:
    """Time-outs under lognormal(0.35) load, half of it the proposal's, half from slot to slot."""
    scale = 0.35 / np.sqrt(2.0)
    load = np.exp(scale * (rng.standard_normal((shape[0], 1)) + _ar(rng, shape, 0.98)))
    return np.full(shape, 0.03), np.clip(0.25 * (load - 1.2), 0.0, 0.9)


def _bursts(rng: np.random.Generator, _number: int, shape: tuple[int, int]) -> Chances:
    """2% wrong; bursts of 40 answers on average, a sixth of the time, in which 70% are missing."""
    on = np.zeros(shape, dtype=bool)
    now = rng.random(shape[0]) < 1.0 / 6.0
    for slot in range(shape[1]):
        drawn = rng.random(shape[0])
        now = np.where(now, drawn >= 1.0 / 40.0, drawn < 1.0 / 200.0)
        on[:, slot] = now
    return np.full(shape, 0.02), np.where(on, 0.7, 0.0)


def _common(rng: np.random.Generator, _number: int, shape: tuple[int, int]) -> Chances:
    """All tasks fail together: the odds of a wrong answer drift by a common cause, AR(1) 0.95."""
    odds = 0.05 / 0.95 * np.exp(1.5 * _ar(rng, shape, 0.95))
    return odds / (1.0 + odds), np.zeros(shape)


def _second(_rng: np.random.Generator, _number: int, shape: tuple[int, int]) -> Chances:
    """Whichever arm is asked second in a pair is wrong in 25% instead of 5%."""
    return np.broadcast_to(np.where(np.arange(shape[1]) % 2, 0.25, 0.05), shape), np.zeros(shape)


def _ar(rng: np.random.Generator, shape: tuple[int, int], keeps: float) -> Floats:
    found = np.empty(shape)
    now = rng.standard_normal(shape[0])
    for slot in range(shape[1]):
        now = keeps * now + np.sqrt(1.0 - keeps**2) * rng.standard_normal(shape[0])
        found[:, slot] = now
    return found


DISTURBANCES: Mapping[str, Disturbance] = {
    "5% wrong at any time": steady(0.05),
    "quiet and busy spells: 5% and 15% wrong": _spells,
    "lognormal(0.35) machine load, time-outs": _load,
    "bursts of missing answers": _bursts,
    "5% and 15% missing, in spells": _missing_spells,
    "tasks that fail together": _common,
    "second of a pair disturbed": _second,
}


def follow(
    disturbance: Disturbance,
    change: Change,
    *,
    sequences: int,
    proposals: int,
    rng: np.random.Generator,
    settings: ComparisonSettings | None = None,
    cached: bool = False,
) -> Outcomes:
    """Put sequences of proposals to the gate, each of them the same change.

    `cached` is for comparison: all proposals of a sequence are compared with the answers that the
    base gave first, at another time.
    """
    settings = settings or ComparisonSettings()
    parts = [
        _follow(
            disturbance,
            change,
            sequences=min(_CHUNK, sequences - at),
            proposals=proposals,
            rng=rng,
            settings=settings,
            cached=cached,
        )
        for at in range(0, sequences, _CHUNK)
    ]
    return Outcomes(
        promoted=np.concatenate([each.promoted for each in parts]),
        worse=np.concatenate([each.worse for each in parts]),
        pairs=np.concatenate([each.pairs for each in parts]),
    )


def _follow(
    disturbance: Disturbance,
    change: Change,
    *,
    sequences: int,
    proposals: int,
    rng: np.random.Generator,
    settings: ComparisonSettings,
    cached: bool,
) -> Outcomes:
    promoted = np.zeros((sequences, proposals), dtype=bool)
    worse, pairs = promoted.copy(), np.zeros((sequences, proposals), dtype=np.int64)
    known = np.full((sequences, change.tasks, settings.most), -1, dtype=np.int8) if cached else None
    for number in range(proposals):
        levels = np.array([error_level(row) for row in promoted[:, :number].tolist()])
        ask = partial(_ask, partial(disturbance, rng, number), change, rng=rng)
        found, asked = _judge(ask, change, levels, settings=settings, known=known)
        promoted[:, number], worse[:, number] = found
        pairs[:, number] = asked
    return Outcomes(promoted=promoted, worse=worse, pairs=pairs)


def _judge(
    ask: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int8]],
    change: Change,
    levels: Floats,
    *,
    settings: ComparisonSettings,
    known: npt.NDArray[np.int8] | None,
) -> tuple[tuple[Bools, Bools], npt.NDArray[np.int64]]:
    """Judge one proposal of each sequence: (better, worse), and the pairs that it took."""
    looks = np.array(schedule(settings))
    news = np.diff(looks, prepend=0)
    shape = (len(levels), change.tasks)
    counts, look = np.zeros((*shape, 9)), np.zeros(shape, dtype=np.int64)
    better, worse = np.zeros(len(levels), dtype=bool), np.zeros(len(levels), dtype=bool)
    going, wanted = np.arange(len(levels)), np.ones(shape, dtype=bool)
    while going.size:
        new = np.where(wanted, news[np.minimum(look[going], len(news) - 1)], 0)  # (rows, tasks)
        drawn = ask(new)  # (rows, tasks, most new)
        if known is not None:
            start = np.where(look[going] > 0, looks[np.maximum(look[going], 1) - 1], 0)
            _remember(known, going, start, drawn)
        kinds = np.arange(9)
        for kind in kinds:
            counts[going, :, kind] += (drawn == kind).sum(axis=-1)
        look[going] += wanted
        found = _weigh(counts[going], look[going] == len(looks), levels[going], change, settings)
        better[going], worse[going] = found.better, found.worse
        left = found.wanted.any(axis=-1)
        going, wanted = going[left], found.wanted[left]
    return (better, worse), counts.sum(axis=(1, 2)).astype(np.int64)


def _ask(
    chances: Callable[[tuple[int, int]], Chances],
    change: Change,
    new: npt.NDArray[np.int64],
    *,
    rng: np.random.Generator,
) -> npt.NDArray[np.int8]:
    """Ask for `new` pairs of each task, in an order that is drawn; -1 where none is asked for."""
    rows, tasks = new.shape
    most = int(new.max())
    asked = np.arange(most) < new[..., None]  # (rows, tasks, most)
    place = np.where(asked, rng.random(asked.shape), 2.0).reshape(rows, -1)
    place = place.argsort(axis=-1).argsort(axis=-1)  # of each pair on the time axis
    slots = 2 * int(asked.reshape(rows, -1).sum(axis=-1).max())
    wrong, missing = chances((rows, slots))
    both = []
    for half in range(2):
        at = np.minimum(2 * place + half, slots - 1)
        chance = rng.random(at.shape)
        gone = np.take_along_axis(missing, at, axis=-1)
        fails = gone + (1.0 - gone) * np.take_along_axis(wrong, at, axis=-1)
        kind = np.where(chance < gone, _MISSING, np.where(chance < fails, _WRONG, _RIGHT))
        both.append(kind.reshape(rows, tasks, most))
    swapped = rng.random(asked.shape) < 0.5
    base = np.where(swapped, both[1], both[0])
    candidate = np.where(swapped, both[0], both[1])
    for arm, task, loss in ((base, 0, change.improves), (candidate, 1, change.harms)):
        lost = rng.random((rows, most)) < loss
        arm[:, task] = np.where(lost & (arm[:, task] == _RIGHT), _WRONG, arm[:, task])
    return np.where(asked, 3 * base + candidate, -1).astype(np.int8)


def _remember(
    known: npt.NDArray[np.int8],
    going: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.int8],
) -> None:
    """Put the base's first answers in the place of those that were drawn now."""
    _, tasks, most = drawn.shape
    row = np.broadcast_to(going[:, None, None], drawn.shape)
    task = np.broadcast_to(np.arange(tasks)[None, :, None], drawn.shape)
    at = np.minimum(start[..., None] + np.arange(most), known.shape[-1] - 1)
    asked = drawn >= 0
    before = known[row, task, at]
    base = np.where(before >= 0, before, drawn // 3)
    known[row[asked], task[asked], at[asked]] = base[asked]
    drawn[asked] = (3 * base + drawn % 3)[asked]


def _weigh(
    counts: Floats, spent: Bools, levels: Floats, change: Change, settings: ComparisonSettings
) -> SequentialState:
    """Weigh counts of shape (rows, tasks, 9) as weighing.py does."""

    def proof(name: str, *, sign: float = 1.0, margin: float = 0.0) -> Floats:
        return log_e(sign * _DIFFERENCES[name], counts, margin=margin)

    guarded, claims = ("success", "recall", "validity"), ("success", "recall")
    metric = (1.0 - SUCCESS_SHARE) / _METRICS
    shares = {"success": SUCCESS_SHARE, "recall": metric}
    rest = np.zeros((len(counts), 1))  # money that is on claims which nobody disputes
    weights = [shares[name] / change.tasks for name in claims for _ in range(change.tasks)]
    unplayed = np.zeros((len(counts), (len(GUARDED) - len(guarded)) * change.tasks))
    return standing(
        LogEValues(
            improved=np.concatenate([*(proof(name) for name in claims), rest], axis=-1),
            weights=np.array([*weights, (_METRICS - 1) * metric]),
            unharmed=np.minimum.reduce([proof(name, margin=settings.margin) for name in guarded]),
            harmed=np.concatenate([*(proof(n, sign=-1.0) for n in guarded), unplayed], axis=-1),
            hopeless=np.minimum.reduce(
                [proof(name, sign=-1.0, margin=settings.margin) for name in claims]
            ),
            spent=spent,
            level=levels,
            exact=np.zeros(len(counts), dtype=bool),
        ),
        settings=settings,
    )


def follow_exact(
    *,
    flake: float,
    tasks: int,
    sequences: int,
    proposals: int,
    rng: np.random.Generator,
    settings: ComparisonSettings | None = None,
    improved: bool = False,
) -> Outcomes:
    """Put sequences of proposals to the gate whose tasks are declared deterministic, and are not.

    In either arm an answer is wrong with the chance `flake`. With `improved` the base never
    answers the first task rightly, and the candidate as often as it answers the others. Every
    decision is that of wanted_pairs() and compare(), with the base's record of the sequence.
    """
    settings = settings or ComparisonSettings()
    whole = [simulated_task(f"t{number}") for number in range(tasks)]
    promoted = np.zeros((sequences, proposals), dtype=bool)
    worse, pairs = promoted.copy(), np.zeros((sequences, proposals), dtype=np.int64)
    for sequence in range(sequences):
        record: dict[str, set[Outcome]] = {}
        for number in range(proposals):
            level = error_level(promoted[sequence, :number].tolist())
            results: list[TaskResult] = []
            while wanted := wanted_pairs(
                results, tasks=whole, level=level, settings=settings, record=record
            ):
                for task_id, repeat in wanted:
                    right = (rng.random(2) >= flake).tolist()
                    right[0] &= not (improved and task_id == whole[0].task_id)
                    results += [
                        simulated_result(task_id, arm, repeat, success)
                        for arm, success in zip(ARMS, right, strict=True)
                    ]
            base = [each for each in results if each.arm == "base"]
            found = compare(results, tasks=whole, level=level, settings=settings, record=record)
            promoted[sequence, number] = found.verdict == "better"
            worse[sequence, number] = found.verdict == "worse"
            pairs[sequence, number] = len(base)
            for each in base:
                record.setdefault(each.task_id, set()).add(outcome(each))
    return Outcomes(promoted=promoted, worse=worse, pairs=pairs)


def simulated_task(name: str, *, stochastic: bool = False) -> Task:
    """Return a task of a simulated reference set."""
    entry = TaskEntry(
        task_id=name,
        source="simulated",
        source_commit=None,
        description="simulated",
        expected_outcome="right",
        expected_diff_path=None,
        categories=("simulated",),
        difficulty="easy",
        added_by="simulation",
        added_at=date(2026, 11, 22),
        regression_anchor_for=None,
    )
    return Task(
        entry=entry,
        kind="simulated",
        seed=0,
        stochastic=stochastic,
        scorer="exact",
        parameters={},
        expected={},
        files={},
    )


def simulated_result(task_id: str, arm: Arm, repeat: int, success: bool, **more: Any) -> TaskResult:
    """Return an answer without metrics; `more` are other fields of it."""
    return TaskResult(
        task_id=task_id,
        arm=arm,
        repeat=repeat,
        seed=0,
        success=success,
        validation_failures=int(more.get("missing", False)),
        metrics={},
        problem=None,
        isolation=(),
        **more,
    )
