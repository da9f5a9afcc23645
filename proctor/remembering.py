"""Where this user's verifier remembers the newest tree head of every ledger it has verified.

A folder outside of every home, because whoever writes a ledger must not write it: PROCTOR_STATE,
or `proctor` in XDG_STATE_HOME, or ~/.local/state/proctor. PROCTOR_STATE=off remembers nothing.
"""

import os
from pathlib import Path

from ledger.memory import Memory

STATE = "PROCTOR_STATE"


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
