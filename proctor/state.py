"""The folder in which this user's commands remember ledgers: where, and whether at all.

Outside of every home, because whoever writes a ledger must not write it: PROCTOR_STATE, or
`proctor` in XDG_STATE_HOME, or ~/.local/state/proctor. PROCTOR_STATE=off remembers nothing.

Trust: a folder that others can write is refused.
I/O: looks at the folder.
"""

import os
from contextlib import suppress
from pathlib import Path

from ledger.verification.memory_keys import check_own

__all__ = ["STATE", "state_folder"]

STATE = "PROCTOR_STATE"


def state_folder() -> Path | None:
    """Return the folder, which need not exist yet; None if nothing is to be remembered.

    Raises MemoryFileError if others can write it.
    """
    chosen = os.environ.get(STATE)
    if chosen == "off":
        return None
    folder = Path(chosen) if chosen else _usual()
    with suppress(OSError):
        check_own(folder)
    return folder


def _usual() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "proctor"
