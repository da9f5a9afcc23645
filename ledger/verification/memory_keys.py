"""A key that lies with what a verifier remembers, and authenticates it; its files, so written.

Trust: who can read the key can forge what is remembered: it lies in the verifier's own folder,
read and written by that user only. It shows that another user or program has edited a file.
I/O: the file `key` in the folder, and the files that are named.
"""

import hashlib
import hmac
import json
import os
import secrets
import stat
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from ledger.database import explained
from ledger.errors import MalformedError, MemoryFileError, VerificationError
from ledger.files import create_exclusively, open_regular, read_text, sync_folder, write_durably
from ledger.strict_json import read_json

_SIZE = 32  # bytes
_MAX_FILE = 64 << 20  # bytes; a few thousand, more for each key that was ever let in, and marks


class OwnFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file in the folder says; bytes are base64 there."""

    mac: str | None = None  # of its parts, if this was read

    def open(self) -> object:
        """Raise VerificationError unless what it says fits together."""

    def parts(self) -> tuple[bytes, ...]:
        """Return what the code is of: by default all texts, in their order."""
        names = (name for name in self.__struct_fields__ if name != "mac")
        return tuple(str(getattr(self, name)).encode(errors="surrogateescape") for name in names)


_F = TypeVar("_F", bound=OwnFile)


def read_own(path: Path, kind: type[_F], *, what: str) -> _F | None:
    """Return what this user's program has written into a file, or None if there is none.

    Raises MemoryFileError for one that is not as it was written; it says `what` was remembered.
    """
    with explained(path):
        try:
            text = read_text(path, most=_MAX_FILE)
        except FileNotFoundError:
            return None
    try:
        file = convert(read_json(text), kind)
        if not is_code(file.mac or "", memory_key(path.parent), *file.parts()):
            raise MalformedError("it was changed by another user or program")
        file.open()
    except (VerificationError, ValueError) as e:  # JSON or fields of another form
        raise unusable(path, what, e) from e
    return file


def unusable(path: Path, what: str, why: object) -> MemoryFileError:
    """Return the error about a file whose content cannot be relied on."""
    return MemoryFileError(
        f"{path}: the remembered {what} cannot be used: {why}; restore the file from a copy, or "
        "remove it to trust the ledger as it is now"
    )


def write_own(path: Path, file: OwnFile) -> None:
    """Write a file for read_own()."""
    with explained(path):
        file = replace(file, mac=code_of(memory_key(path.parent), *file.parts()))
        write_durably(path, f"{json.dumps(to_builtins(file), indent=1)}\n".encode())
        sync_folder(path.parent.parent)  # the folder may be new as well


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
