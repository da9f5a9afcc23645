"""The comparison: policies on the same tasks and seeds, one run for each of them.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, field
from typing import Annotated, Any, NamedTuple
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.errors import InvariantError
from aggregates.events import Event, First, Long, Since, begins, counted, record, records


class OwnPolicy(NamedTuple):
    """What is known of a policy of Proctor by its name."""

    goes_back: bool = False  # it needs rules that keep states
    alone: bool = True  # its code decides, without weights, a model or a person


OWN_POLICIES = {  # in the order in which people are shown them
    "playbook": OwnPolicy(),
    "rescue": OwnPolicy(goes_back=True),
    "trials": OwnPolicy(goes_back=True),
    "network": OwnPolicy(alone=False),
    "fresh_on_nan": OwnPolicy(),
    "nothing": OwnPolicy(),
    "random": OwnPolicy(),
    "openai": OwnPolicy(alone=False),
    "mixed": OwnPolicy(alone=False),
    "human": OwnPolicy(alone=False),
}
NEUTRAL = ("data_dir", "download", "snapshots")  # of a configuration: they change no value of a run
# What a configuration says of how and where a run is computed, and its seed: another value of these
# asks the same, once more.
COMPUTED = (*NEUTRAL, "device", "numerics", "seed", "threads")
# What settings of a policy say of the requests to a server, and not of what is asked.
ASKING = ("cache", "key_env", "name", "price_in", "price_out", "retries", "timeout")
_NAMESPACE = UUID("b2f0a6d4-58f1-4c1e-9a53-0b7b2f0f6c11")


def training_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration asks: runs with the same are draws of the same."""
    return {key: value for key, value in config.items() if key not in COMPUTED}


def same_conditions(conditions: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return the first two conditions whose runs would be the same, None if there are none."""
    known: dict[str, str] = {}
    for name, config in conditions.items():
        told = digest({key: value for key, value in config.items() if key not in NEUTRAL})
        if known.setdefault(told, name) != name:
            return known[told], name
    return None


class Cell(NamedTuple):
    """One place of the table: a policy on a condition with a seed."""

    policy: str
    condition: str
    seed: int

    def __str__(self) -> str:
        """Name the place for people."""
        return f"policy {self.policy}, condition {self.condition}, seed {self.seed}"


class Comparison(Aggregate):
    """The runs of a comparison, rebuilt from its events."""

    class Started(First):
        """The start of a comparison of policies."""

        _: KW_ONLY
        # the policies with their settings, without secrets; the first is what the others are
        # compared with
        policies: Sequence[Mapping[str, Any]]
        # configuration of the runs without the seed, by the condition's name
        conditions: Mapping[str, Any]
        seeds: Sequence[int]  # seeds of the runs
        # the metric of a task that the runs were to be compared by; null: the one of the task
        metric: Annotated[str | None, Since(2, None)] = None
        # which values of that metric are better: higher or lower
        better: Annotated[str | None, Since(2, None)] = None
        name: InitVar[str] = ""

        def stream(self, name: str) -> UUID:
            return Comparison.id_of(self.policies, self.conditions, self.seeds, name)

        def check(self) -> None:
            names = [str(each["name"]) for each in self.policies]
            if not names or not self.conditions or not self.seeds:
                raise InvariantError("a comparison must have a policy, a condition and a seed")
            if len(set(names)) != len(names) or len(set(self.seeds)) != len(self.seeds):
                raise InvariantError("a comparison must name each policy and each seed only once")
            if alike := same_conditions(self.conditions):
                raise InvariantError(
                    f"the conditions {' and '.join(alike)} have the same settings, and each of "
                    "their runs would count twice; leave one out, and add seeds for more runs"
                )

    class RunAllotted(Event):
        """A cell of a comparison is given its run.

        This is recorded before the run starts. A run that was cut off is replaced by another of the
        same cell.
        """

        policy: str
        condition: str
        seed: Long
        run: str

        def check(self, comparison: "Comparison") -> None:
            comparison.verify_cell(Cell(self.policy, self.condition, self.seed))
            if self.run in comparison.runs.values():
                raise InvariantError(f"run {self.run} already belongs to this comparison")

        def apply(self, comparison: "Comparison") -> None:
            comparison.runs[Cell(self.policy, self.condition, self.seed)] = self.run

    class RunEnded(Event):
        """What became of a cell of a comparison."""

        policy: str
        condition: str
        seed: Long
        run: str = counted()
        audit: str | None  # the audit that the comparison made; null: there is none
        problem: str | None  # why there is no usable result, or null

        def check(self, comparison: "Comparison") -> dict[str, Any]:
            cell = Cell(self.policy, self.condition, self.seed)
            comparison.verify_cell(cell)
            if cell not in comparison.runs:
                raise InvariantError(f"{cell}: no run has started")
            if self.audit is None and self.problem is None:
                raise InvariantError(
                    f"{cell}: give an audit, or the problem that left it without one"
                )
            return {"run": comparison.runs[cell]}

        def apply(self, comparison: "Comparison") -> None:
            comparison.done[Cell(self.policy, self.condition, self.seed)] = self.problem

    class Ended(Event):
        """Every cell of a comparison is done."""

        ENDS = "a comparison ends once, when all of its cells are done"

        def check(self, comparison: "Comparison") -> None:
            if len(comparison.done) != len(comparison.cells):
                raise InvariantError(self.ENDS)

    policies: list[dict[str, Any]]
    conditions: dict[str, Any]
    seeds: list[int]
    metric: str | None
    better: str | None
    runs: dict[Cell, str] = field(default_factory=dict)  # the newest of each cell
    # Its problem, None where there is a result.
    done: dict[Cell, str | None] = field(default_factory=dict)
    ended: str | None = None

    start = begins(Started)
    end = records(Ended)

    @staticmethod
    def id_of(
        policies: Sequence[Mapping[str, Any]],
        conditions: Mapping[str, Any],
        seeds: Sequence[int],
        name: str = "",
    ) -> UUID:
        """Return the id of the comparison that these make: the same command finds it again."""
        plan = {
            "policies": [dict(each) for each in policies],
            "conditions": {key: dict(value) for key, value in conditions.items()},
            "seeds": list(seeds),
            "name": name,
        }
        return uuid5(_NAMESPACE, digest(plan))

    @property
    def cells(self) -> list[Cell]:
        """All cells: the policies of one seed and condition after one another."""
        return [
            Cell(str(policy["name"]), condition, seed)
            for seed in self.seeds
            for condition in self.conditions
            for policy in self.policies
        ]

    def allot(self, cell: Cell, run: str) -> None:
        """Give a cell its run, or another where the one before was cut off."""
        record(self, Comparison.RunAllotted, *cell, run=run)

    def finish(self, cell: Cell, *, audit: str | None, problem: str | None) -> None:
        """Close a cell with the audit of its run, or with what went wrong."""
        record(self, Comparison.RunEnded, *cell, audit=audit, problem=problem)

    def verify_cell(self, cell: Cell) -> None:
        """Raise InvariantError for a cell that is finished, or not part of the comparison."""
        if cell not in self.cells:
            raise InvariantError(f"{cell}: this is not part of the comparison")
        if cell in self.done:
            raise InvariantError(f"{cell}: this part is finished")
