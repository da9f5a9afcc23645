"""The measurements along a line, arranged for the charts.

Only checkpoints that are still in force count: what was rolled back is no part of the chain. And
only evaluations with as many tasks as those of the baseline, since others have another deviation;
of the checkpoint that was active then, since others say nothing of where the line was. The
reference stays: what is added to a baseline after something was compared with it is no part of it.

Trust: evaluations are believed as they are on record; what cannot be one is left out.
I/O: reads the line's events.  Units: shares.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from aggregates.improvement.line import Line
from judge.drift.charts import (
    CONFIRMATIONS,
    PAUSE,
    Array,
    Baseline,
    Flags,
    baseline_of,
    counted,
    ratchet,
)
from judge.errors import DriftError
from judge.gauntlet.workplace import Workplace

FEWEST = 10  # repeats of a baseline; the limits were calibrated with 20


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The original checkpoint's evaluations."""

    values: tuple[float, ...]
    tasks: int  # of one evaluation
    complexity: int | None  # of its code
    compared: bool  # something was compared with them, and they are not added to

    @property
    def sd(self) -> float:
        """Of one evaluation, as they show it."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def baseline(self) -> Baseline:
        """Return what later evaluations are compared with."""
        if len(self.values) < FEWEST:
            raise DriftError(
                f"the original checkpoint has {len(self.values)} evaluations; at least {FEWEST} "
                "are needed. Make them with `proctor line watch`"
            )
        return baseline_of(self.values, resolution=1 / self.tasks)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One evaluation of a checkpoint that is in force."""

    checkpoint: str
    value: float
    again: tuple[float, ...]  # what later evaluations said that were to confirm it
    at: datetime  # when the latest of all of them was recorded
    complexity: float | None  # relative to the original's
    answered: bool  # an operator has answered a ratchet since the one before


@dataclass(frozen=True, kw_only=True)
class DriftHistory:
    """All of a line that the charts are drawn from."""

    base: Baseline
    points: tuple[Point, ...]

    @property
    def values(self) -> Array:
        """(points)."""
        return np.array([point.value for point in self.points], dtype=float)

    def again(self, confirmations: int) -> Array:
        """(points), the highest of so many; infinite where there are fewer."""
        found = [
            max(each.again[:confirmations]) if len(each.again) >= confirmations else np.inf
            for each in self.points
        ]
        return np.array(found, dtype=float)

    @property
    def counted(self) -> Array:
        """(points), what counts in sums."""
        return counted(self.values, self.base, again=self.again(1))

    @property
    def sums(self) -> Array:
        """(points), of losses since the original, in standard deviations."""
        return ratchet(self.counted, self.base, restarts=self.restarts)

    @property
    def latest(self) -> Array:
        """(points), the highest that was said of each; later confirmations do not count."""
        found = [max((each.value, *each.again[:CONFIRMATIONS])) for each in self.points]
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


def read_baseline(place: Workplace, *, tasks: int | None = None) -> Repeats:
    """Return the original checkpoint's evaluations as they are on record.

    Of several baselines the one of so many tasks; by default the latest that is whole.
    """
    first, events = place.line().first, _evaluations(place)
    compared = {event.tasks: at for at, event in reversed(events) if event.purpose == "drift"}
    found: dict[int, list[Line.Evaluated]] = {}
    for at, event in events:
        counts = event.purpose == "baseline" and event.checkpoint == first
        if counts and tasks in (None, event.tasks) and at < compared.get(event.tasks, at + 1):
            found[event.tasks] = [*found.pop(event.tasks, []), event]
    whole = [each for each in found.values() if len(each) >= FEWEST]
    same = (whole or list(found.values()) or [[]])[-1]
    code = same[-1].code if same else None
    return Repeats(
        values=tuple(event.right / event.tasks for event in same),
        tasks=same[-1].tasks if same else 1,
        complexity=None if code is None else code["complexity"],
        compared=tasks in compared or bool(same and same[-1].tasks in compared),
    )


def read_history(place: Workplace, *, pause: float = PAUSE) -> DriftHistory:
    """Return the evaluations of checkpoints in force, the oldest first; DriftError without base.

    An evaluation confirms an earlier one if it was recorded `pause` seconds later at least: what
    disturbs an evaluation disturbs the next one as well.
    """
    least = timedelta(seconds=pause)
    repeats, line = read_baseline(place), place.line()
    points: list[Point] = []
    answered, active = False, ""
    kinds: list[str] = []  # of alarms, in their order: an answer may name another kind
    evaluations = dict(_evaluations(place))
    for at, event in enumerate(place.log.events.get(place.line_id)):
        if isinstance(event, Line.Opened | Line.Promoted | Line.Adopted):
            active = event.checkpoint
        elif isinstance(event, Line.RolledBack):
            active = event.to
        elif isinstance(event, Line.DriftAlarmed):
            kinds.append(event.kind)
        elif isinstance(event, Line.AlarmAnswered):
            answered |= kinds[event.alarm - 1] == "ratchet"
        found = evaluations.get(at)
        if found is None or found.tasks != repeats.tasks or found.checkpoint != active:
            continue
        if line.checkpoints[active].rolled_back is not None:
            continue
        value, last = found.right / found.tasks, points[-1] if points else None
        if found.purpose == "confirmation" and last is not None and last.checkpoint == active:
            later = found.timestamp - last.at >= least
            again = (*last.again, value) if later else last.again
            points[-1] = replace(last, again=again, at=found.timestamp)
        if found.purpose == "drift":
            code, first = found.code, repeats.complexity
            points.append(
                Point(
                    checkpoint=active,
                    value=value,
                    again=(),
                    at=found.timestamp,
                    complexity=code["complexity"] / first if code is not None and first else None,
                    answered=answered,
                )
            )
            answered = False
    return DriftHistory(base=repeats.baseline(), points=tuple(points))


def _evaluations(place: Workplace) -> list[tuple[int, Line.Evaluated]]:
    """Return what can be an evaluation of this line, with its place among the line's events."""
    known = place.line().checkpoints
    return [
        (at, event)
        for at, event in enumerate(place.log.events.get(place.line_id))
        if isinstance(event, Line.Evaluated)
        and event.checkpoint in known
        and 0 <= event.right <= event.tasks
        and event.tasks > 0
    ]
