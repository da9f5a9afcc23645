"""Where this user's verifier remembers the newest tree head of every ledger it has verified.

A folder outside of every home, because whoever writes a ledger must not write it: PROCTOR_STATE,
or `proctor` in XDG_STATE_HOME, or ~/.local/state/proctor. PROCTOR_STATE=off remembers nothing.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.errors import SignatureError
from ledger.paths import LedgerPaths
from ledger.verification.memory import Memory, Remembered
from ledger.verification.reader import VerifiedLedger, open_verified, read_vkey
from proctor.errors import ProctorError
from proctor.home import Home

if TYPE_CHECKING:
    from projections.reading import Session

STATE = "PROCTOR_STATE"
_SILENT = 1.0  # s that a command waits before it says so


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


def recall(vkey: str) -> Remembered | None:
    """Return what is remembered of the ledger of this name; refuse another first key for it."""
    known = memory()
    recalled = None if known is None else known.recall(vkey.strip().partition("+")[0])
    if recalled is not None and recalled.vkey != vkey.strip():
        raise SignatureError("the ledger's first key is not the remembered one")
    return recalled


@contextmanager
def open_remembered(directory: Path, *, vkey: str | None = None) -> Iterator[VerifiedLedger]:
    """Do as open_verified(), and refuse a ledger that is behind or beside what is remembered."""
    recalled = recall(vkey or read_vkey(LedgerPaths(directory).vkey))
    kept_head = None if recalled is None else recalled.note
    with open_verified(directory, vkey=vkey, kept_head=kept_head) as ledger:
        yield ledger


def bring_up_to_date(home: Home, *, unverified: bool = False) -> int:
    """Bring the projection up to date with a ledger that holds; return how many entries it has."""
    from projections.cache import catch_up  # noqa: PLC0415 - loads DuckDB
    from projections.errors import BusyError  # noqa: PLC0415 - likewise

    home.require_ledger()
    if not unverified:
        with open_remembered(home.ledger):  # raises where it does not hold
            pass
    home.close_crashed()
    try:
        return catch_up(home.projection, home.ledger, wait=_SILENT).position
    except BusyError:
        print(f"waiting: another process uses {home.projection}", file=sys.stderr)
        return catch_up(home.projection, home.ledger).position


def open_session(home: Home, *, as_of: int | None = None, unverified: bool = False) -> "Session":
    """Bring the projection up to date and give it for questions, as of an index that there is."""
    from projections.reading import Session  # noqa: PLC0415 - loads DuckDB

    position = bring_up_to_date(home, unverified=unverified)
    if as_of is not None and as_of >= position:
        raise ProctorError(f"--as-of {as_of}: the ledger has the entries 0 to {position - 1}")
    return Session(home.projection, as_of=as_of)
