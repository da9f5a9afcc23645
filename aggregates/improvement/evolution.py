"""The evolution of a line: rounds that search for an improvement.

One stream for each line. A round names its proposal, or the reason why it has none. The record of
each technique is not stored here: it follows from the proposals.

Trust: reasons hold others' words and are cut.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from typing import Annotated, Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Cut, Event, First, OneOf, begins, counted, record, records

OUTCOMES = (
    "proposed",  # a proposal is on record
    "nothing",  # there is nothing to act on, or nothing to be said about it
    "unusable",  # what was answered is no change
    "unanswered",  # nobody answered
    "refused",  # what was answered is a change that cannot be handed in
)
ORDERS = ("on", "off", "reset")  # reset: what was tried before is history
MODE = "gauntlet_evolution"  # of the transcripts of its rounds
MAX_ROUNDS = 100_000  # asked for at a time
MAX_TEXT = 2_000  # characters of a reason


class Evolution(Aggregate):
    """What has been tried on one line, round by round, rebuilt from its events."""

    class Opened(First):
        """The line of an evolution."""

        line: str

        def stream(self) -> UUID:
            return Evolution.id_of(UUID(self.line))

    class Begun(Event):
        """An order to run rounds, with this proposer."""

        rounds: int  # number of rounds to run
        _: KW_ONLY
        proposer: Mapping[str, Any]  # the proposer with its settings, without secrets
        technique: str | None = None  # the requested technique; null: chosen from earlier results

        def check(self, evolution: "Evolution") -> None:
            if not evolution.on:
                raise InvariantError("the evolution of this line is turned off; turn it on first")
            if not 1 <= self.rounds <= MAX_ROUNDS:
                raise InvariantError(
                    f"the number of rounds must be from 1 to {MAX_ROUNDS}, not {self.rounds}"
                )

        def apply(self, evolution: "Evolution") -> None:
            evolution.asked = {"proposer": self.proposer, "technique": self.technique}
            evolution.wanted = evolution.left = self.rounds
            evolution.begun = evolution.rounds

    class RoundEnded(Event):
        """A round that searched for an improvement, and its outcome."""

        _: KW_ONLY
        round: int = counted(after="rounds")
        outcome: Annotated[str, OneOf("a round's outcome", OUTCOMES)] = field(kw_only=False)
        proposal: str | None = None  # the proposal, else null
        proposer: str  # who looked
        technique: str | None = None  # how; null: it did not come to that
        pattern: str | None = None  # the error pattern, else null
        calls: int = 0  # number of calls to a language model
        reason: Annotated[str, Cut(MAX_TEXT)] = ""  # why there is no proposal, or a remark

        def check(self, _: "Evolution") -> None:
            if (self.outcome == "proposed") != (self.proposal is not None):
                raise InvariantError(
                    "a round's outcome must be `proposed` if it has a proposal, and only then"
                )
            if not (self.reason or self.proposal):
                raise InvariantError("a round without a proposal must give a reason")

        def apply(self, evolution: "Evolution") -> None:
            evolution.rounds = self.round
            evolution.left = max(0, evolution.left - 1)

    class Steered(Event):
        """An order to turn the evolution on or off, or to begin anew; nothing is deleted."""

        order: Annotated[str, OneOf("an order", ORDERS)]

        def apply(self, evolution: "Evolution") -> None:
            if self.order == "reset":
                evolution.since = evolution.rounds
            else:
                evolution.on = self.order == "on"
            evolution.left = 0

    line: str
    on: bool = True
    rounds: int = 0  # that have ended
    since: int = 0  # rounds up to this one are history
    wanted: int = 0
    left: int = 0  # of those wanted
    begun: int = 0  # rounds up to this one had ended when they were asked for
    asked: dict[str, Any] | None = None

    open = begins(Opened)
    end_round = records(RoundEnded, lambda told: told)
    steer = records(Steered)

    @staticmethod
    def id_of(line: UUID) -> UUID:
        """Return the id of a line's evolution."""
        return uuid5(line, "evolution")

    @staticmethod
    def round_id(line: UUID, number: int) -> UUID:
        """Return the id of a round's proposal, which its calls name also where there is none."""
        return uuid5(Evolution.id_of(line), f"round {number}")

    def proposal_id(self, number: int) -> UUID:
        """Return the id that a round's proposal has: a round has one, however often it is tried."""
        return self.round_id(UUID(self.line), number)

    def begin(
        self, rounds: int, *, proposer: Mapping[str, Any], technique: str | None = None
    ) -> None:
        """Ask for rounds; those that are left of the same request are gone on with instead."""
        asked = {"proposer": dict(proposer), "technique": technique}
        if not (self.left and self.wanted == rounds and self.asked == asked):
            record(self, Evolution.Begun, rounds, proposer=proposer, technique=technique)
