"""A person's review of one decision, signed by an operator's key where it is saved.

I/O: none.
"""

from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

MARKS = ("bad", "gold")


class Review(Aggregate):
    """One look at one decision; who looks again writes another review."""

    class Reviewed(Aggregate.Created):
        """Which decision it was, by index and hash of its entry, and what is to be said of it."""

        index: int
        entry_hash: str
        run: str
        mark: str
        note: str

    def __init__(self, index: int, entry_hash: str, run: str, mark: str, note: str) -> None:
        self.index = index
        self.entry_hash = entry_hash
        self.run = run
        self.mark = mark
        self.note = note

    @classmethod
    def of(
        cls,
        *,
        index: int,
        entry_hash: str,
        run: str,
        mark: str,
        note: str,
        review_id: UUID | None = None,
    ) -> "Review":
        """Review the decision in this entry; raise InvariantError for a mark that is none."""
        if mark not in MARKS:
            raise InvariantError(f"a mark must be {' or '.join(MARKS)}, not {mark!r}")
        return cls._create(
            event_class=cls.Reviewed,
            id=review_id or uuid4(),
            index=index,
            entry_hash=entry_hash,
            run=run,
            mark=mark,
            note=note,
        )
