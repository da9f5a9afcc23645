"""Measured credit: what a recorded decision was worth beside its alternatives.

The run is forked at the decision's epoch, once with the decision and once with each alternative,
with several orders of the examples; what differs at the end is the credit.

I/O: none.  Units: losses in nats, accuracies from 0 to 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.errors import InvariantError

CHOSEN, NOTHING = "chosen", "nothing"  # arms: the recorded decision, and no action in its place
_NAMESPACE = UUID("6b0c1f5e-9f0f-4d7e-8f55-2f4f1b7f0a31")


class Place(NamedTuple):
    """One fork: of which decision, with what in its place, in which order of the examples."""

    decision: int
    arm: str
    seed: int


@dataclass(frozen=True)
class Ending:
    """What a fork came to. Accuracy and loss are those of its last epoch."""

    run: str
    epochs: int
    end_reason: str
    val_loss: float
    val_accuracy: float
    obligations: int
    violations: int


@dataclass(frozen=True)
class Interval:
    """A mean difference with the ends of its interval; None where it cannot be told."""

    difference: float | None
    low: float | None
    high: float | None

    @property
    def side(self) -> int:
        """1 or -1 where zero lies outside, else 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


def better_of(loss: Interval, accuracy: Interval) -> str | None:
    """Return which is better: `chosen`, `other`, or None where that is not decided.

    One interval has to exclude zero, and the other one must not exclude it on the other side.
    """
    sides = {loss.side, accuracy.side} - {0}
    return {1: "chosen", -1: "other"}[sides.pop()] if len(sides) == 1 else None


class Credit(Aggregate):
    """The forks of one run and what they show, rebuilt from its events."""

    class Started(Aggregate.Created):
        """Whose decisions are measured, against what."""

        run: str
        after: str
        seeds: list[int]
        arms: dict[str, list[str]]  # the alternatives by the decision's number

    class ForkEnded(Aggregate.Event):
        """A fork is done."""

        decision: int
        arm: str
        seed: int
        run: str
        epochs: int
        end_reason: str
        val_loss: float
        val_accuracy: float
        obligations: int
        violations: int

        def apply(self, aggregate: "Credit") -> None:
            """Keep what it came to."""
            ending = Ending(**{each.name: getattr(self, each.name) for each in fields(Ending)})
            aggregate.forks[Place(self.decision, self.arm, self.seed)] = ending

    class Measured(Aggregate.Event):
        """A decision beside one alternative: mean differences over the seeds, with intervals."""

        decision: int
        epoch: int
        rules: list[str]
        arm: str
        chosen: dict[str, Any]
        other: dict[str, Any]
        pairs: int
        level: float
        loss: dict[str, float | None]  # other minus chosen
        accuracy: dict[str, float | None]  # chosen minus other
        better: str | None

        def apply(self, aggregate: "Credit") -> None:
            """Keep that the alternative is done."""
            aggregate.measured[self.decision, self.arm] = self.better

    class Ended(Aggregate.Event):
        """Everything is measured."""

        def apply(self, aggregate: "Credit") -> None:
            """Close the credit."""
            aggregate.ended = True

    def __init__(self, run: str, after: str, seeds: list[int], arms: dict[str, list[str]]) -> None:
        self.run = run
        self.after = after
        self.seeds = seeds
        self.arms = arms
        self.forks: dict[Place, Ending] = {}
        self.measured: dict[tuple[int, str], str | None] = {}
        self.ended = False

    @classmethod
    def start(
        cls, run: str, *, after: str, seeds: Sequence[int], arms: Mapping[int, Sequence[str]]
    ) -> "Credit":
        """Open a credit; the same question has the same id, and so is asked once."""
        plan: dict[str, Any] = {
            "run": run,
            "after": after,
            "seeds": list(seeds),
            "arms": {str(number): list(names) for number, names in arms.items()},
        }
        if not arms or not seeds or len(set(seeds)) != len(seeds):
            raise InvariantError("a credit needs at least one decision, and no seed twice")
        return cls._create(event_class=cls.Started, id=uuid5(_NAMESPACE, digest(plan)), **plan)

    def record_fork(self, place: Place, ending: Ending) -> None:
        """Record what a fork came to."""
        self._check_open()
        if place in self.forks:
            raise InvariantError(
                f"the fork of decision {place.decision} with {place.arm} and seed {place.seed} is "
                "already recorded"
            )
        self.trigger_event(self.ForkEnded, **place._asdict(), **asdict(ending))

    def measure(
        self,
        decision: int,
        arm: str,
        *,
        epoch: int,
        chosen: Mapping[str, Any],
        other: Mapping[str, Any],
        level: float,
        loss: Interval,
        accuracy: Interval,
    ) -> None:
        """Record what a decision was worth beside one alternative."""
        self._check_open()
        if (decision, arm) in self.measured:
            raise InvariantError(f"decision {decision} was already compared with {arm}")
        self.trigger_event(
            self.Measured,
            decision=decision,
            epoch=epoch,
            rules=list(chosen["cites"]),
            arm=arm,
            chosen=dict(chosen),
            other=dict(other),
            pairs=len(self.seeds),
            level=level,
            loss=asdict(loss),
            accuracy=asdict(accuracy),
            better=better_of(loss, accuracy),
        )

    def end(self) -> None:
        """Close the credit."""
        self._check_open()
        self.trigger_event(self.Ended)

    def _check_open(self) -> None:
        if self.ended:
            raise InvariantError("this credit has ended")
