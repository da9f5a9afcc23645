"""Seals, which detect that somebody else changed a DuckDB file.

The file is in a home, where others may write. Its seal, a SHA-256 of the whole file, is with what
the verifier remembers. A file that does not match its seal is rebuilt instead of queried.

Trust: whoever can write both the file and the folder of the seals can forge tables; seals are
authenticated by the folder's key, which only its owner can read.
I/O: one file for each DuckDB file, in the folder of the seals.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import MsgspecError, Struct, convert, to_builtins

from ledger.errors import LedgerError
from ledger.files import read_text, write_durably
from ledger.strict_json import read_json
from ledger.verification.memory_keys import code_of, is_code, memory_key

__all__ = ["Seal", "Seals", "sealed_copy"]

_MAX_FILE = 100_000  # bytes
_PIECE = 1 << 20  # bytes


class _File(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a seal's file says."""

    format: Literal["proctor/tables/v1"] = "proctor/tables/v1"
    path: str
    sha256: str
    size: int = -1  # bytes; earlier versions did not say
    mac: str


@dataclass(frozen=True)
class Seal:
    """A file as it was when it was written last."""

    sha256: str
    size: int  # bytes


class Seals:
    """The seals in a folder; without one, those of this process alone."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._own: dict[str, Seal] = {}

    def recall(self, database: Path) -> Seal | None:
        """Return what the file was like when it was written last; None where that is not known."""
        path = str(database.resolve())
        if self.folder is None:
            return self._own.get(path)
        try:
            file = convert(read_json(read_text(self._file(path), most=_MAX_FILE)), _File)
            known = file.path == path and is_code(
                file.mac, memory_key(self.folder), *_parts(path, file.sha256, file.size)
            )
        except (LedgerError, MsgspecError, OSError, ValueError):
            return None  # what cannot be read seals nothing: the tables are built anew
        return Seal(file.sha256, file.size) if known else None

    def keep(self, database: Path, seal: Seal) -> None:
        """Remember the file as it is now."""
        path = str(database.resolve())
        if self.folder is None:
            self._own[path] = seal
            return
        mac = code_of(memory_key(self.folder), *_parts(path, seal.sha256, seal.size))
        text = json.dumps(
            to_builtins(_File(path=path, sha256=seal.sha256, size=seal.size, mac=mac)), indent=1
        )
        write_durably(self._file(path), f"{text}\n".encode())

    def _file(self, path: str) -> Path:
        assert self.folder is not None
        name = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()
        return self.folder / f"{name[:32]}.tables"


def sealed_copy(source: BinaryIO, target: BinaryIO, *, most: int | None = None) -> Seal:
    """Copy a file and return what was copied; of one that is longer than `most`, no more is."""
    hashed, size = hashlib.sha256(), 0
    while (most is None or size <= most) and (piece := source.read(_PIECE)):
        hashed.update(piece)
        size += len(piece)
        target.write(piece)
    return Seal(hashed.hexdigest(), size)


def _parts(path: str, sha256: str, size: int) -> tuple[bytes, ...]:
    parts = b"proctor/tables/v1", path.encode(errors="surrogateescape"), sha256.encode()
    return parts if size < 0 else (*parts, str(size).encode())
