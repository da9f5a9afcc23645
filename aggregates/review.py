"""A person's review of one decision, signed by an operator's key where it is saved.

I/O: none.
"""

from dataclasses import KW_ONLY
from typing import Annotated

from eventsourcing.domain import Aggregate

from aggregates.events import First, Long, OneOf, begins

MARKS = ("bad", "gold")


class Review(Aggregate):
    """One look at one decision; who looks again writes another review."""

    class Reviewed(First):
        """What an operator says of a decision.

        It counts if an operator's key in force signed it (`proctor data review`).
        """

        NAME = "decision.reviewed"
        _: KW_ONLY
        index: Long  # ledger index of the decision
        entry_hash: str  # hash of that entry, hexadecimal
        run: str  # the run of the decision
        mark: Annotated[str, OneOf("a mark", MARKS)]
        note: str

    of = begins(Reviewed)
