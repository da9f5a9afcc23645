"""Where a ledger's files lie below its directory.

Source: docs/reference/ledger-format.md, "Files".
I/O: none.
"""

import os
from pathlib import Path

from ledger.errors import StorageError

MAX_VKEY = 10_000  # bytes of a file with a vkey, which has some 100


class LedgerPaths:
    """The files of the ledger in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = directory / "ledger.sqlite"  # entries and tree heads
        self.server = directory / "ledger.postgres"  # in its place: names the server that has them
        self.vkey = directory / "ledger.vkey"  # the public key, for whoever verifies
        self.key = directory / "keys" / "ledger.pem"  # the private key
        self.next_key = directory / "keys" / "ledger.next.pem"  # a rotation puts it in its place
        self.blobs = directory / "blobs"  # what is too large for an entry, by SHA-256

    @property
    def exist(self) -> bool:
        """Whether a ledger is here."""
        return self.database.exists() or self.server.exists()


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
