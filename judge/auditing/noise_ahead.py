"""The pools of gradient noise that a replay asks for, solved many at once.

A replay asks for two pools in each epoch, and each takes 130 evaluations of one formula. Here numpy
does those of many epochs together, with the same additions, multiplications, divisions and square
roots in the same order as aggregates/noise.py, so that each result has the same bits. What is not
solved here is left to pool_noise().

Trust: bodies are hostile; what cannot be read is left to the replay, which says what is wrong.
I/O: none.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aggregates.errors import AggregateError
from aggregates.noise import (
    HALVINGS,
    LARGEST,
    NoiseProbes,
    SignalToNoise,
    evidence_of,
    pool_noise,
)
from aggregates.rules import RulesConfig
from aggregates.signals import probes_of
from judge.auditing.events import HOSTILE
from ledger.verification.verified_entries import VerifiedEntry

__all__ = ["NoiseAhead", "pool_many"]

_MEASURED = "run.epoch_measured"


class _Measured(msgspec.Struct):
    """The part of what was measured that is read here; the replay reads all of it."""

    gradients: dict[str, Any]


class _Body(msgspec.Struct):
    measured: _Measured


_decode = msgspec.msgpack.Decoder(_Body).decode
_Numbers = NDArray[np.float64]
_Pools = dict[tuple[NoiseProbes, ...], SignalToNoise | None]


class NoiseAhead:
    """Pools of single epochs and of the rules' windows, for a part of a run's entries."""

    def __init__(self, rules: RulesConfig) -> None:
        self._window = rules.persistence if rules.r2_pooled else 1
        self._latest: deque[NoiseProbes | None] = deque(maxlen=self._window)
        self._known: _Pools = {}

    def look(self, entries: Iterable[VerifiedEntry]) -> None:
        """Solve what these entries, which follow those of the last time, are going to need."""
        wanted: list[tuple[NoiseProbes, ...]] = []
        for entry in entries:
            if entry.name != _MEASURED:
                continue
            try:
                noise = probes_of(_decode(entry.body).measured.gradients)
            except (AggregateError, msgspec.MsgspecError, *HOSTILE):
                noise = None
            self._latest.append(noise)
            if noise is not None:
                wanted.append((noise,))
            if len(self._latest) == self._window > 1:
                wanted.append(tuple(each for each in self._latest if each is not None))
        self._known = pool_many(wanted)

    def pool(self, epochs: tuple[NoiseProbes, ...]) -> SignalToNoise | None:
        """Return pool_noise() of these epochs."""
        try:
            return self._known[epochs]
        except KeyError:
            return pool_noise(epochs)


def pool_many(wanted: Iterable[tuple[NoiseProbes, ...]]) -> _Pools:
    """Return pool_noise() of each, without those that only pool_noise() can tell."""
    found: _Pools = {}
    asked: list[tuple[tuple[NoiseProbes, ...], tuple[float, float, float, float]]] = []
    for epochs in wanted:
        try:
            known = evidence_of(epochs)
        except (ArithmeticError, *HOSTILE):
            continue
        if known is None:
            found[epochs] = None
            continue
        evidence, limit = known
        asked.append((epochs, (evidence.quotient, evidence.count, evidence.shape, limit)))
    if not asked:
        return found
    quotient, count, shape, limit = np.array([numbers for _, numbers in asked]).T
    scores = np.concatenate([np.zeros_like(limit), limit, -limit])
    try:
        # Python raises in some of these cases, where numpy would go on.
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            solved = _Many(*(np.tile(each, 3) for each in (quotient, count, shape))).solve(scores)
    except FloatingPointError:
        return found
    for (epochs, _), estimate, low, high in zip(
        asked, *(part.tolist() for part in np.split(solved, 3)), strict=True
    ):
        found[epochs] = SignalToNoise(estimate=estimate, low=low, high=high)
    return found


class _Many:
    """Evidence of aggregates/noise.py, element by element."""

    def __init__(self, quotient: _Numbers, count: _Numbers, shape: _Numbers) -> None:
        self.quotient, self.count, self.shape = quotient, count, shape

    def solve(self, score: _Numbers) -> _Numbers:
        low, high = np.zeros_like(score), np.ones_like(score)
        none = self._score(low) <= score
        while True:
            on = (high < LARGEST) & (self._score(high) > score)
            if not on.any():
                break
            low, high = np.where(on, high, low), np.where(on, 2 * high, high)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = self._score(middle) > score
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(none, 0.0, (low + high) / 2)

    def _score(self, ratio: _Numbers) -> _Numbers:
        once = 1 + ratio
        directions = self.shape * (2 + 4 * ratio) / (once * once) * self.count
        half = ratio + 0.5
        above = 2 / 9 * (0.5 + 2 * ratio) / (2 * directions * half * half)
        below = 2 / 9 / directions
        root = _cube_root((self.quotient + 0.5) / half)
        return ((1 - below) * root - (1 - above)) / np.sqrt(below * root * root + above)


def _cube_root(value: _Numbers) -> _Numbers:
    mantissa, exponent = np.frexp(value)
    thirds, rest = np.divmod(exponent, 3)
    mantissa = np.ldexp(mantissa, rest)
    root = np.ones_like(value)
    for _ in range(8):
        root = (2 * root + mantissa / (root * root)) / 3
    return np.where(value == 0, 0.0, np.ldexp(root, thirds))
