"""What has been measured along a line, laid out for the charts.

Only checkpoints that are still in force count: what was rolled back is no part of the chain. And
only evaluations with as many tasks as those of the baseline, since others have another deviation.

I/O: reads the line's events.  Units: shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from aggregates.line import Line
from judge.drift.charts import Array, Baseline, Flags, baseline_of
from judge.drift.errors import DriftError
from judge.gauntlet.workplace import Workplace

__all__ = ["FEWEST", "History", "Point", "Repeats", "read_baseline", "read_history"]

FEWEST = 10  # repeats of a baseline; the limits were calibrated with 20


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The original checkpoint's evaluations."""

    values: tuple[float, ...]
    tasks: int  # of one evaluation
    complexity: int | None  # of its code

    @property
    def sd(self) -> float:
        """Of one evaluation, as they show it."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def baseline(self) -> Baseline:
        """Return what later evaluations are compared with."""
        if len(self.values) < FEWEST:
            raise DriftError(
                f"the original checkpoint has {len(self.values)} evaluations, and what is expected "
                f"of one cannot be told by fewer than {FEWEST}; `proctor checkpoints baseline` "
                "makes them"
            )
        return baseline_of(self.values, resolution=1 / self.tasks)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One evaluation of a checkpoint that is in force."""

    checkpoint: str
    value: float
    again: float | None  # what the evaluation said that was to confirm it
    complexity: float | None  # relative to the original's
    answered: bool  # an operator has answered a ratchet since the one before


@dataclass(frozen=True, kw_only=True)
class History:
    """All of a line that the charts are drawn from."""

    base: Baseline
    points: tuple[Point, ...]

    @property
    def values(self) -> Array:
        """(points)."""
        return np.array([point.value for point in self.points], dtype=float)

    @property
    def again(self) -> Array:
        """(points); infinite where nothing was confirmed, which lies below nothing."""
        found = [np.inf if each.again is None else each.again for each in self.points]
        return np.array(found, dtype=float)

    @property
    def complexity(self) -> Array:
        """(points), relative to the original's; 1 where the code was not weighed."""
        found = [1.0 if each.complexity is None else each.complexity for each in self.points]
        return np.array(found, dtype=float)

    @property
    def restarts(self) -> Flags:
        """(points); where the sum begins again."""
        return np.array([point.answered for point in self.points], dtype=bool)


def read_baseline(place: Workplace) -> Repeats:
    """Return the original checkpoint's evaluations as they are on record."""
    found = [
        event
        for event in place.log.events.get(place.line_id)
        if isinstance(event, Line.Evaluated) and event.purpose == "baseline"
    ]
    tasks = found[-1].tasks if found else 1
    same = [event for event in found if event.tasks == tasks]
    code = same[-1].code if same else None
    return Repeats(
        values=tuple(event.right / event.tasks for event in same),
        tasks=tasks,
        complexity=None if code is None else code["complexity"],
    )


def read_history(place: Workplace) -> History:
    """Return the evaluations of checkpoints in force, the oldest first; DriftError without base."""
    repeats, line = read_baseline(place), place.line()
    points: list[Point] = []
    answered = False
    for event in place.log.events.get(place.line_id):
        if isinstance(event, Line.AlarmAnswered) and event.kind == "ratchet":
            answered = True
        if not isinstance(event, Line.Evaluated) or event.tasks != repeats.tasks:
            continue
        if line.checkpoints[event.checkpoint].rolled_back is not None:
            continue
        value = event.right / event.tasks
        if event.purpose == "confirmation" and points and points[-1].again is None:
            points[-1] = replace(points[-1], again=value)
        if event.purpose == "drift":
            points.append(
                Point(
                    checkpoint=event.checkpoint,
                    value=value,
                    again=None,
                    complexity=_relative(event.code, repeats.complexity),
                    answered=answered,
                )
            )
            answered = False
    return History(base=repeats.baseline(), points=tuple(points))


def _relative(code: Mapping[str, int] | None, original: int | None) -> float | None:
    return None if code is None or not original else code["complexity"] / original
