"""Private keys on disk: made once, readable by their owner only.

Source: docs/reference/ledger-format.md, "Files"; RFC 5958 (PKCS#8).
I/O: the key file and its folder.
Not covered: which key is in force (authority.py), and keys in hardware.
"""

import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ledger.errors import KeyFileError, PassphraseError
from ledger.files import create_exclusively, open_regular
from ledger.schemes import PrivateKey, schemes_of

_MAX_KEY = 10_000  # bytes; a PEM file has some 300


def load_or_create_key(path: Path, *, role: str = "ledger", passphrase: bytes | None) -> PrivateKey:
    """Return the role's key in this file, made first if there is none.

    Of several processes that get here at once, one makes the key and all use it.
    """
    try:
        there = path.exists()
    except OSError as e:
        raise KeyFileError(f"{path}: the key cannot be read: {e.strerror}") from e
    if not there:
        _create(path, schemes_of(role)[0].algorithm.generate(), passphrase=passphrase)
    return load_key(path, role=role, passphrase=passphrase)


def load_key(path: Path, *, role: str = "ledger", passphrase: bytes | None) -> PrivateKey:
    """Return the key in this file; raise KeyFileError if it is not safe, or not for this role."""
    key, algorithms = _load(path, passphrase=passphrase), [s.algorithm for s in schemes_of(role)]
    if not any(algorithm.owns(key) for algorithm in algorithms):
        wanted = " or ".join(algorithm.name for algorithm in algorithms)
        raise KeyFileError(f"{path}: the key is not {wanted} key")
    return key


def _create(path: Path, key: PrivateKey, *, passphrase: bytes | None) -> None:
    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase is not None:
        if not passphrase:
            raise KeyFileError(f"{path}: the passphrase is empty; give one, or none at all")
        encryption = BestAvailableEncryption(passphrase)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_exclusively(path, pem, mode=0o600)
    except OSError as e:
        raise KeyFileError(f"{path}: the key cannot be written: {e.strerror}") from e


def _load(path: Path, *, passphrase: bytes | None) -> PrivateKey:
    try:
        with open_regular(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            pem = file.read(_MAX_KEY)
    except OSError as e:
        raise KeyFileError(f"{path}: the key cannot be read: {e.strerror}") from e
    if b"PRIVATE KEY" not in pem:
        what = "a public key; give the private key" if b"PUBLIC KEY" in pem else "not a PEM key"
        raise KeyFileError(f"{path}: this is {what}")
    if mode & 0o077:
        raise KeyFileError(
            f"{path}: mode {mode:04o} lets other users access the private key; run chmod 600 on "
            "it, and check who may have read it"
        )
    encrypted = b"ENCRYPTED" in pem
    if encrypted and passphrase is None:
        raise PassphraseError(f"{path}: the key needs a passphrase")
    try:
        # One passphrase may be given for several keys, of which not all are encrypted.
        return load_pem_private_key(pem, password=passphrase if encrypted else None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as e:
        if encrypted:
            raise PassphraseError(f"{path}: the passphrase is wrong, or the file damaged") from e
        raise KeyFileError(f"{path}: this is not a private key in PKCS#8 PEM") from e
