"""A comparison carried out: an executor has the missing runs trained and judged.

Only the process that was started appends the comparison's own events. What was cut off is trained
again; what failed is counted.

I/O: reads a file of conditions; appends to the home's ledger.
"""

import tomllib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
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
from proctor.runs.run_settings import provoked
from proctor.runs.tasks import configure, task_training

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
        begun = Comparison.start(**self._told)
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
    """Return what makes conditions of a task; raises ProctorError where runs have no accuracy."""
    if (text.metric, text.better) != ("accuracy", "higher"):
        raise ProctorError(
            f"{text.name} has the metric {text.metric} ({text.better} is better), and a comparison "
            'is of test accuracy: it needs METRIC = ("accuracy", "higher")'
        )
    return lambda table: configure(text, {**given, **table})


def read_conditions(path: Path | None, make: Make) -> dict[str, Config]:
    """Return the conditions of a TOML file, each a table of settings; one where there is no file.

    `make` knows what a condition does not name, and what it may name.
    """
    base = make({})
    if path is None:
        return {DEFAULT: base}
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
    found = {}
    for name, table in tables.items():
        if "seed" in table:
            raise ProctorError(f"{path}, condition {name}: remove seed; --seeds sets the seeds")
        try:
            found[name] = make(table)
        except (AggregateError, MonitorError) as error:
            raise ProctorError(f"{path}, condition {name}: {error}") from error
    if alike := same_conditions({name: _seedless(config) for name, config in found.items()}):
        raise ProctorError(
            f"{path}: the conditions {' and '.join(alike)} have the same settings, and each of "
            "their runs would count twice; remove one, and give more --seeds for more runs"
        )
    if len({config.numerics for config in found.values()} | {base.numerics}) > 1:
        raise ProctorError(f"{path}: all conditions of a comparison have the same numerics")
    return found


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
    for config in plan.conditions.values():  # before anything is recorded
        if isinstance(config, RunConfig):
            prepare(config)
        elif plan.task is not None:
            task_training(home, plan.task.source, config)
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
