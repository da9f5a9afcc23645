"""Blobs: what is too large for an entry, stored under the SHA-256 of its content.

Source: docs/reference/ledger-format.md, "Files".
Trust: a blob is hostile until get() has hashed it.
I/O: the blob folder.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from ledger.database import explained
from ledger.errors import BlobError, EncodingError

__all__ = ["BlobStore"]

_CHUNK = 1 << 20  # 1 MiB
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """Files named by their hash: putting the same content twice changes nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, digest: str) -> Path:
        """Return where a blob lies, if it is there; its content is not looked at."""
        if not _DIGEST.fullmatch(digest):
            raise EncodingError(f"{digest!r} is not a SHA-256 in 64 lower-case hexadecimal digits")
        return self.directory / digest[:2] / digest

    def put(self, content: bytes) -> str:
        """Store some bytes and return their hash."""
        return self._put([content])

    def put_file(self, source: Path) -> str:
        """Store a file's content and return its hash."""
        with explained(source), source.open("rb") as file:
            return self._put(iter(lambda: file.read(_CHUNK), b""))

    def get(self, digest: str) -> bytes:
        """Return a blob's content; raise BlobError if it is missing or not what its name says."""
        path = self.path(digest)
        with explained(path):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                raise BlobError(f"{path}: the blob is missing; restore it from a copy") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise BlobError(f"{path}: the blob was changed; restore it from a copy")
        return content

    def _put(self, chunks: Iterable[bytes]) -> str:
        new = self.directory / f".new.{secrets.token_hex(8)}"
        hasher = hashlib.sha256()
        with explained(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                with new.open("xb") as file:
                    for chunk in chunks:
                        hasher.update(chunk)
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                path = self.path(hasher.hexdigest())
                path.parent.mkdir(exist_ok=True)
                new.replace(path)
                _sync_folder(path.parent)
            finally:
                new.unlink(missing_ok=True)
        return path.name


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
