"""Remembers which ledger was in which place: the first vkey of each.

Whoever can write a place, and has no key, can put a whole ledger of their own there. It verifies.
Only somebody who knows which key was there before notices. A rotated key is no other one: the vkey
that names a ledger is its first.

Trust: as of memory.py: the folder is the verifier's own, and its key authenticates each file.
I/O: for each name of a place one small file.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ledger.errors import ExchangedError
from ledger.paths import LedgerPaths, is_served, server_at
from ledger.verification.memory_keys import OwnFile, read_own, unusable, write_own

_WHAT = "key of a ledger"


class Places:
    """The places of a folder of what is remembered; it need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def verify(self, directory: Path, vkey: str) -> None:
        """Raise ExchangedError if a ledger with another first key was in this place."""
        for known in self.others(directory, vkey):
            raise ExchangedError(
                f"{directory}: another ledger is in this place. You read one with the key {known} "
                f"here, and the key is now {vkey}. Nothing of it is shown or appended to. If you "
                "put it there, run `proctor keys accept`; if not, restore the earlier ledger"
            )

    def others(self, directory: Path, vkey: str) -> list[str]:
        """Return the vkeys of the ledgers that were in a place, but this one."""
        found = dict.fromkeys(map(self._read, _names(directory)))
        return [known for known in found if known is not None and known != vkey]

    def keep(self, directory: Path, vkey: str) -> bool:
        """Remember the ledger of a place, in place of another one; tell if anything changed."""
        new = [name for name in _names(directory) if self._read(name) != vkey]
        for name in new:
            write_own(self._path(name), _File(place=name, vkey=vkey))
        return bool(new)

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
        return self.folder / f"{digest[:32]}.place"

    def _read(self, name: str) -> str | None:
        file = read_own(self._path(name), _File, what=_WHAT)
        if file is not None and file.place != name:
            raise unusable(self._path(name), _WHAT, "it is for a different place")
        return None if file is None else file.vkey


class _File(OwnFile, frozen=True, kw_only=True):
    """What a file says."""

    format: Literal["ledger/place/v1"] = "ledger/place/v1"
    place: str
    vkey: str


def _names(directory: Path) -> Iterator[str]:
    """Yield the names of a place: as it was given, without links, and that of its server.

    A link in either name may be exchanged: whoever writes a home may put a link in the place of
    its `ledger`, and whoever writes the folder above in the place of the home.
    """
    given = directory.absolute()
    yield from dict.fromkeys(
        str(each)
        for each in (
            os.path.abspath(given),  # noqa: PTH100 - resolve() follows links
            given.parent.resolve() / given.name,
            given.resolve(),
        )
    )
    paths = LedgerPaths(directory)
    if is_served(paths):
        yield server_at(paths.server).place(paths.server)
