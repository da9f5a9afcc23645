"""Counts the entries that a reader set aside as unreadable, and warns about them once.

I/O: standard error.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.verified_entries import VerifiedEntry
from proctor.remembering import warn_unreadable


@dataclass
class SetAside:
    """The indexes of the entries that were set aside."""

    indexes: list[int] = field(default_factory=list)

    def add(self, entry: VerifiedEntry) -> None:
        """Set an entry aside."""
        self.indexes.append(entry.index)

    def add_unreadable(self, entries: Iterable[VerifiedEntry]) -> None:
        """Set aside those of the entries whose name is unknown or whose body is malformed."""
        from aggregates.registry import REGISTRY  # noqa: PLC0415 - loads all aggregates

        for entry in entries:
            if entry.name not in AUTHORITY_EVENTS and not REGISTRY.readable(entry.name, entry.body):
                self.add(entry)

    def tell(self) -> None:
        """Say how many there are and which is the first; nothing where there are none."""
        if self.indexes:
            warn_unreadable(len(self.indexes), min(self.indexes))
