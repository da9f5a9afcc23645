"""A comparison carried out: an executor has the missing runs trained and judged.

Only the process that was started appends the comparison's own events. What was cut off is trained
again; what failed is counted.

I/O: reads a file of conditions; appends to the home's ledger.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

from aggregates.comparison import Cell, Comparison, same_conditions
from aggregates.errors import AggregateError
from ledger.application import LedgerApplication
from monitor.config import RunConfig, TaskConfig
from monitor.errors import MonitorError
from monitor.loop import prepare
from monitor.tasks import TaskText
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import ask
from proctor.runs.executors import Executor, Outcome
from proctor.runs.jobs import Job, is_done
from proctor.runs.labels import record_installed
from proctor.runs.policies import PolicyChoice
from proctor.runs.run_settings import provoked, read_value
from proctor.runs.standings import ACCURACY, Metric
from proctor.runs.tasks import configure, verify_task

Config = RunConfig | TaskConfig
Make = Callable[[Mapping[str, Any]], Config]  # from a condition's settings
OnDone = Callable[[int, int, Cell, str | None], None]  # done, of how many, which, its problem
DEFAULT = "default"  # the condition where no file names others
_CELLS = "SELECT * FROM {} WHERE comparison_id = ? AND {} ORDER BY condition, seed, policy, run_id"
_PROVOCATION = ("provoke", "provoke_seed")


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    policies: tuple[PolicyChoice, ...]
    conditions: Mapping[str, Config]  # by name; their seed is replaced
    seeds: tuple[int, ...]
    name: str = ""
    task: TaskText | None = None  # whose model and data all conditions have; None: built-in
    metric: Metric = ACCURACY  # that the table is by; no part of the id

    @property
    def id(self) -> UUID:
        """The comparison's id."""
        return Comparison.id_of(**self._told)

    @property
    def _told(self) -> dict[str, Any]:
        return {
            "policies": [each.to_dict() for each in self.policies],
            "conditions": {name: _seedless(config) for name, config in self.conditions.items()},
            "seeds": self.seeds,
            "name": self.name,
        }

    def open(self, log: LedgerApplication) -> Comparison:
        """Return the comparison as far as it has come; begin it if it is new."""
        if (found := log.find(self.id, Comparison)) is not None:
            return found
        asked = self.metric if self.metric != own_metric(self.task) else None
        begun = Comparison.start(
            **self._told, metric=asked and asked.name, better=asked and asked.better
        )
        log.save(begun)
        return begun


def of_network(base: Config) -> Make:
    """Return what makes conditions of the built-in network, which may be provoked."""

    def make(table: Mapping[str, Any]) -> Config:
        settings = {key: value for key, value in table.items() if key not in _PROVOCATION}
        config = RunConfig.from_dict({**base.to_dict(), **settings})
        return provoked(config, table.get("provoke"), table.get("provoke_seed", 0))

    return make


def of_task(text: TaskText, given: Mapping[str, Any]) -> Make:
    """Return what makes conditions of a task."""
    return lambda table: configure(text, {**given, **table})


def own_metric(text: TaskText | None) -> Metric:
    """Return the metric that the runs of a task, or of the built-in network, are compared by."""
    return ACCURACY if text is None else Metric(text.metric, text.better)


def read_metric(asked: str | None, text: TaskText | None) -> Metric:
    """Return the metric NAME or NAME:higher; by default the one that a task is compared by."""
    own = own_metric(text)
    if asked is None:
        return own
    name, _, better = asked.partition(":")
    if name == own.name:
        if better not in ("", own.better):
            raise ProctorError(f"--metric {asked}: METRIC says that {own.better} is better")
        return own
    if text is None:
        raise ProctorError(
            f"--metric {asked}: runs of the built-in network have the metric accuracy; --task FILE "
            "names your own"
        )
    if better not in ("higher", "lower"):
        raise ProctorError(
            f"--metric {asked}: say which values are better, as in {name}:higher or {name}:lower; "
            f"METRIC of {text.name} says it of {own.name} only"
        )
    return Metric(name, better)


def read_sweeps(sweeps: Sequence[str], given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each KEY=V1,V2; raises ProctorError for a key that is also given."""
    found: dict[str, list[Any]] = {}
    for text in sweeps:
        key, _, values = text.partition("=")
        if not key or not values:
            raise ProctorError(f"--sweep {text}: give KEY=V1,V2, as in lr=0.01,0.1")
        if key in found or key in given:
            raise ProctorError(f"{key} is given twice: once in --sweep {text}; give it once")
        listed = read_value(f"[{values}]")
        if not isinstance(listed, list):
            listed = [read_value(each) for each in values.split(",")]
        if len({*map(str, listed)}) < len(listed):
            raise ProctorError(f"--sweep {text} gives a value twice; more --seeds give more runs")
        found[key] = listed
    return found


def read_conditions(
    path: Path | None, make: Make, sweeps: Mapping[str, Sequence[Any]] = MappingProxyType({})
) -> dict[str, Config]:
    """Return the conditions of a TOML file, each a table of settings; one where there is no file.

    Each is made with every combination of the values of `sweeps`. `make` knows what a condition
    does not name, and what it may name.
    """
    base = make({})
    tables = {"": {}} if path is None else _read_tables(path)
    for key, values in sweeps.items():
        if named := [name for name, table in tables.items() if key in table]:
            raise ProctorError(f"{key} is in --sweep and in condition {named[0]}; give it once")
        tables = {
            f"{name} {key}={value}".lstrip(): {**table, key: value}
            for name, table in tables.items()
            for value in values
        }
    if [*tables] == [""]:
        return {DEFAULT: base}
    where = "--sweep" if path is None else str(path)
    found = {}
    for name, table in tables.items():
        if "seed" in table:
            raise ProctorError(f"{where}, condition {name}: remove seed; --seeds sets the seeds")
        try:
            found[name] = make(table)
        except (AggregateError, MonitorError) as error:
            raise ProctorError(f"{where}, condition {name}: {error}") from error
    if alike := same_conditions({name: _seedless(config) for name, config in found.items()}):
        raise ProctorError(
            f"{where}: the conditions {' and '.join(alike)} have the same settings, and each of "
            "their runs would count twice; remove one, and give more --seeds for more runs"
        )
    if len({config.numerics for config in found.values()} | {base.numerics}) > 1:
        raise ProctorError(f"{where}: all conditions of a comparison have the same numerics")
    return found


def _read_tables(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProctorError(f"{path} cannot be read: {error.strerror}") from error
    except (RecursionError, ValueError) as error:
        raise ProctorError(f"{path} is not valid TOML: {error}") from error
    if not tables or not all(isinstance(each, dict) for each in tables.values()):
        raise ProctorError(
            f"{path} must hold a table for each condition, as in [hot] with lr = 3.0 below it"
        )
    return tables


def compare(
    home: Home,
    log: LedgerApplication,
    plan: Plan,
    *,
    work: Callable[[Job], Outcome],
    executor: Executor,
    on_done: OnDone,
) -> Comparison:
    """Train and judge what is missing of a comparison; return it when every cell is done.

    `work` does so for one cell, in another process. Raises ProctorError if a cell could not be
    carried out for a reason that is none of its policy's; such a cell stays open.
    """
    verified: list[Any] = []
    for config in plan.conditions.values():  # before anything is recorded
        if isinstance(config, RunConfig):
            prepare(config)
        elif plan.task is not None and (data := (config.params, config.data_seed)) not in verified:
            verify_task(home, plan.task.source, config, metric=plan.metric.name)
            verified.append(data)
    comparison = plan.open(log)
    if comparison.ended:
        return comparison
    record_installed(log, may=home.may_append)
    choices = {choice.name: choice for choice in plan.policies}
    total = len(comparison.cells)
    cells: dict[str, Cell] = {}  # by run

    def allot(cell: Cell) -> Job:
        before = comparison.runs.get(cell)
        run = before if before is not None and is_done(log, before) else str(uuid4())
        if run != before:
            comparison.allot(cell, run)
        cells[run] = cell
        config = replace(plan.conditions[cell.condition], seed=cell.seed)
        return Job(home.path, run, config, choices[cell.policy], plan.task)

    def allot_again(job: Job) -> Job:
        again = allot(cells[job.run])
        log.save(comparison)
        return again

    jobs = [allot(cell) for cell in comparison.cells if cell not in comparison.done]
    log.save(comparison)
    with closing(executor.carry_out(jobs, work, allot_again)) as done:
        for job, outcome in done:
            if outcome.stopped is not None:
                raise ProctorError(
                    f"the comparison stopped: {outcome.stopped}; the same command continues it"
                )
            cell = cells[job.run]
            comparison.finish(cell, audit=outcome.audit, problem=outcome.problem)
            log.save(comparison)
            on_done(len(comparison.done), total, cell, outcome.problem)
    comparison.end()
    log.save(comparison)
    return comparison


def own_folder(config: Config) -> str | None:
    """Return the data folder that the judge of an own task reads; None for another training."""
    folder = config.params.get("data_dir") if isinstance(config, TaskConfig) else None
    return folder if isinstance(folder, str) else None


def _seedless(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.to_dict().items() if key != "seed"}


def read_cells(home: Home, comparison: str) -> list[dict[str, Any]]:
    """Return the finished cells of a comparison, from tables of a ledger that holds."""
    return ask(home, _CELLS.format("comparison_cells", "TRUE"), comparison)


def read_draws(home: Home, comparison: str) -> list[dict[str, Any]]:
    """Return the runs that ask what a comparison's cells ask and are none of their results."""
    return ask(home, _CELLS.format("comparison_draws", "NOT counted"), comparison)
