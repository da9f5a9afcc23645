"""What the factories of the two persistence modules refuse alike.

Source: eventsourcing 9.5, persistence.py.
I/O: none.
"""

from typing import NoReturn

from eventsourcing import persistence

from ledger.errors import UnsupportedError

__all__ = ["EventsOnlyFactory"]


class EventsOnlyFactory(persistence.InfrastructureFactory[persistence.TrackingRecorder]):
    """Builds recorders of events and nothing else. Import this module, not the class by name."""

    def aggregate_recorder(self, purpose: str = "events") -> NoReturn:
        """Not offered: snapshots would be trusted on reading without being in the ledger."""
        raise UnsupportedError(f"a ledger does not store {purpose} beside its entries")

    def tracking_recorder(
        self,
        tracking_recorder_class: type | None = None,  # noqa: ARG002  (the interface's)
    ) -> NoReturn:
        """Not offered: positions of projections belong to the projections."""
        raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")

    def process_recorder(self) -> NoReturn:
        """Not offered: positions of projections belong to the projections."""
        raise UnsupportedError("a ledger does not record tracking; keep positions elsewhere")
