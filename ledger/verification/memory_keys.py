"""A key that lies with what a verifier remembers, and authenticates it.

Trust: who can read the key can forge what is remembered: it lies in the verifier's own folder,
read and written by that user only. It shows that another user or program has edited a file.
I/O: the file `key` in the folder.
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from ledger.database import explained
from ledger.errors import MemoryFileError
from ledger.files import create_exclusively, open_regular

_SIZE = 32  # bytes


def memory_key(folder: Path) -> bytes:
    """Return the key in a folder, made first if there is none; raises MemoryFileError."""
    path = folder / "key"
    with explained(path):
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_exclusively(path, secrets.token_bytes(_SIZE), mode=0o600)
        check_own(folder)
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            key = file.read(_SIZE + 1)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or len(key) != _SIZE:
        raise MemoryFileError(
            f"{path}: the key of what is remembered is damaged, another user's, or other users can "
            "read it; remove the folder to trust the ledgers as they are now"
        )
    return key


def check_own(folder: Path) -> None:
    """Raise MemoryFileError unless this user alone can write the folder; OSError if it is gone."""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise MemoryFileError(f"{folder}: this is a link; name the folder for what is remembered")
    if found.st_uid != os.geteuid():
        raise MemoryFileError(
            f"{folder}: this folder is another user's, who may have changed what is remembered; "
            "choose one of your own"
        )
    if found.st_mode & 0o022:
        raise MemoryFileError(
            f"{folder}: other users can write this folder, so what is remembered may be forged; "
            "remove it, or run chmod go-w if you trust it"
        )


def code_of(key: bytes, *parts: bytes) -> str:
    """Return the HMAC-SHA-256 of some parts, hexadecimal."""
    sized = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, sized, hashlib.sha256).hexdigest()


def is_code(code: str, key: bytes, *parts: bytes) -> bool:
    """Tell whether this is the code of these parts."""
    return hmac.compare_digest(code.encode(), code_of(key, *parts).encode())
