"""By how much success and metrics differ in the paired answers to one task.

A metric without a guard (recall, agreement) is a quality: as with success, less of it is a
regression and more of it an improvement. A metric with a guard (rows, precision) is a thrift. It
is compared where both arms succeed; where one arm alone succeeds, or has the better guard, the
whole difference is that arm's. An answer or a quality that is missing is worth nothing, and it is
worth nothing in either arm: when the arms change places, every difference changes its sign.

Trust: results are the scorers', which are ours.  I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from judge.gauntlet.errors import GauntletError
from judge.gauntlet.tasks.benchmark import ARMS, TaskResult
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import METRICS

Outcome = tuple[bool, int, tuple[tuple[str, float], ...]]
"""Success, validation failures and metrics: what two answers to a deterministic task share."""

QUALITIES = ("success", *sorted(name for name, metric in METRICS.items() if not metric.guard))
THRIFTS = tuple(sorted(name for name, metric in METRICS.items() if metric.guard))


@dataclass(frozen=True)
class Pair:
    """Both arms' answers to one repeat, drawn with one seed."""

    base: TaskResult
    candidate: TaskResult


def pairs_of(
    results: Iterable[TaskResult], *, tasks: Sequence[Task]
) -> Mapping[str, tuple[Pair, ...]]:
    """Return each task's complete pairs by repeat; raise GauntletError for what is no pair.

    Results of other tasks are left out, and pairs with an answer that an older version took from an
    earlier proposal: it was given at another time.
    """
    known = {task.task_id for task in tasks}
    found: dict[tuple[str, int], dict[str, TaskResult]] = {}
    for result in results:
        if result.task_id not in known:
            continue
        where = f"task {result.task_id}, repeat {result.repeat}"
        arms = found.setdefault((result.task_id, result.repeat), {})
        if result.arm in arms:
            raise GauntletError(f"{where}: there are two answers by the {result.arm}")
        arms[result.arm] = result
    pairs: dict[str, list[Pair]] = {task.task_id: [] for task in tasks}
    for (task_id, repeat), arms in sorted(found.items()):
        if len(arms) < len(ARMS):
            continue
        if arms["base"].seed != arms["candidate"].seed:
            raise GauntletError(f"task {task_id}, repeat {repeat}: the arms have different seeds")
        if any(each.cached for each in arms.values()):
            continue
        pairs[task_id].append(Pair(arms["base"], arms["candidate"]))
    return {task_id: tuple(each) for task_id, each in pairs.items()}


def value(result: TaskResult, name: str) -> float | None:
    """Return a quality, a thrift or a guard as a number; none where the result lacks it."""
    return float(result.success) if name == "success" else result.metrics.get(name)


def difference(pair: Pair, name: str) -> float:
    """Return by how much the candidate is better, from -1 to 1; costs relative to the higher."""
    before, after = value(pair.base, name), value(pair.candidate, name)
    metric = METRICS.get(name)
    if metric is None or metric.better == "higher":
        before, after = before or 0.0, after or 0.0
        _check_range(pair, name, (before, after), most=1.0)
        return after - before
    if before is None or after is None:
        return float(after is not None) - float(before is not None)
    _check_range(pair, name, (before, after), most=float("inf"))
    return (before - after) / max(before, after) if before != after else 0.0


def saving(pair: Pair, name: str) -> float:
    """Return what a thrift has gained: all or nothing where success or its guard differs."""
    guard = METRICS[name].guard
    assert guard is not None
    if pair.base.success != pair.candidate.success:
        return 1.0 if pair.candidate.success else -1.0
    if not pair.base.success:
        return 0.0
    guarded = difference(pair, guard)
    if guarded != 0.0:
        return 1.0 if guarded > 0.0 else -1.0
    return difference(pair, name)


def extra_cost(pair: Pair, name: str) -> float:
    """Return by how much a thrift got worse where both arms succeed."""
    both = pair.base.success and pair.candidate.success
    return -difference(pair, name) if both else 0.0


def outcome(result: TaskResult) -> Outcome:
    """Return what an answer has to be again if its task is deterministic."""
    metrics = tuple(sorted(item for item in result.metrics.items() if item[0] in METRICS))
    return result.success, result.validation_failures, metrics


def fault(pair: Pair) -> float:
    """Return 1 for an answer that became invalid, -1 for one that became valid."""
    return float(pair.candidate.validation_failures > 0) - float(pair.base.validation_failures > 0)


def _check_range(pair: Pair, name: str, values: tuple[float, float], *, most: float) -> None:
    if not all(0.0 <= each <= most for each in values):
        raise GauntletError(
            f"task {pair.base.task_id}: {name} goes from {values[0]} to {values[1]}, but it must "
            f"lie between 0 and {most}: fix the scorer"
        )
