"""Opening a ledger: the first time its key, database and vkey are made, then they must match.

Source: docs/reference/ledger-format.md, "Files".
Trust: the private key decides who may append; a ledger that is not its own is refused.
I/O: everything in the ledger's directory but blobs.
"""

import secrets
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.database import Database, create_database, explained
from ledger.errors import KeyFileError, StorageError
from ledger.keys import create_exclusively, load_key, load_or_create_key
from ledger.notes import public_bytes, sign_tree_head, vkey
from ledger.paths import LedgerPaths

__all__ = ["Signer", "open_ledger"]


@dataclass(frozen=True)
class Signer:
    """Signs a ledger's tree heads."""

    origin: str
    key: Ed25519PrivateKey

    def tree_head(self, *, size: int, root: bytes) -> str:
        """Return the signed note."""
        return sign_tree_head(origin=self.origin, size=size, root=root, key=self.key)


def open_ledger(paths: LedgerPaths, *, passphrase: bytes | None) -> tuple[Database, Signer | None]:
    """Open or begin the ledger in a directory; without its private key there is no signer.

    Raises StorageError or KeyFileError; then nothing is left open.
    """
    had_vkey = paths.vkey.exists()  # asked first: it comes into being last
    if not paths.database.exists():
        if had_vkey:
            raise StorageError(
                f"{paths.database}: the ledger is gone, though {paths.vkey.name} is there; restore "
                f"it from a copy, or remove {paths.vkey.name} to begin a new ledger"
            )
        _begin(paths, passphrase=passphrase)
    database = Database(paths.database)
    try:
        return database, _signer(paths, database, passphrase=passphrase)
    except BaseException:
        database.close()
        raise


def _begin(paths: LedgerPaths, *, passphrase: bytes | None) -> None:
    with explained(paths.directory):
        paths.directory.mkdir(parents=True, exist_ok=True)
    key = load_or_create_key(paths.key, passphrase=passphrase)
    origin = f"proctor.local/{secrets.token_hex(16)}"
    create_database(
        paths.database, meta={"origin": origin, "vkey": vkey(origin, public_bytes(key))}
    )


def _signer(paths: LedgerPaths, database: Database, *, passphrase: bytes | None) -> Signer | None:
    own_vkey = database.meta("vkey")
    with explained(paths.vkey):
        stated = paths.vkey.read_text(errors="replace") if paths.vkey.exists() else None
    if stated is not None and stated.strip() != own_vkey:
        raise KeyFileError(
            f"{paths.vkey}: this is not the key of {paths.database.name}; one of the two was "
            "exchanged, restore it from a copy"
        )
    if not paths.key.exists():
        return None
    signer = Signer(origin=database.meta("origin"), key=load_key(paths.key, passphrase=passphrase))
    if vkey(signer.origin, public_bytes(signer.key)) != own_vkey:
        raise KeyFileError(
            f"{paths.key}: this key is not the one that {paths.database.name} was begun with; "
            "put the right key there, or open the ledger elsewhere"
        )
    if stated is None:
        with explained(paths.vkey):
            create_exclusively(paths.vkey, f"{own_vkey}\n".encode(), mode=0o644)
    return signer
