"""Event-sourced applications over a ledger, or over plain memory.

Source: eventsourcing 9.5, application.py.
I/O: the ledger's directory, its server, or a notary's socket; none in memory.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.persistence import (
    ApplicationRecorder,
    InfrastructureFactory,
    Mapper,
    Notification,
)
from eventsourcing.popo import POPOFactory
from eventsourcing.utils import Environment, EnvType

from ledger.mapper import EventRegistry, LedgerMapper
from ledger.notary.client import NotaryClient
from ledger.notary.remote import RemoteRecorder
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.recording.recorders import EntryRecorder

_Kind = TypeVar("_Kind")


class LedgerApplication(Application[UUID]):
    """The library's application, with a closed registry and settings from its caller only."""

    def __init__(self, registry: EventRegistry, recorder: EntryRecorder | None = None) -> None:
        """Use a ledger's recorder; without one the library's, in memory."""
        self.registry = registry
        self._of_ledger = recorder
        super().__init__()

    @classmethod
    def open(
        cls,
        directory: Path,
        registry: EventRegistry,
        *,
        passphrase: bytes | None = None,
        server: Mapping[str, str] | None = None,
    ) -> Self:
        """Open the ledger in a directory, beginning it if there is none.

        With the settings of a `server`, such as POSTGRES_DBNAME, a new ledger has its entries
        there. Without its private key the ledger is read-only. Raises StorageError or KeyFileError.
        """
        store, signer = open_ledger(LedgerPaths(directory), passphrase=passphrase, server=server)
        return cls(registry, SignedRecorder(store, signer=signer))

    @classmethod
    def connect(cls, socket: Path, registry: EventRegistry) -> Self:
        """Write and read through the notary that listens at a socket.

        Raises StorageError if there is none, ForbiddenError if it does not know this user.
        """
        return cls(registry, RemoteRecorder(NotaryClient(socket)))

    @classmethod
    def in_memory(cls, registry: EventRegistry) -> Self:
        """Run without files and signatures; events are encoded and decoded all the same."""
        return cls(registry)

    def find(self, stream: UUID, kind: type[_Kind]) -> _Kind | None:  # noqa: ARG002 - of what is found
        """Return an aggregate; None where there is none yet."""
        try:
            found: _Kind = self.repository.get(stream)
        except AggregateNotFoundError:
            return None
        return found

    def notifications(self, *names: str, start: int = 1) -> Iterator[Notification]:
        """Yield the events of these names from a notification on, a page in each transaction."""
        while page := self.recorder.select_notifications(start, 1_000, topics=names):
            yield from page
            start = page[-1].id + 1

    def readable(self, stream: UUID, kind: type[_Kind]) -> _Kind | None:
        """Return an aggregate, or None where its events are not those of one of this kind.

        Whoever has the ledger's key may have written anything: no reader ends on it.
        """
        try:
            found: object = self.repository.get(stream)
        except Exception:  # methods of the events raise, on fields of any type
            return None
        return found if isinstance(found, kind) else None

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        """Leave the process's environment out: it could add a cipher or exchange the mapper."""
        return Environment(name, {**type(self).env, **(env or {})})

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        """Let the library keep nothing anywhere: what is kept is the recorder's."""
        return POPOFactory(env)

    def construct_mapper(self) -> Mapper[Any]:
        """Construct the mapper over the registry."""
        return LedgerMapper(self.registry)

    def construct_recorder(self) -> ApplicationRecorder:
        """Take the recorder that this application was made with."""
        return super().construct_recorder() if self._of_ledger is None else self._of_ledger

    def close(self) -> None:
        """Close what the recorder has open."""
        super().close()
        if self._of_ledger is not None:
            self._of_ledger.close()
