"""The domain events of a stream, read from verified entries.

Apart from judge/auditing/replay.py, because telling a run needs no torch.

Trust: bodies are hostile, whoever signed them; an event that could be read may still be wrong.
I/O: none.
"""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from aggregates.registry import REGISTRY
from judge.errors import StepError
from ledger.errors import LedgerError
from ledger.mapper import LedgerMapper
from ledger.verification.verified_entries import VerifiedEntry

# What reading a hostile body may raise.
HOSTILE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class StreamEvents(Sequence[Any]):
    """The domain events of a stream, each decoded when it is asked for.

    A decoded event takes some thirty times the memory of its entry, so a reader that needs one
    after another never holds all of them. Reading one raises StepError naming the entry.
    """

    def __init__(
        self, entries: Sequence[VerifiedEntry], *, fields: frozenset[str] | None = None
    ) -> None:
        """Events that have none of these `fields` come without any, and their bodies unread."""
        self._entries = entries
        self._mapper = LedgerMapper(REGISTRY)
        self._fields = fields

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return map(self._decode, self._entries)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> "StreamEvents": ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return an event, or a part of the stream."""
        if isinstance(index, slice):
            return StreamEvents(self._entries[index], fields=self._fields)
        return self._decode(self._entries[index])

    def _decode(self, entry: VerifiedEntry) -> Any:
        try:
            event_type = REGISTRY.for_name(entry.name)
            if self._fields is not None and self._fields.isdisjoint(event_type.names or ()):
                return object.__new__(event_type.event_class)
            return self._mapper.event_of(
                entry.name,
                entry.body,
                originator_id=entry.stream_id,
                originator_version=entry.stream_version,
            )
        except (LedgerError, *HOSTILE) as error:
            raise StepError(
                f"entry {entry.index} ({entry.name}) cannot be read: {error}", index=entry.index
            ) from error


def decode_events(entries: Sequence[VerifiedEntry]) -> list[Any]:
    """Return all domain events of a stream at once; raises StepError naming the entry."""
    return list(StreamEvents(entries))
