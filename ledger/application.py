"""Event-sourced applications over a ledger, or over plain memory.

Source: eventsourcing 9.5, application.py.
I/O: the ledger's directory, its server, or a notary's socket; none in memory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.persistence import Mapper
from eventsourcing.utils import Environment, EnvType

from ledger.mapper import EventRegistry, LedgerMapper
from ledger.notary.remote import RemoteFactory
from ledger.paths import LedgerPaths, is_served
from ledger.sqlite import LedgerFactory

__all__ = ["LedgerApplication"]

_Kind = TypeVar("_Kind")


class LedgerApplication(Application[UUID]):
    """The library's application, with a closed registry and settings from its caller only."""

    def __init__(self, registry: EventRegistry, *, env: EnvType) -> None:
        self.registry = registry
        super().__init__(env)

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

        With the POSTGRES_ settings of a `server`, a new ledger has its entries there. Without its
        private key the ledger is read-only. Raises StorageError or KeyFileError.
        """
        served = server is not None or is_served(LedgerPaths(directory))
        env = {
            "PERSISTENCE_MODULE": "ledger.postgres" if served else "ledger.sqlite",
            LedgerFactory.LEDGER_DIRECTORY: str(directory),
        }
        settings = server or {}
        env |= {name: settings[name] for name in settings if name.startswith("POSTGRES_")}
        if passphrase is not None:
            env[LedgerFactory.LEDGER_KEY_PASSPHRASE] = passphrase.decode(errors="surrogateescape")
        return cls(registry, env=env)

    @classmethod
    def connect(cls, socket: Path, registry: EventRegistry) -> Self:
        """Write and read through the notary that listens at a socket.

        Raises StorageError if there is none, ForbiddenError if it does not know this user.
        """
        env = {
            "PERSISTENCE_MODULE": "ledger.notary.remote",
            RemoteFactory.LEDGER_SOCKET: str(socket),
        }
        return cls(registry, env=env)

    @classmethod
    def in_memory(cls, registry: EventRegistry) -> Self:
        """Run without files and signatures; events are encoded and decoded all the same."""
        return cls(registry, env={"PERSISTENCE_MODULE": "eventsourcing.popo"})

    def find(self, stream: UUID, kind: type[_Kind]) -> _Kind | None:  # noqa: ARG002 - of what is found
        """Return an aggregate; None where there is none yet."""
        try:
            found: _Kind = self.repository.get(stream)
        except AggregateNotFoundError:
            return None
        return found

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

    def construct_mapper(self) -> Mapper[Any]:
        """Construct the mapper over the registry."""
        return LedgerMapper(self.registry)
