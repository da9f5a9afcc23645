"""Values as pages show them: what is not what it should be is shown as the text that it is."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ledger.wording import counted


class RunName(str):
    """The beginning of a run's id, with the whole for pages that can link to it."""

    __slots__ = ("run",)
    run: str

    def __new__(cls, run: str) -> "RunName":
        """Return the first eight characters."""
        made = super().__new__(cls, run[:8])
        made.run = run
        return made


def short(value: Any) -> str | None:
    """Return the first characters of an id."""
    return None if value is None else str(value)[:8]


def tile(title: str, value: str | int, text: str, kind: str = "") -> dict[str, str]:
    """Return a figure that stands out; the kind is good, bad, warn or nothing."""
    return {"title": title, "value": str(value), "kind": kind, "text": text}


def object_of(text: Any) -> Any:
    """Return the object or the list in a column of JSON; an empty object where there is none."""
    try:
        value = json.loads(text)
    except (RecursionError, TypeError, ValueError):
        return {}
    return value if isinstance(value, dict | list) else {}


def indented(text: Any) -> str:
    """Return JSON for people."""
    return json.dumps(object_of(text), indent=2, sort_keys=True, ensure_ascii=False)


def share(value: Any) -> str:
    """Return a share in percent, or that it was not measured."""
    return f"{value:.1%}" if isinstance(value, int | float) else "none"


def violations_found(audits: Iterable[Mapping[str, Any]]) -> str:
    """Return how many violations audits found, by their rows in the view `audits`."""
    rows = [*audits]
    least = "at least " if any(row["more_violations"] for row in rows) else ""
    return f"{least}{sum(row['violations'] for row in rows)}"


def listed_of(listed: int, found: int, what: str = "violations") -> str:
    """Return the caption of a list that may be cut: the first so many of all."""
    if listed >= found:
        return what.capitalize()
    return f"The first {listed:,} of {found:,} {what}" if listed else "None is recorded in words"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return counted(round(seconds), "second")
    minutes = seconds / 60
    return counted(round(minutes), "minute") if minutes < 120 else f"{minutes / 60:.1f} hours"
