"""Measured credit: what a recorded decision was worth beside its alternatives.

The run is forked at the decision's epoch, once with the decision and once with each alternative,
with several orders of the examples; what differs at the end is the credit.

I/O: none.  Units: losses in nats, accuracies from 0 to 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.errors import InvariantError
from aggregates.events import Event, First, begins, counted, records

# Arms: the recorded decision, no action in its place, and an answer that chance drew.
CHOSEN, NOTHING, RANDOM = "chosen", "nothing", "random"
_NAMESPACE = UUID("6b0c1f5e-9f0f-4d7e-8f55-2f4f1b7f0a31")


class Place(NamedTuple):
    """One fork: of which decision, with what in its place, in which order of the examples."""

    decision: int
    arm: str
    seed: int


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

    class Started(First):
        """Whose decisions are measured, against what."""

        run: str
        _: KW_ONLY
        after: str
        seeds: Sequence[int]
        arms: Mapping[str, Sequence[str]]  # the alternatives by the decision's number

        def stream(self) -> UUID:
            """Return the credit's id; the same question has the same, and so is asked once."""
            plan = {"run": self.run, "after": self.after, "seeds": self.seeds, "arms": self.arms}
            return uuid5(_NAMESPACE, digest(plan))

        def check(self) -> None:
            if not self.arms or not self.seeds or len(set(self.seeds)) != len(self.seeds):
                raise InvariantError("a credit needs at least one decision, and no seed twice")

    class ForkEnded(Event):
        """What a fork came to. Accuracy and loss are those of its last epoch."""

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

        def check(self, credit: "Credit") -> None:
            if Place(self.decision, self.arm, self.seed) in credit.forks:
                raise InvariantError(
                    f"the fork of decision {self.decision} with {self.arm} and seed {self.seed} is "
                    "already recorded"
                )

        def apply(self, credit: "Credit") -> None:
            credit.forks[Place(self.decision, self.arm, self.seed)] = self

    class Measured(Event):
        """A decision beside one alternative: mean differences over the seeds, with intervals."""

        decision: int
        epoch: int = field(kw_only=True)
        rules: Sequence[str] = counted()
        arm: str
        _: KW_ONLY
        chosen: Mapping[str, Any]
        other: Mapping[str, Any]
        pairs: int = counted()
        level: float
        loss: Mapping[str, float | None]  # other minus chosen
        accuracy: Mapping[str, float | None]  # chosen minus other
        better: str | None = counted()

        def check(self, credit: "Credit") -> dict[str, Any]:
            if (self.decision, self.arm) in credit.measured:
                raise InvariantError(
                    f"decision {self.decision} was already compared with {self.arm}"
                )
            better = better_of(Interval(**self.loss), Interval(**self.accuracy))
            rules, pairs = self.chosen["cites"], len(credit.seeds)
            return {"rules": rules, "pairs": pairs, "better": better}

        def apply(self, credit: "Credit") -> None:
            credit.measured[self.decision, self.arm] = self.better

    class Ended(Event):
        """Everything is measured."""

        ENDS = "this credit has ended"

    after: str
    seeds: list[int]
    forks: dict[Place, "Credit.ForkEnded"] = field(default_factory=dict)
    measured: dict[tuple[int, str], str | None] = field(default_factory=dict)
    ended: str | None = None

    start = begins(Started)
    record_fork = records(ForkEnded)
    measure = records(Measured)
    end = records(Ended)
