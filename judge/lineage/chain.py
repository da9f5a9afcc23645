"""The entries of a lineage, each taken by a link to one that was taken before.

Trust: the pool's entries are the ledger's; which of them are in it, and what they say, is hostile.
I/O: none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from judge.errors import LineageError
from ledger.mapper import readable_body
from ledger.verification.verified_entries import VerifiedEntry

Body = dict[str, Any]
Found = tuple[VerifiedEntry, Body]
"""An entry, and what its body says."""


@dataclass(frozen=True)
class LineageStep:
    """One entry of a lineage, and what it says in it."""

    entry: VerifiedEntry
    says: str


class Chain:
    """A pool of entries, and the steps that were taken out of it."""

    def __init__(self, entries: Iterable[VerifiedEntry]) -> None:
        self._pool: dict[str, list[VerifiedEntry]] = {}
        for entry in entries:
            self._pool.setdefault(entry.name, []).append(entry)
        self.steps: dict[int, LineageStep] = {}  # by the entry's index

    def take(self, entry: VerifiedEntry, says: str) -> None:
        """Make an entry a step, once."""
        self.steps.setdefault(entry.index, LineageStep(entry, says))

    def stream(self, stream: UUID) -> list[VerifiedEntry]:
        """Return the entries of a stream, in the order of the ledger."""
        found = [each for pool in self._pool.values() for each in pool if each.stream_id == stream]
        return sorted(found, key=lambda entry: entry.index)

    def rest(self) -> list[int]:
        """Return where the entries lie that were not taken."""
        pooled = {entry.index for found in self._pool.values() for entry in found}
        return sorted(pooled - set(self.steps))

    def last(self, name: str, *, created: bool = False, **wanted: Any) -> Found:
        """Return the last of all(), which with `created` has to begin its stream."""
        found = self.all(name, **wanted)
        if not found:
            told = ", ".join(f"{key} {value}" for key, value in wanted.items())
            raise LineageError(f"a link is missing: no {name} with {told} found")
        if created:
            verify_created(found[-1][0])
        return found[-1]

    def all(
        self,
        name: str,
        *,
        stream: UUID | None = None,
        before: int | None = None,
        after: int = -1,
        **fields: Any,
    ) -> list[Found]:
        """Return the entries of this name whose bodies say that, in the order of the ledger."""
        found = []
        for entry in self._pool.get(name, ()):
            place = after < entry.index and (before is None or entry.index < before)
            if not place or stream not in (None, entry.stream_id):
                continue
            body = readable_body(entry.body)
            if body is not None and all(
                type(body.get(key)) is type(value) and body[key] == value
                for key, value in fields.items()
            ):
                found.append((entry, body))
        return found


def verify_created(entry: VerifiedEntry) -> None:
    """Raise LineageError unless an entry begins its stream."""
    if entry.stream_version != 1:
        raise LineageError(f"{entry.name} is not the first event of its stream", index=entry.index)


def natural(value: Any, entry: VerifiedEntry) -> int:
    """Return a whole number from 0, or raise LineageError."""
    if type(value) is not int or value < 0:
        raise LineageError(f"{entry.name} has a count that is no number", index=entry.index)
    return value
