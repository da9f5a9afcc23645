"""The folder in which this user's commands remember ledgers: where, and whether at all.

Outside of every home, because whoever writes a ledger must not write it: PROCTOR_STATE, or
`proctor` in XDG_STATE_HOME, or ~/.local/state/proctor. PROCTOR_STATE=off remembers nothing.
"""

import os
from pathlib import Path

__all__ = ["STATE", "state_folder"]

STATE = "PROCTOR_STATE"


def state_folder() -> Path | None:
    """Return the folder, which need not exist yet; None if nothing is to be remembered."""
    chosen = os.environ.get(STATE)
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "proctor"
