"""Tables of pages, and values as pages show them.

Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from ledger.wording import counted
from proctor.output.columns import Column, cells, field, figure
from proctor.pages.rendering import indented, spoken

Row = Mapping[str, Any]
Data = Mapping[str, Any]
CAUSES = {  # of violations -> what would have avoided them, and why
    "harness": (
        "a repair of the harness",
        "It did something else than what was decided, or nothing.",
    ),
    "human": ("another decision by this person", ""),
    "policy": (
        "another policy",
        "It was told of such a violation before and repeated it, or it was not asked about this "
        "rule.",
    ),
    "prompt": (
        "perhaps another prompt",
        "A language model was asked, and nothing had told it of such a violation.",
    ),
}


def short(value: Any) -> str | None:
    """Return the first characters of an id."""
    return None if value is None else str(value)[:8]


def violations_found(audits: Iterable[Mapping[str, Any]]) -> str:
    """Return how many violations audits found, by their rows in the view `audits`."""
    rows = [*audits]
    least = "at least " if any(row["more_violations"] for row in rows) else ""
    return f"{least}{sum(row['violations'] for row in rows)}"


def listed_of(listed: int, found: int) -> str:
    """Return the caption of a list of violations that may be cut: the first so many of all."""
    if listed >= found:
        return "Violations"
    return (
        f"The first {listed:,} of {found:,} violations" if listed else "None is recorded in words"
    )


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return counted(round(seconds), "second")
    minutes = seconds / 60
    return counted(round(minutes), "minute") if minutes < 120 else f"{minutes / 60:.1f} hours"


def table(caption: str, columns: Sequence[Column], rows: Iterable[Any]) -> dict[str, Any]:
    """Return a table as the templates take it, without columns in which no row says anything.

    `cut` is how many rows there were, 0 for these.
    """
    found = cells(columns, rows)
    said = [not found or any(row[at] is not None for row in found) for at in range(len(columns))]
    return {
        "caption": caption,
        "columns": [*compress(columns, said)],
        "rows": [[*compress(row, said)] for row in found],
        "cut": 0,
    }


def why_not(row: Row) -> str | None:
    """Return why a row's run does not fit, if so."""
    return "; ".join(row["why_not"]) or None


RUN = field("run", "run_id")  # of which pages show the beginning, with a link where they can
_VIOLATIONS = [
    RUN,
    field("kind", lambda row: spoken(row["kind"])),
    field("rule"),
    figure("epoch"),
    field("what", "detail"),
    field("by", "emitter"),
    field("what would have avoided it", lambda row: CAUSES.get(row["cause"], (row["cause"],))[0]),
]
_COST = [
    RUN,
    field("model"),
    figure("requests", "calls"),
    figure("tokens in", "prompt_tokens"),
    figure("tokens out", "completion_tokens"),
    figure("seconds"),
    figure("US dollars", "cost"),
]


def of_several_runs(data: Data, subject: Row, **settings: str) -> dict[str, Any]:
    """Return what pages about several runs have in common.

    `settings` names the columns of `subject` that hold JSON, with their titles.
    """
    rows, found = data["violations"], sum(row["violations"] for row in data["found"])
    return {
        "violations_found": violations_found(data["found"]),
        "violations": table(listed_of(len(rows), found), _VIOLATIONS, rows),
        "cost": table("Requests to language models by run", _COST, data["calls"]),
        "settings": {title: indented(subject[name]) for name, title in settings.items()},
    }
