"""A persistence module of the eventsourcing library: a ledger in an SQLite file.

Chosen with PERSISTENCE_MODULE=ledger.sqlite. The library takes the one factory class
that it finds here, so nothing else that is a factory may be imported by name.

Source: eventsourcing 9.5, persistence.py.
I/O: the ledger's directory.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from eventsourcing.utils import Environment, EnvType

from ledger.errors import StorageError
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording import recorders
from ledger.recording.opening import open_ledger

if TYPE_CHECKING:
    from ledger.postgres_store import ServerSettings

__all__ = ["LedgerFactory"]


class LedgerFactory(recorders.EventsOnlyFactory):
    """Builds the recorder for the directory named by LEDGER_DIRECTORY.

    LEDGER_KEY_PASSPHRASE, if set, is the private key's passphrase.
    """

    LEDGER_DIRECTORY = "LEDGER_DIRECTORY"
    LEDGER_KEY_PASSPHRASE = "LEDGER_KEY_PASSPHRASE"  # noqa: S105  (the setting's name)

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        directory = self.env.get(self.LEDGER_DIRECTORY)
        if not directory:
            raise StorageError(f"set {self.LEDGER_DIRECTORY} to the ledger's directory")
        passphrase = self.env.get(self.LEDGER_KEY_PASSPHRASE)
        paths = LedgerPaths(Path(directory))
        self._store, self._signer = open_ledger(
            paths,
            passphrase=None if passphrase is None else passphrase.encode(errors="surrogateescape"),
            server=self._server(paths),
        )

    def _server(self, _: LedgerPaths) -> "ServerSettings | None":
        """Return where a new ledger is to be, if not in the directory."""
        return None

    def application_recorder(self) -> SignedRecorder:
        """Construct the recorder."""
        return SignedRecorder(self._store, signer=self._signer)

    def close(self) -> None:
        """Close the database."""
        self._store.close()
