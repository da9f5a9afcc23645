"""Which tables a file holds, and which ones the installed code makes, without loading that code.

Trust: the folder is one that only this user can enter.
I/O: the status of this program's sources; a small file in the folder that identity() is given.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.files import replace_durably
from projections.errors import ProjectionError

if TYPE_CHECKING:
    import duckdb

_PACKAGES = ("aggregates", "ledger", "projections")  # those that schema_hash() reads or asks
_FOUND: list[str] = []  # in this process


def identity(folder: Path | None = None) -> str:
    """Return projector.schema_hash(), which a folder keeps for as long as no source is touched."""
    if not _FOUND:
        kept = None if folder is None else folder / f"identity-{_sources()}"
        with suppress(OSError, ValueError):
            if kept is not None and len(told := bytes.fromhex(kept.read_text("ascii"))) == 32:
                _FOUND.append(told.hex())
    if not _FOUND:
        from projections.projector import schema_hash  # noqa: PLC0415 - loads all that it hashes

        _FOUND.append(schema_hash())
        if kept is not None:
            with suppress(OSError):  # then the next process asks again
                _keep(kept, _FOUND[0])
    return _FOUND[0]


def _keep(kept: Path, told: str) -> None:
    new = kept.with_name(f".{kept.name}.{os.getpid()}")
    new.write_text(told, encoding="ascii")
    for earlier in kept.parent.glob("identity-*"):
        earlier.unlink(missing_ok=True)
    replace_durably(new, kept)


def _sources() -> str:
    house = Path(__file__).resolve().parents[1]
    told = "\n".join([sys.version, *(each for name in _PACKAGES for each in _states(house / name))])
    return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:32]


def _states(folder: Path) -> Iterator[str]:
    """Yield where each source is, and what changes with it; a status change cannot be set back."""
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith((".py", ".sql")):
                at = (path := Path(place, name)).stat()
                yield f"{path} {at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}"


def read_position(connection: "duckdb.DuckDBPyConnection") -> tuple[int, str | None, str]:
    """Return the index of the next entry, the last entry's hash and the schema's hash."""
    rows = connection.execute("SELECT next_idx, last_hash, schema_hash FROM position").fetchall()
    if not rows:
        raise ProjectionError("the position is missing; rebuild the projection")
    [(next_idx, last_hash, schema)] = rows
    return int(next_idx), last_hash, str(schema)
