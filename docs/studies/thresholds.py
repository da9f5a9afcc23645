"""Choosing a threshold between epochs in which a rule should be silent and runs in which it fires.

The level of an epoch is the most extreme threshold at which the rule would fire in it. What fires
at a threshold therefore follows from the levels alone.

I/O: none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from aggregates.noise import pool_noise
from aggregates.signals import EpochSignals

FALSE, MISSED = 0.02, 0.05  # shares that are aimed at: of healthy epochs, of faulty runs

Side = Literal["low", "high"]


@dataclass(frozen=True)
class Choice:
    """A threshold, and how many levels are on the wrong side of it."""

    threshold: float
    false: int  # healthy epochs that fire
    epochs: int  # healthy ones
    missed: int  # faulty runs that do not fire
    runs: int  # faulty ones
    nearest_healthy: float  # the most extreme level of a healthy epoch
    nearest_faulty: float  # the least extreme level of a faulty run


def choose(
    healthy: Sequence[float | None],
    faulty: Sequence[float | None],
    side: Side,
    *,
    linear: bool = False,
) -> Choice:
    """Return the threshold with the least cost: false share over FALSE plus missed over MISSED.

    `healthy` has a level for each epoch, `faulty` one for each run; without a level nothing fires.
    Between neighbouring levels nothing changes: of the stretches that are equally good the widest
    is taken, and its geometric middle, or its plain one for shares (`linear`). Raises ValueError
    where no faulty run has a level.
    """
    sign = 1.0 if side == "high" else -1.0
    sane = [level for level in healthy if level is not None]
    ill = [level for level in faulty if level is not None]
    if not ill:
        raise ValueError("no faulty run has a level")
    known = sorted({*sane, *ill})
    stretches = list(pairwise(known)) or [(known[0], known[0])]

    def errors(threshold: float) -> tuple[int, int]:
        false = sum(sign * level > sign * threshold for level in sane)
        return false, len(faulty) - sum(sign * level > sign * threshold for level in ill)

    def cost(stretch: tuple[float, float]) -> float:
        false, missed = errors(_middle(*stretch, linear=linear))
        return false / max(len(healthy), 1) / FALSE + missed / len(faulty) / MISSED

    least = min(map(cost, stretches))
    low, high = max(
        (each for each in stretches if cost(each) <= least + 1e-12),
        key=lambda each: _width(*each, linear=linear),
    )
    threshold = _rounded(_middle(low, high, linear=linear), low, high)
    false, missed = errors(threshold)
    far, near = (max, min) if side == "high" else (min, max)
    return Choice(
        threshold, false, len(healthy), missed, len(faulty), far(sane, default=math.nan), near(ill)
    )


def most_extreme(levels: Sequence[float | None], side: Side) -> float | None:
    """Return the level of a run from those of its epochs."""
    far = max if side == "high" else min
    return far((level for level in levels if level is not None), default=None)


def band_levels(
    history: Sequence[EpochSignals], signal: str, side: Side, *, persistence: int
) -> list[float | None]:
    """Return the levels of a rule that fires when so many epochs in a row are outside.

    Epochs without a finite value are passed over, as the rules do.
    """
    near = min if side == "high" else max
    found: list[float] = []
    levels: list[float | None] = []
    for each in history:
        value = getattr(each, signal)
        known = value is not None and math.isfinite(value)
        if known:
            found.append(value)
        enough = known and len(found) >= persistence
        levels.append(near(found[-persistence:]) if enough else None)
    return levels


def pooled_levels(
    history: Sequence[EpochSignals], side: Side, *, persistence: int
) -> list[float | None]:
    """Return the levels of R2: the end of the pooled interval, and the epoch's own ratio."""
    near = min if side == "high" else max
    levels: list[float | None] = []
    for end in range(1, len(history) + 1):
        last = history[max(0, end - persistence) : end]
        pooled = pool_noise(each.noise for each in last if each.noise is not None)
        if pooled is None or len(last) < persistence:
            levels.append(None)
        else:
            own = last[-1].signal_to_noise
            levels.append(near([pooled.low, pooled.high, *([] if own is None else [own])]))
    return levels


def waits(history: Sequence[EpochSignals], min_delta: float) -> list[int]:
    """Return how many epochs each better validation loss was waited for."""
    best, since, found = math.inf, 0, []
    for each in history:
        since += 1
        if each.val_loss < best - min_delta:
            best = each.val_loss
            found.append(since)
            since = 0
    return found[1:]  # the first epoch's is no wait


def choose_patience(waited: Sequence[int], share: float) -> int:
    """Return the least patience that would have given up on at most `share` of the waits."""
    return next(
        patience
        for patience in range(1, max(waited, default=0) + 2)
        if sum(each > patience for each in waited) <= share * len(waited)
    )


def _rounded(value: float, low: float, high: float) -> float:
    """Return the value with two digits, or as many as it takes to stay between its neighbours."""
    for digits in range(2, 17):
        shown = float(f"{value:.{digits}g}")
        if low < shown < high:
            return shown
    return value


def _middle(low: float, high: float, *, linear: bool) -> float:
    if linear or low <= 0:
        return (low + high) / 2
    return math.sqrt(low * high)


def _width(low: float, high: float, *, linear: bool) -> float:
    if linear:
        return high - low
    return math.inf if low <= 0 < high else 0.0 if low <= 0 else high / low
