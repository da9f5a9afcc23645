"""Blobs kept by a notary: the interface of blobs.py, over its socket.

Source: docs/reference/notary.md, "Requests".
Trust: a blob is hostile until get() has hashed it.
I/O: the notary's socket.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from ledger.blobs import LARGEST
from ledger.database import explained
from ledger.errors import BlobError, MalformedError, StorageError
from ledger.files import open_regular
from ledger.notary.client import NotaryClient
from ledger.notary.messages import Done, GetBlob, Piece, PutBlob

_PIECE = 1 << 20  # 1 MiB
_TRIES = 3


class RemoteBlobs:
    """Puts and gets blobs whole; they travel in pieces."""

    def __init__(self, client: NotaryClient) -> None:
        self._client = client

    def put(self, content: bytes) -> str:
        """Store some bytes and return their hash."""
        digest = hashlib.sha256(content).hexdigest()
        view = memoryview(content)
        return self._put(digest, len(content), lambda at: bytes(view[at : at + _PIECE]))

    def put_file(self, source: Path) -> str:
        """Store a file's content and return its hash."""
        with explained(source), open_regular(source) as file:
            digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()

            def piece(at: int) -> bytes:
                file.seek(at)
                return file.read(_PIECE)

            return self._put(digest, size, piece)

    def get(self, digest: str, *, most: int = LARGEST) -> bytes:
        """Return a blob's content; raise BlobError if it is missing or not what its name says.

        Raises BlobError too for one of more bytes than `most`.
        """
        content = bytearray()
        while True:
            payload, size = self.piece(digest, offset=len(content))
            if size > most:
                raise BlobError(
                    f"{digest}: the notary's blob has {size:,} bytes; at most {most:,} "
                    "are read into memory"
                )
            content += payload
            if len(content) >= size or not payload:
                break
        if hashlib.sha256(content).hexdigest() != digest:
            raise BlobError(f"{digest}: the notary's blob was changed; restore it from a copy")
        return bytes(content)

    def piece(self, digest: str, *, offset: int, limit: int = _PIECE) -> tuple[bytes, int]:
        """Return a piece of a blob, unverified, and the size of the whole."""
        answer, payload = self._client.ask(GetBlob(sha256=digest, offset=offset), Piece)
        return payload[:limit], answer.size

    def _put(self, digest: str, size: int, piece: Callable[[int], bytes]) -> str:
        for _ in range(_TRIES):
            losses: list[None] = []
            try:
                for at in range(0, max(size, 1), _PIECE):
                    self._client.ask(
                        PutBlob(sha256=digest, size=size, offset=at),
                        Done,
                        piece(at),
                        on_loss=lambda losses=losses: losses.append(None),  # type: ignore[misc]
                    )
            except MalformedError:
                if not losses:
                    raise
                continue  # the first pieces went to a connection that is gone: once more
            return digest
        raise StorageError(f"{digest}: the connection to the notary was lost {_TRIES} times")
