"""Private keys on disk: made once, readable by their owner only.

Source: docs/reference/ledger-format.md, "Files"; RFC 5958 (PKCS#8).
I/O: the key file and its folder.
Not covered: which key is in force (authority.py), and keys in hardware.
"""

import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
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

_MAX_KEY = 10_000  # bytes; a PEM file has some 300


def load_or_create_key(path: Path, *, passphrase: bytes | None) -> Ed25519PrivateKey:
    """Return the key in this file, made first if there is none.

    Of several processes that get here at once, one makes the key and all use it.
    """
    try:
        there = path.exists()
    except OSError as e:
        raise KeyFileError(f"{path}: the key cannot be read: {e.strerror}") from e
    if not there:
        _create(path, Ed25519PrivateKey.generate(), passphrase=passphrase)
    return load_key(path, passphrase=passphrase)


def create_publisher_key(path: Path, *, passphrase: bytes | None) -> EllipticCurvePrivateKey:
    """Make a key of P-256, which signs files that are handed over; one that is there stays."""
    _create(path, generate_private_key(SECP256R1()), passphrase=passphrase)
    return load_publisher_key(path, passphrase=passphrase)


def load_key(path: Path, *, passphrase: bytes | None) -> Ed25519PrivateKey:
    """Return the key in this file; raise KeyFileError if it is not safe or not usable."""
    match _load(path, passphrase=passphrase):
        case Ed25519PrivateKey() as key:
            return key
    raise KeyFileError(f"{path}: the key is not an Ed25519 key")


def load_publisher_key(path: Path, *, passphrase: bytes | None) -> EllipticCurvePrivateKey:
    """Do what load_key() does, for a key of P-256."""
    key = _load(path, passphrase=passphrase)
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise KeyFileError(f"{path}: the key is not a P-256 key")
    return key


def _create(
    path: Path, key: Ed25519PrivateKey | EllipticCurvePrivateKey, *, passphrase: bytes | None
) -> None:
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


def _load(path: Path, *, passphrase: bytes | None) -> PrivateKeyTypes:
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
