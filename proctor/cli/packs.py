"""What installed packs bring: commands, and the tuning of advice between attempts.

A pack is a distribution with entry points: `proctor.commands` names modules with an `app`, by the
name of the command; `proctor.tuning` what makes the tuner of a model's advice. Nothing here knows
any pack, and none is imported before it is used.

I/O: reads the metadata of installed distributions; imports modules.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any

from proctor.errors import ProctorError


def commands() -> Iterator[tuple[str, str]]:
    """Yield the name of each command that a pack brings, and its module."""
    for each in entry_points(group="proctor.commands"):
        yield each.name, each.module


def tuning() -> Callable[..., AbstractContextManager[Any]]:
    """Return what makes the tuner of a model's advice; raise ProctorError without a pack."""
    for each in entry_points(group="proctor.tuning"):
        found: Callable[..., AbstractContextManager[Any]] = each.load()
        return found
    raise ProctorError("--tune needs a pack that tunes advice, and none is installed")
