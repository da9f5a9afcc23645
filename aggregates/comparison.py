"""The comparison: policies on the same tasks and seeds, one run for each of them.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.errors import InvariantError

OWN_POLICIES = ("human", "mixed", "network", "nothing", "openai", "playbook", "random")
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

    class Started(Aggregate.Created):
        """What is compared, on what, with which seeds."""

        policies: list[dict[str, Any]]
        conditions: dict[str, Any]  # name -> the runs' configuration, without its seed
        seeds: list[int]

    class RunAllotted(Aggregate.Event):
        """A cell is given its run; a later one takes the place of a run that was cut off."""

        policy: str
        condition: str
        seed: int
        run: str

        def apply(self, aggregate: "Comparison") -> None:
            """Keep the newest run of the cell."""
            aggregate.runs[Cell(self.policy, self.condition, self.seed)] = self.run

    class RunEnded(Aggregate.Event):
        """A cell is done: its run has ended, and this audit counts; no run if none was begun."""

        policy: str
        condition: str
        seed: int
        run: str
        audit: str | None
        problem: str | None  # why there is no usable result

        def apply(self, aggregate: "Comparison") -> None:
            """Close the cell."""
            aggregate.done[Cell(self.policy, self.condition, self.seed)] = self.problem

    class Ended(Aggregate.Event):
        """Every cell is done."""

        def apply(self, aggregate: "Comparison") -> None:
            """Close the comparison."""
            aggregate.ended = True

    def __init__(
        self, policies: list[dict[str, Any]], conditions: dict[str, Any], seeds: list[int]
    ) -> None:
        self.policies = policies
        self.conditions = conditions
        self.seeds = seeds
        self.runs: dict[Cell, str] = {}  # the newest of each cell
        self.done: dict[Cell, str | None] = {}  # its problem, None where there is a result
        self.ended = False

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

    @classmethod
    def start(
        cls,
        *,
        policies: Sequence[Mapping[str, Any]],
        conditions: Mapping[str, Mapping[str, Any]],
        seeds: Sequence[int],
        name: str = "",
    ) -> "Comparison":
        """Open a comparison; each policy has a name of its own."""
        names = [str(each["name"]) for each in policies]
        if not policies or not conditions or not seeds:
            raise InvariantError("a comparison must have a policy, a condition and a seed")
        if len(set(names)) != len(names) or len(set(seeds)) != len(seeds):
            raise InvariantError("a comparison must name each policy and each seed only once")
        if alike := same_conditions(conditions):
            raise InvariantError(
                f"the conditions {' and '.join(alike)} have the same settings, and each of their "
                "runs would count twice; leave one out, and add seeds for more runs"
            )
        return cls._create(
            event_class=cls.Started,
            id=cls.id_of(policies, conditions, seeds, name),
            policies=[dict(each) for each in policies],
            conditions={key: dict(value) for key, value in conditions.items()},
            seeds=list(seeds),
        )

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
        self._check_open(cell)
        if run in self.runs.values():
            raise InvariantError(f"run {run} already belongs to this comparison")
        self.trigger_event(self.RunAllotted, **cell._asdict(), run=run)

    def finish(self, cell: Cell, *, audit: str | None, problem: str | None) -> None:
        """Close a cell with the audit of its run, or with what went wrong."""
        self._check_open(cell)
        if cell not in self.runs:
            raise InvariantError(f"{cell}: no run has started")
        if audit is None and problem is None:
            raise InvariantError(f"{cell}: give an audit, or the problem that left it without one")
        self.trigger_event(
            self.RunEnded, **cell._asdict(), run=self.runs[cell], audit=audit, problem=problem
        )

    def end(self) -> None:
        """Close the comparison."""
        if self.ended or len(self.done) != len(self.cells):
            raise InvariantError("a comparison ends once, when all of its cells are done")
        self.trigger_event(self.Ended)

    def _check_open(self, cell: Cell) -> None:
        if cell not in self.cells:
            raise InvariantError(f"{cell}: this is not part of the comparison")
        if cell in self.done:
            raise InvariantError(f"{cell}: this part is finished")
