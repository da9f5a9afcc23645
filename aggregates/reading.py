"""Aggregates as their events make them, where these can be read.

Trust: events are as recorded; whoever has the ledger's key may have written anything.
I/O: reads the ledger.
"""

from typing import Any, TypeVar
from uuid import UUID

__all__ = ["readable_aggregate"]

Kind = TypeVar("Kind")


def readable_aggregate(log: Any, stream: UUID, kind: type[Kind]) -> Kind | None:
    """Return an aggregate, or None where its events are not those of one: no reader waits for it.

    `log` is the application whose repository has it.
    """
    try:
        found: object = log.repository.get(stream)
    except Exception:  # the events' own methods raise, on fields of any type
        return None
    return found if isinstance(found, kind) else None
