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
from aggregates.events import Event, First, Long, begins, counted, records

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
        """The start of a measurement of what decisions were worth.

        The stream's id follows from these fields: the same question is measured once.
        """

        run: str  # the run whose decisions are measured
        _: KW_ONLY
        after: str  # the policy that decides after the measured decision, in all forks
        seeds: Sequence[int]  # orders of the examples after the fork; 0 is the run's own
        arms: Mapping[str, Sequence[str]]  # names of the alternatives, by the decision's number

        def stream(self) -> UUID:
            """Return the credit's id; the same question has the same, and so is asked once."""
            plan = {"run": self.run, "after": self.after, "seeds": self.seeds, "arms": self.arms}
            return uuid5(_NAMESPACE, digest(plan))

        def check(self) -> None:
            if not self.arms or not self.seeds or len(set(self.seeds)) != len(self.seeds):
                raise InvariantError("a credit needs at least one decision, and no seed twice")

    class ForkEnded(Event):
        """What a fork of a measurement came to."""

        decision: int  # number of the decision in the run that was forked
        arm: str  # `chosen` (the decision as recorded), or the name of the alternative
        seed: Long  # order of the examples
        run: str  # the fork
        epochs: int  # epochs that it has, the shared ones included
        end_reason: str  # `completed` or `stopped`
        val_loss: float  # validation loss of its last epoch
        val_accuracy: float  # validation accuracy of its last epoch
        obligations: int  # obligations of its process, the shared ones included
        violations: int  # violations of them

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

        decision: int  # number of the decision in its run
        epoch: int = field(kw_only=True)  # the epoch whose evaluation it answers
        rules: Sequence[str] = counted()  # rules that it cites
        arm: str  # name of the alternative; `nothing` defers
        _: KW_ONLY
        chosen: Mapping[str, Any]  # the recorded decision
        other: Mapping[str, Any]  # the alternative
        pairs: int = counted()  # seeds that both were trained with
        level: float  # level of the intervals
        # `difference`, `low` and `high` of the final validation loss, other minus chosen; null: a
        # loss is not finite, or all differences are the same number
        loss: Mapping[str, float | None]
        # the same of the final validation accuracy, chosen minus other
        accuracy: Mapping[str, float | None]
        # `chosen` or `other`, where an interval excludes zero and the other interval does not
        # contradict; else null
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
        """Everything of a measurement is measured."""

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
