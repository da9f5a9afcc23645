"""The recorder's clocks: the current time, and whether the clock was changed.

Source: docs/reference/ledger-format.md, "Entry"; Linux, clock_gettime(2), CLOCK_BOOTTIME.
I/O: none; clocks are passed in.  Units: nanoseconds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

_TOLERANCE = 10 * 10**9


def _boot_clock() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


BOOT_CLOCK: Callable[[], int] | None = _boot_clock if hasattr(time, "CLOCK_BOOTTIME") else None
"""Runs on through suspension, and nobody sets it; None where the machine has no such clock."""


@dataclass(frozen=True)
class Reading:
    """What both clocks showed at one moment."""

    clock: int  # since the POSIX epoch
    steady: int | None  # since some moment


class Clocks:
    """Compares a clock with one that nobody sets, from one append to the next."""

    def __init__(self, clock: Callable[[], int], steady_clock: Callable[[], int] | None) -> None:
        self._clock = clock
        self._steady_clock = steady_clock
        self._last: Reading | None = None  # at this recorder's last append

    def read(self) -> Reading:
        """Return what the clocks show."""
        return Reading(self._clock(), self._steady_clock() if self._steady_clock else None)

    def appended(self, reading: Reading) -> None:
        """Remember what the clocks showed when a batch was written."""
        self._last = reading

    def jump(
        self, reading: Reading, *, newest: int, last_jump: tuple[int, int] | None
    ) -> int | None:
        """Return by how much the clock has jumped, backwards if negative; None if it has not.

        `newest` is the last entry's time; `last_jump` the time of the last recorded jump's entry
        and its size. A clock that is behind is told of once: entries repeat the last time until
        it has caught up, so a jump backwards at just that time is the same one.
        """
        last = self._last
        if last is not None and last.steady is not None and reading.steady is not None:
            moved = (reading.clock - last.clock) - (reading.steady - last.steady)
            if abs(moved) > _TOLERANCE:
                return moved
        behind = reading.clock - newest
        told = last_jump is not None and last_jump[0] == newest and last_jump[1] < 0
        return behind if behind < -_TOLERANCE and not told else None
