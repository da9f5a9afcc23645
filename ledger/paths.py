"""Where a ledger's files lie below its directory.

Source: docs/reference/ledger-format.md, "Files".
I/O: none.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import StorageError

MAX_VKEY = 10_000  # bytes of a file with a vkey, which has some 100


@dataclass(frozen=True)
class LedgerPaths:
    """The files of the ledger in one directory."""

    directory: Path

    @property
    def database(self) -> Path:
        """Entries and tree heads."""
        return self.directory / "ledger.sqlite"

    @property
    def server(self) -> Path:
        """In place of the database: where the server is that has entries and tree heads."""
        return self.directory / "ledger.postgres"

    @property
    def exist(self) -> bool:
        """Whether a ledger is here."""
        return self.database.exists() or self.server.exists()

    @property
    def vkey(self) -> Path:
        """The public key, for whoever verifies."""
        return self.directory / "ledger.vkey"

    @property
    def key(self) -> Path:
        """The private key."""
        return self.directory / "keys" / "ledger.pem"

    @property
    def next_key(self) -> Path:
        """The private key that a rotation is about to put into the other's place."""
        return self.directory / "keys" / "ledger.next.pem"

    @property
    def blobs(self) -> Path:
        """What is too large for an entry, by SHA-256."""
        return self.directory / "blobs"


def is_served(paths: LedgerPaths) -> bool:
    """Tell whether the ledger is on a server; raise StorageError if there are two ledgers."""
    if not os.path.lexists(paths.server):
        return False
    if os.path.lexists(paths.database):
        raise StorageError(
            f"{paths.directory}: there is a ledger in {paths.database.name}, and "
            f"{paths.server.name} names another; move one of the two files away"
        )
    return True
