"""What was sent to a language model and what it answered: texts that the ledger names by hash.

Trust: a body is compared with its hash before it is shown or searched.
I/O: reads blobs, none larger than a page can show.  Units: bytes, seconds.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ledger.errors import LedgerError
from proctor.home import Home
from proctor.output.terminal import readable, visible

_MOST_BODY = 4 << 20
_MOST_SHOWN = 200_000  # characters
MOST_SECONDS = 2.0  # of a search


def shown(home: Home, digest: str | None) -> str | None:
    """Return a body for reading, JSON as an outline; None if there is none."""
    if digest is None:
        return None
    try:
        text = readable(home.blobs.get(digest, most=_MOST_BODY).decode("utf-8", "replace"))
    except LedgerError as error:
        return f"({visible(str(error))})"
    if len(text) > _MOST_SHOWN:
        return f"{text[:_MOST_SHOWN]}\n… ({len(text) - _MOST_SHOWN:,} more characters)"
    return text


def matching(
    home: Home, calls: Iterable[Mapping[str, Any]], text: str, *, most: int
) -> tuple[list[Mapping[str, Any]], int, bool]:
    """Return the calls whose bodies have a text, how many were searched, and whether all were.

    Letters match in either case. JSON is searched as it was sent and as people read it.
    """
    wanted = text.lower()
    until = time.monotonic() + MOST_SECONDS
    found: list[Mapping[str, Any]] = []
    searched = 0
    for call in calls:
        if time.monotonic() > until or len(found) > most:
            return found, searched, False
        searched += 1
        if any(wanted in _searched(home, call[what]) for what in ("request", "response")):
            found.append(call)
    return found, searched, True


def _searched(home: Home, digest: str | None) -> str:
    if digest is None:
        return ""
    try:
        sent = home.blobs.get(digest, most=_MOST_BODY).decode("utf-8", "replace")
    except LedgerError:
        return ""
    if "\\" not in sent:
        return sent.lower()
    try:
        read = json.dumps(json.loads(sent), ensure_ascii=False).replace("\\n", "\n")
    except (RecursionError, ValueError):
        read = ""
    return f"{sent}\n{read}".lower()
