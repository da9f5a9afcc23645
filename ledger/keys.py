"""Private keys on disk: made once, readable by their owner only.

Source: docs/reference/ledger-format.md, "Files"; RFC 5958 (PKCS#8).
I/O: the key file and its folder.
Not covered: which key is in force (authority.py), and keys in hardware.
"""

import os
import secrets
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ledger.errors import KeyFileError

__all__ = [
    "create_exclusively",
    "load_key",
    "load_or_create_key",
    "publish_exclusively",
    "replace_durably",
    "sync_folder",
]


def load_or_create_key(path: Path, *, passphrase: bytes | None) -> Ed25519PrivateKey:
    """Return the key in this file, made first if there is none.

    Of several processes that get here at once, one makes the key and all use it.
    """
    if not path.exists():
        encryption: KeySerializationEncryption = NoEncryption()
        if passphrase is not None:
            if not passphrase:
                raise KeyFileError(f"{path}: the passphrase is empty; give one, or none at all")
            encryption = BestAvailableEncryption(passphrase)
        pem = Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, encryption
        )
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_exclusively(path, pem, mode=0o600)
        except OSError as e:
            raise KeyFileError(f"{path}: the key cannot be written: {e.strerror}") from e
    return load_key(path, passphrase=passphrase)


def load_key(path: Path, *, passphrase: bytes | None) -> Ed25519PrivateKey:
    """Return the key in this file; raise KeyFileError if it is not safe or not usable."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            pem = file.read()
    except OSError as e:
        raise KeyFileError(f"{path}: the key cannot be read: {e.strerror}") from e
    if mode & 0o077:
        raise KeyFileError(
            f"{path}: mode {mode:04o} lets others at the private key; run chmod 600 on it, "
            "and consider who may have read it"
        )
    try:
        key = load_pem_private_key(pem, password=passphrase)
    except TypeError as e:
        advice = "needs a passphrase" if passphrase is None else "is not encrypted; give none"
        raise KeyFileError(f"{path}: the key {advice}") from e
    except (ValueError, UnsupportedAlgorithm) as e:
        what = (
            "not a PKCS#8 PEM key" if passphrase is None else "no key, or the passphrase is wrong"
        )
        raise KeyFileError(f"{path}: {what}") from e
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: the key is not an Ed25519 key")
    return key


def create_exclusively(path: Path, content: bytes, *, mode: int) -> bool:
    """Let a file appear whole under its name, or leave the one that is there; tell which."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        return publish_exclusively(new, path)
    finally:
        new.unlink(missing_ok=True)


def publish_exclusively(new: Path, path: Path) -> bool:
    """Give a finished file its name unless the name is taken; tell whether it was free."""
    try:
        os.link(new, path)  # unlike rename, fails where the name exists
    except FileExistsError:
        return False
    sync_folder(path.parent)
    return True


def replace_durably(new: Path, path: Path) -> None:
    """Give a finished file the name of another, which is gone then."""
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Let the names in a folder outlast a loss of power."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
