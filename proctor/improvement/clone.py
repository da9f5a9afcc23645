"""The scorers and makers of Proctor's own reference tasks, where Proctor runs from a clone.

They serve this repository's own line alone, are in `docs/studies/reference`, and are not installed.

I/O: imports from the clone's folder.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from judge.gauntlet.tasks.scoring import Scorer
from judge.reference.scorers import SCORERS
from monitor.code import HOUSE

_DOCS = HOUSE / "docs"


def clone_module(name: str) -> ModuleType | None:
    """Return a module of the clone's `docs/studies/reference`; None if Proctor is installed."""
    if not (_DOCS / "studies" / "reference" / f"{name}.py").is_file():
        return None
    sys.path.insert(0, str(_DOCS))  # first, so that no other package of this name is imported
    try:
        return import_module(f"studies.reference.{name}")
    finally:
        sys.path.remove(str(_DOCS))


def scorers() -> Mapping[str, Scorer]:
    """Return the scorers that tasks can name here."""
    own = clone_module("scorers")
    return SCORERS if own is None else own.SCORERS
