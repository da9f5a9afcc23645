"""Where a ledger's files lie below its directory.

Source: docs/reference/ledger-format.md, "Files".
I/O: none.
"""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["MAX_VKEY", "LedgerPaths"]

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
