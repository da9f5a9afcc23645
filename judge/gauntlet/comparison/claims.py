"""By how much success and metrics differ in the paired answers to one task.

A metric without a guard (recall, agreement) is a quality: as with success, less of it is a
regression and more of it an improvement. A metric with a guard (rows, precision) is a thrift. It
is looked at only where both arms succeed, and counts as a full loss where its guard got worse.
What the candidate does not give is lost, what the base did not give is no gain.

Trust: results are the scorers', which are ours.  I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judge.gauntlet.errors import GauntletError
from judge.gauntlet.tasks.scoring import METRICS

if TYPE_CHECKING:
    from judge.gauntlet.tasks.benchmark import TaskResult
    from judge.gauntlet.tasks.reference_set import Task

__all__ = [
    "QUALITIES",
    "THRIFTS",
    "Pair",
    "difference",
    "extra_cost",
    "fault",
    "pairs_of",
    "saving",
    "value",
]

QUALITIES = ("success", *sorted(name for name, metric in METRICS.items() if not metric.guard))
THRIFTS = tuple(sorted(name for name, metric in METRICS.items() if metric.guard))


@dataclass(frozen=True)
class Pair:
    """Both arms' answers to one repeat, drawn with one seed."""

    base: "TaskResult"
    candidate: "TaskResult"


def pairs_of(
    results: Iterable["TaskResult"], *, tasks: Sequence["Task"]
) -> Mapping[str, tuple[Pair, ...]]:
    """Return each task's complete pairs by repeat; raise GauntletError for what is no pair.

    Results of other tasks are left out.
    """
    stochastic = {task.task_id: task.stochastic for task in tasks}
    found: dict[tuple[str, int], dict[str, TaskResult]] = {}
    for result in results:
        if result.task_id not in stochastic:
            continue
        where = f"task {result.task_id}, repeat {result.repeat}"
        if result.repeat and not stochastic[result.task_id]:
            raise GauntletError(f"{where}: a deterministic task must be answered once")
        arms = found.setdefault((result.task_id, result.repeat), {})
        if result.arm in arms:
            raise GauntletError(f"{where}: there are two answers by the {result.arm}")
        arms[result.arm] = result
    pairs: dict[str, list[Pair]] = {task_id: [] for task_id in stochastic}
    for (task_id, repeat), arms in sorted(found.items()):
        if set(arms) != {"base", "candidate"}:
            continue
        if arms["base"].seed != arms["candidate"].seed:
            raise GauntletError(f"task {task_id}, repeat {repeat}: the arms have different seeds")
        pairs[task_id].append(Pair(arms["base"], arms["candidate"]))
    return {task_id: tuple(each) for task_id, each in pairs.items()}


def value(result: "TaskResult", name: str) -> float | None:
    """Return a quality, a thrift or a guard as a number; none where the result lacks it."""
    return float(result.success) if name == "success" else result.metrics.get(name)


def difference(pair: Pair, name: str) -> float:
    """Return by how much the candidate is better, from -1 to 1; costs relative to the higher."""
    before, after = value(pair.base, name), value(pair.candidate, name)
    if before is None:
        return 0.0
    metric = METRICS.get(name)
    if metric is None or metric.better == "higher":
        after = 0.0 if after is None else after
        _check_range(pair, name, (before, after), most=1.0)
        return after - before
    if after is None:
        return -1.0
    _check_range(pair, name, (before, after), most=float("inf"))
    return (before - after) / max(before, after) if before != after else 0.0


def saving(pair: Pair, name: str) -> float:
    """Return what a thrift has gained; nothing that its guard or success has paid for is gained."""
    guard = METRICS[name].guard
    assert guard is not None
    if name not in pair.base.metrics or not pair.base.success:
        return 0.0
    if not pair.candidate.success or difference(pair, guard) < 0.0:
        return -1.0
    return difference(pair, name)


def extra_cost(pair: Pair, name: str) -> float:
    """Return by how much a thrift got worse where both arms succeed."""
    both = pair.base.success and pair.candidate.success
    return -difference(pair, name) if both else 0.0


def fault(pair: Pair) -> float:
    """Return 1 for an answer that became invalid, -1 for one that became valid."""
    return float(pair.candidate.validation_failures > 0) - float(pair.base.validation_failures > 0)


def _check_range(pair: Pair, name: str, values: tuple[float, float], *, most: float) -> None:
    if not all(0.0 <= each <= most for each in values):
        raise GauntletError(
            f"task {pair.base.task_id}: {name} goes from {values[0]} to {values[1]}, but it must "
            f"lie between 0 and {most}: fix the scorer"
        )
