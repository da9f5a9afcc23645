"""Blobs: what is too large for an entry, stored under the SHA-256 of its content.

Source: docs/reference/ledger-format.md, "Files".
Trust: a blob is hostile until get() has hashed it.
I/O: the blob folder.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from ledger.database import explained
from ledger.errors import BlobError, EncodingError
from ledger.files import NEW, new_name, open_regular, replace_durably, sync_file, sync_folder

SMALLEST = 4096  # bytes that a blob counts for at least: a file takes as much of the disk

_CHUNK = 1 << 20  # 1 MiB
LARGEST = 4 * 2**30  # bytes that get() reads: a sparse file costs nothing to make
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Blobs(Protocol):
    """Where bytes are kept under their SHA-256."""

    def put(self, content: bytes, /) -> str:
        """Store bytes and return their hex SHA-256."""

    def get(self, digest: str, /) -> bytes:
        """Return stored bytes; raises BlobError where they are missing or changed."""


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
        with explained(source), open_regular(source) as file:
            return self._put(iter(lambda: file.read(_CHUNK), b""))

    def get(self, digest: str, *, most: int = LARGEST) -> bytes:
        """Return a blob's content; raise BlobError if it is missing or not what its name says.

        Raises BlobError too for one of more bytes than `most`.
        """
        path = self.path(digest)
        with self._opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise BlobError(
                    f"{path}: the blob has {size:,} bytes; at most {most:,} are read into memory"
                )
            content = file.read(size + 1)
        if hashlib.sha256(content).hexdigest() != digest:
            raise BlobError(f"{path}: the blob was changed; restore it from a copy")
        return content

    def piece(self, digest: str, *, offset: int, limit: int) -> tuple[bytes, int]:
        """Return a piece of a blob, unverified, and the size of the whole."""
        with self._opened(self.path(digest)) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, 0))
            return file.read(limit), size

    @contextmanager
    def _opened(self, path: Path) -> Iterator[BufferedReader]:
        with explained(path):
            try:
                with open_regular(path) as file:
                    yield file
            except FileNotFoundError:
                raise BlobError(f"{path}: the blob is missing; restore it from a copy") from None

    def write(self) -> "BlobWriter":
        """Begin a blob that arrives in pieces."""
        with explained(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        return BlobWriter(self)

    def clean(self) -> None:
        """Remove what writers that were killed left over; for whoever is the only one to write."""
        with explained(self.directory):
            for path in self.directory.glob(f"{NEW}*"):
                path.unlink(missing_ok=True)

    def _put(self, chunks: Iterable[bytes]) -> str:
        with closing(self.write()) as writer:
            for chunk in chunks:
                writer.add(chunk)
            return writer.finish()


class BlobWriter:
    """A blob in the making: nothing is there under its name before finish()."""

    def __init__(self, store: BlobStore) -> None:
        self.size = 0  # bytes so far
        self._store = store
        self._hasher = hashlib.sha256()
        self._path = new_name(store.directory / "blob")
        with explained(self._path):
            self._file = self._path.open("xb")

    def add(self, chunk: bytes) -> None:
        """Write one more piece."""
        self._hasher.update(chunk)
        with explained(self._path):
            self._file.write(chunk)
        self.size += len(chunk)

    def finish(self, *, expected: str | None = None) -> str:
        """Store the blob and return its hash; raise BlobError if it is not the expected one."""
        digest = self._hasher.hexdigest()
        if expected not in (None, digest):
            raise BlobError(f"the blob that was sent is {digest}, not {expected}; send it again")
        path = self._store.path(digest)
        with explained(path):
            sync_file(self._file)
            path.parent.mkdir(exist_ok=True)
            replace_durably(self._path, path)
            # Each of the folders may be new, made by this process or by one that is gone.
            for folder in (self._store.directory, self._store.directory.parent):
                sync_folder(folder)
        return digest

    def close(self) -> None:
        """Remove what was not finished."""
        with explained(self._path):
            self._file.close()
            self._path.unlink(missing_ok=True)
