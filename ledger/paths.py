"""Where a ledger's files lie below its directory.

Source: docs/reference/ledger-format.md, "Files".
I/O: whether files are there.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from ledger.errors import StorageError

# The kinds of servers that may have a ledger: the name of the file that says where, which is also
# the value of PERSISTENCE_MODULE, and a module, which may need an extra. See server_at().
SERVERS = {"ledger.postgres": "ledger.verification.postgres"}

MAX_VKEY = 10_000  # bytes of a file with a vkey, which has some 100


class LedgerPaths:
    """The files of the ledger in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = directory / "ledger.sqlite"  # entries and tree heads
        self.servers = [directory / name for name in SERVERS]  # one in its place, on a server
        self.vkey = directory / "ledger.vkey"  # the public key, for whoever verifies
        self.key = directory / "keys" / "ledger.pem"  # the private key
        self.next_key = directory / "keys" / "ledger.next.pem"  # a rotation puts it in its place
        self.blobs = directory / "blobs"  # what is too large for an entry, by SHA-256

    @property
    def server(self) -> Path:
        """The file that names the server; where no server has the ledger, it is not there."""
        return next(filter(os.path.lexists, self.servers), self.servers[0])

    @property
    def exist(self) -> bool:
        """Whether a ledger is here."""
        return self.database.exists() or self.server.exists()


def is_served(paths: LedgerPaths) -> bool:
    """Tell whether the ledger is on a server; raise StorageError if there are two ledgers."""
    found = [*filter(os.path.lexists, (paths.database, *paths.servers))]
    if len(found) > 1:
        raise StorageError(
            f"{paths.directory}: there is a ledger in {found[0].name}, and {found[1].name} names "
            "another; move one of the two files away"
        )
    return bool(found) and found != [paths.database]


def server_at(file: Path) -> Any:
    """Return the module for the kind of server that this file of SERVERS names.

    It has settings(env); connect(file, given=settings), a Store with begun(), create(meta=...) and
    its settings, which keep(file); snapshot(file); place(file), a name; rights(file); PAGE, for
    people.
    """
    return import_module(SERVERS[file.name])
