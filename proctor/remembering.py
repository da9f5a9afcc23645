"""Where this user's verifier remembers the newest tree head of every ledger it has verified.

A folder outside of every home, because whoever writes a ledger must not write it: PROCTOR_STATE,
or `proctor` in XDG_STATE_HOME, or ~/.local/state/proctor. PROCTOR_STATE=off remembers nothing.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.errors import LedgerError, SignatureError
from ledger.paths import LedgerPaths
from ledger.verification.memory import Memory, Remembered
from ledger.verification.reader import (
    VerifiedLedger,
    open_continued,
    open_verified,
    read_vkey,
    verify_since,
)
from proctor.errors import ProctorError
from proctor.home import Home

if TYPE_CHECKING:
    from ledger.blobs import Blobs
    from projections.cache import CatchUp
    from projections.reading import Session
    from projections.seals import Seals

STATE = "PROCTOR_STATE"
_UNREADABLE = "SELECT COUNT(*), MIN(idx) FROM unreadable"
_SILENT = 1.0  # s that a command waits before it says so
_PATIENCE = 600.0  # s that it waits then: a large ledger's tables take minutes


def memory() -> Memory | None:
    """Return what this user remembers, or None if nothing is to be remembered."""
    chosen = os.environ.get(STATE)
    if chosen == "off":
        return None
    if chosen:
        return Memory(Path(chosen))
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return Memory(base / "proctor")


class TrainedStates:
    """Training states that this user's judge has come to by training; see judge.auditing.gates."""

    def __init__(self, blobs: "Blobs") -> None:
        known = memory()
        self._blobs = blobs
        self._folder = None if known is None else known.folder / "states"
        self._own: set[str] = set()

    def find(self, shared: str, sha256: str) -> bytes | None:
        """Return the state after what has this digest, if it is one of them and still there."""
        name = self._name(shared, sha256)
        if name in self._own or (self._folder is not None and (self._folder / name).is_file()):
            with suppress(LedgerError):
                return self._blobs.get(sha256)
        return None

    def add(self, shared: str, sha256: str) -> None:
        """Remember that training what has this digest led to this state."""
        name = self._name(shared, sha256)
        self._own.add(name)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).touch()

    @staticmethod
    def _name(shared: str, sha256: str) -> str:
        from monitor.code import code_sha256  # noqa: PLC0415 - reads the source files

        return hashlib.sha256(f"{shared} {sha256} {code_sha256()}".encode()).hexdigest()


def seals() -> "Seals":
    """Return the seals of DuckDB files; those of this process alone if nothing is remembered."""
    from projections.seals import Seals  # noqa: PLC0415 - only tables need it

    known = memory()
    if known is not None:
        return Seals(known.folder)
    return _own_seals()


@cache
def _own_seals() -> "Seals":
    from projections.seals import Seals  # noqa: PLC0415 - only tables need it

    return Seals(None)


def recall(vkey: str) -> Remembered | None:
    """Return what is remembered of the ledger of this name; refuse another first key for it."""
    known = memory()
    recalled = None if known is None else known.recall(vkey.strip().partition("+")[0])
    if recalled is not None and recalled.vkey != vkey.strip():
        raise SignatureError("the ledger's first key is not the remembered one")
    return recalled


@contextmanager
def open_remembered(
    directory: Path, *, vkey: str | None = None, heads: bool = False
) -> Iterator[VerifiedLedger]:
    """Verify what is new since what is remembered, or the whole ledger, and give access to it.

    Refuses a ledger that is behind or beside what is remembered. With `heads` the whole ledger is
    verified, and all its tree heads can be read.
    """
    known = memory()
    if known is not None and not heads:
        with open_continued(directory, memory=known, vkey=vkey) as ledger:
            yield ledger
        return
    recalled = recall(vkey or read_vkey(LedgerPaths(directory).vkey))
    kept_head = None if recalled is None else recalled.note
    with open_verified(directory, vkey=vkey, kept_head=kept_head) as ledger:
        yield ledger


def warn_unreadable(count: int, first: int) -> None:
    """Say on standard error how many entries were set aside, and which is the first."""
    what = (
        "entry of the ledger cannot be read and is"
        if count == 1
        else ("entries of the ledger cannot be read and are")
    )
    print(
        f"warning: {count} {what} set aside; the first is entry {first}: "
        f"`proctor log --entry {first}` shows it, the table `unreadable` says why",
        file=sys.stderr,
    )


def bring_up_to_date(home: Home, *, unverified: bool = False) -> "CatchUp":
    """Bring the projection up to date with a ledger that holds; wait for others who do so."""
    from projections.cache import catch_up  # noqa: PLC0415 - loads DuckDB
    from projections.errors import AheadError, BusyError  # noqa: PLC0415 - likewise

    home.require_ledger()
    home.close_crashed()
    wait, state, vkey = _SILENT, None, ""
    if not unverified:
        with open_remembered(home.ledger) as ledger:  # raises where it does not hold
            state, vkey = ledger.state, ledger.vkey
    while True:
        try:
            return catch_up(home.projection, home.ledger, wait=wait, seals=seals(), verified=state)
        except AheadError:  # another command has verified more meanwhile
            assert state is not None
            state = verify_since(home.ledger, vkey=vkey, state=state)
        except BusyError:
            if wait != _SILENT:
                raise
            print(f"waiting: another process uses {home.projection}", file=sys.stderr)
            wait = _PATIENCE


def open_session(home: Home, *, as_of: int | None = None, unverified: bool = False) -> "Session":
    """Bring the projection up to date and give it for questions, as of an index that there is."""
    from projections.reading import Session  # noqa: PLC0415 - loads DuckDB

    done = bring_up_to_date(home, unverified=unverified)
    if as_of is not None and as_of >= done.position:
        raise ProctorError(f"--as-of {as_of}: the ledger has the entries 0 to {done.position - 1}")
    now, then = (
        Session(home.projection, as_of=each, seals=seals(), copy=done.copy)
        for each in (None, as_of)
    )
    [(count, first)] = now.query(_UNREADABLE).rows
    if count:
        warn_unreadable(count, first)
    return then
