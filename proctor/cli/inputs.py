"""Reads the files that the command line names: texts and keys.

I/O: reads the files; the passphrase of private keys from the environment.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.entries import AuthorKey
from ledger.keys import load_key
from proctor.home import passphrase


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in a file, with the passphrase from the environment if it has one."""
    return load_key(path, passphrase=passphrase())


def operator_key(path: Path | None) -> AuthorKey | None:
    """Return the key of an operator who signs, None for the ledger's own key."""
    return None if path is None else AuthorKey("operator", read_private_key(path))
