"""The folder in which this user's commands remember ledgers: where, and whether at all.

Outside of every home, because whoever writes a ledger must not write it: PROCTOR_STATE, or
`proctor` in XDG_STATE_HOME, or ~/.local/state/proctor. PROCTOR_STATE=off remembers nothing.

Trust: a folder that others can write is refused.
I/O: makes the folder; says on standard error, once, if it cannot be used.
"""

import os
import sys
from functools import cache
from pathlib import Path

from ledger.verification.memory import Memory
from ledger.verification.memory_keys import check_own

STATE = "PROCTOR_STATE"


def memory() -> Memory | None:
    """Return what this user remembers, or None if nothing is to be remembered."""
    folder = state_folder()
    return None if folder is None else Memory(folder, tell=tell_once)


def state_folder() -> Path | None:
    """Return the folder; None if nothing is to be remembered, or nothing can be.

    Raises MemoryFileError if others can write it.
    """
    chosen = os.environ.get(STATE)
    if chosen == "off":
        return None
    try:
        folder = Path(chosen) if chosen else _usual()
    except RuntimeError:  # the user has no home
        _tell(Path("~/.local/state/proctor"), "this user has no home folder")
        return None
    obstacle = _obstacle(folder)
    if obstacle is not None:
        _tell(folder, obstacle)
        return None
    return folder


def _obstacle(folder: Path) -> str | None:
    """Return why nothing can be kept in a folder, made if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_own(folder)
    except FileExistsError:
        return "it is not a folder"
    except OSError as e:
        return str(e.strerror)
    return None if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written"


def _tell(folder: Path, obstacle: str) -> None:
    tell_once(
        f"warning: {folder}: {obstacle}; nothing is remembered, nor compared with what was. "
        f"{STATE} names another folder; {STATE}=off does without this warning"
    )


@cache
def tell_once(text: str) -> None:
    """Say something on standard error, once in a process."""
    print(text, file=sys.stderr)


def _usual() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "proctor"
