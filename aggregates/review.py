"""A person's review of one decision, signed by an operator's key where it is saved.

I/O: none.
"""

from dataclasses import KW_ONLY
from typing import Annotated

from eventsourcing.domain import Aggregate

from aggregates.events import First, OneOf, begins

MARKS = ("bad", "gold")


class Review(Aggregate):
    """One look at one decision; who looks again writes another review."""

    class Reviewed(First):
        """Which decision it was, by index and hash of its entry, and what is to be said of it."""

        NAME = "decision.reviewed"
        _: KW_ONLY
        index: int
        entry_hash: str
        run: str
        mark: Annotated[str, OneOf("a mark", MARKS)]
        note: str

    of = begins(Reviewed)
