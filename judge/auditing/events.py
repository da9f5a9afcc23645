"""The domain events of a stream, read from verified entries.

Apart from judge/auditing/replay.py, because telling a run needs no torch.

Trust: bodies are hostile, whoever signed them; an event that could be read may still be wrong.
I/O: none.
"""

from collections.abc import Sequence
from typing import Any

from eventsourcing.persistence import StoredEvent

from aggregates.registry import REGISTRY
from judge.errors import StepError
from ledger.errors import LedgerError
from ledger.mapper import LedgerMapper
from ledger.verification.verified_entries import VerifiedEntry

__all__ = ["HOSTILE", "decode_events", "recorded_fields"]

_LIBRARY_FIELDS = frozenset(
    {"originator_id", "originator_topic", "originator_version", "timestamp"}
)

# What reading a hostile body may raise.
HOSTILE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


def decode_events(entries: Sequence[VerifiedEntry]) -> list[Any]:
    """Return the domain events of a stream; raises StepError naming the entry."""
    mapper = LedgerMapper(REGISTRY)
    events = []
    for entry in entries:
        stored = StoredEvent(
            originator_id=entry.stream_id,
            originator_version=entry.stream_version,
            topic=entry.name,
            state=entry.body,
        )
        try:
            events.append(mapper.to_domain_event(stored))
        except (LedgerError, *HOSTILE) as error:
            raise StepError(
                f"entry {entry.index} ({entry.name}) cannot be read: {error}", index=entry.index
            ) from error
    return events


def recorded_fields(event: Any) -> dict[str, Any]:
    """Return what an event says, without the fields that the library adds."""
    return {key: value for key, value in vars(event).items() if key not in _LIBRARY_FIELDS}
