"""Which decisions of a run were fixed before their effect was known: witnesses had cosigned them.

A tree head that contains a decision and not the next measured epoch was cosigned by enough
witnesses, no later than the ledger took that epoch. The times of entries are the ledger's own.

Source: docs/how-to/witness.md.  I/O: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ledger.verification.authority import Authority
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.quorum import Quorum

EFFECTS = (  # a decision, and the first epoch that was measured after it
    "SELECT d.number, d.idx, MIN(e.idx) AS effect, MIN(t.time) AS known "
    "FROM decisions AS d JOIN epochs AS e ON e.run_id = d.run_id AND e.idx > d.idx "
    "JOIN events AS t ON t.idx = e.idx WHERE d.run_id = ? GROUP BY ALL ORDER BY d.number"
)


@dataclass(frozen=True)
class Fixed:
    """A decision, and what shows that it was there before its effect."""

    decision: int  # its number
    size: int | None  # entries of the first such tree head; None: there is none
    witnesses: list[str]  # that cosigned it, by their names in the policy
    at: datetime | None  # when enough of them had


def cosigned_heads(
    notes: Iterable[str], *, quorum: Quorum, authority: Authority
) -> list[tuple[int, list[str], int]]:
    """Return size, witnesses and time, in s, of each tree head that enough of them have cosigned.

    `notes` are the ledger's verified tree heads, in the order of their sizes.
    """
    heads = []
    for note in notes:
        if note.count("\n\u2014 ") > 1:  # not the ledger's own line only
            witnessed = quorum.check(note, authority=authority)
            if witnessed.since is not None and witnessed.times:
                size, names = parse_tree_head(note).size, [*witnessed.times]
                heads.append((size, names, witnessed.since or min(witnessed.times.values())))
    return heads


def find_fixed(
    rows: Iterable[Mapping[str, Any]], heads: Sequence[tuple[int, list[str], int]]
) -> list[Fixed]:
    """Return, for each row of EFFECTS, the first cosigned tree head between decision and effect."""
    found = []
    for row in rows:
        known = row["known"].replace(tzinfo=UTC).timestamp()
        between = (
            Fixed(row["number"], size, names, datetime.fromtimestamp(seconds, UTC))
            for size, names, seconds in heads
            if row["idx"] < size <= row["effect"] and seconds + 1 <= known  # it tells whole ones
        )
        found.append(next(between, Fixed(row["number"], None, [], None)))
    return found


def told_fixed(found: Sequence[Fixed]) -> list[str]:
    """Return in sentences which decisions were fixed before their effect was known."""
    told = [
        f"decision {each.decision} was fixed before its effect was known: cosigned by "
        f"{', '.join(each.witnesses)} at {each.at:%Y-%m-%d %H:%M:%S} UTC, in the tree head of "
        f"{each.size} entries"
        for each in found
        if each.at is not None
    ]
    if others := [str(each.decision) for each in found if each.at is None]:
        told.append(
            f"not fixed before its effect was known: decision {', '.join(others)}; no tree head "
            "between the decision and the next measured epoch met the quorum in time"
        )
    return told
