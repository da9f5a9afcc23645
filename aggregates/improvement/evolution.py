"""The evolution of a line: rounds that search for an improvement.

One stream for each line. A round names its proposal, or the reason why it has none. The record of
each technique is not stored here: it follows from the proposals.

Trust: reasons hold others' words and are cut.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

OUTCOMES = (
    "proposed",  # a proposal is on record
    "nothing",  # there is nothing to act on, or nothing to be said about it
    "unusable",  # what was answered is no change
    "unanswered",  # nobody answered
    "refused",  # what was answered is a change that cannot be handed in
)
ORDERS = ("on", "off", "reset")  # reset: what was tried before is history
MAX_ROUNDS = 100_000  # asked for at a time
MAX_TEXT = 2_000  # characters of a reason


class Evolution(Aggregate):
    """What has been tried on one line, round by round, rebuilt from its events."""

    class Opened(Aggregate.Created):
        """Which line it is."""

        line: str

    class Begun(Aggregate.Event):
        """So many rounds are to be gone through, by this proposer."""

        rounds: int
        proposer: dict[str, Any]
        technique: str | None  # that is to be used, whatever was learned

        def apply(self, aggregate: "Evolution") -> None:
            """Keep what is asked for."""
            aggregate.asked = {"proposer": self.proposer, "technique": self.technique}
            aggregate.wanted = aggregate.left = self.rounds

    class RoundEnded(Aggregate.Event):
        """What a round came to."""

        round: int
        outcome: str
        proposal: str | None
        proposer: str
        technique: str | None
        pattern: str | None  # that it was about
        calls: int  # to a language model
        reason: str

        def apply(self, aggregate: "Evolution") -> None:
            """Count the round."""
            aggregate.rounds = self.round
            aggregate.left = max(0, aggregate.left - 1)

    class Steered(Aggregate.Event):
        """Somebody turned it on or off, or had it begin anew."""

        order: str

        def apply(self, aggregate: "Evolution") -> None:
            """Obey."""
            if self.order == "reset":
                aggregate.since = aggregate.rounds
            else:
                aggregate.on = self.order == "on"
            aggregate.left = 0

    line: str
    on: bool = field(default=True, init=False)
    rounds: int = field(default=0, init=False)  # that have ended
    since: int = field(default=0, init=False)  # rounds up to this one are history
    wanted: int = field(default=0, init=False)
    left: int = field(default=0, init=False)  # of those wanted
    asked: dict[str, Any] | None = field(default=None, init=False)

    @staticmethod
    def id_of(line: UUID) -> UUID:
        """Return the id of a line's evolution."""
        return uuid5(line, "evolution")

    @classmethod
    def open(cls, line: UUID) -> "Evolution":
        """Begin a line's evolution."""
        return cls._create(event_class=cls.Opened, id=cls.id_of(line), line=str(line))

    def proposal_id(self, number: int) -> UUID:
        """Return the id that a round's proposal has: a round has one, however often it is tried."""
        return uuid5(self.id, f"round {number}")

    def begin(
        self, rounds: int, *, proposer: Mapping[str, Any], technique: str | None = None
    ) -> None:
        """Ask for rounds; those that are left of the same request are gone on with instead."""
        if not self.on:
            raise InvariantError("the evolution of this line is turned off; turn it on first")
        if not 1 <= rounds <= MAX_ROUNDS:
            raise InvariantError(
                f"the number of rounds must be from 1 to {MAX_ROUNDS}, not {rounds}"
            )
        asked = {"proposer": dict(proposer), "technique": technique}
        if not (self.left and self.wanted == rounds and self.asked == asked):
            self.trigger_event(
                self.Begun, rounds=rounds, proposer=dict(proposer), technique=technique
            )

    def end_round(
        self,
        outcome: str,
        *,
        proposer: str,
        proposal: str | None = None,
        technique: str | None = None,
        pattern: str | None = None,
        calls: int = 0,
        reason: str = "",
    ) -> int:
        """Record what a round came to and return its number."""
        if outcome not in OUTCOMES:
            raise InvariantError(
                f"a round's outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r:.80}"
            )
        if (outcome == "proposed") != (proposal is not None):
            raise InvariantError(
                "a round's outcome must be `proposed` if it has a proposal, and only then"
            )
        if not (reason or proposal):
            raise InvariantError("a round without a proposal must give a reason")
        number = self.rounds + 1
        self.trigger_event(
            self.RoundEnded,
            round=number,
            outcome=outcome,
            proposal=proposal,
            proposer=proposer,
            technique=technique,
            pattern=pattern,
            calls=calls,
            reason=reason[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8"),
        )
        return number

    def steer(self, order: str) -> None:
        """Turn it on or off, or begin anew; nothing is deleted."""
        if order not in ORDERS:
            raise InvariantError(f"an order must be one of {', '.join(ORDERS)}, not {order!r:.80}")
        self.trigger_event(self.Steered, order=order)
