"""Whether a run was made with the checkpoint that it names, according to the ledger.

projections/hygiene.sql answers this for the tables; this module does for the audit report.

Source: docs/explanation/hygiene.md.
Trust: entries are verified; what they say of themselves is hostile.
I/O: none.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from ledger.bodies import decode_body
from ledger.errors import LedgerError
from ledger.verification.verified_entries import VerifiedEntry

CHECKPOINTS = frozenset({"checkpoint.adopted", "checkpoint.promoted", "line.opened"})
"""The events that record a checkpoint."""


def label_problem(
    checkpoint: str | None, code: str | None, *, start: int, recorded: Iterable[VerifiedEntry]
) -> str | None:
    """Return what is wrong with a run's label; None if nothing is, or if it has none.

    `code` is what the run says that ran, `start` the index of its first entry, `recorded` the
    entries of the events in CHECKPOINTS.
    """
    if checkpoint is None:
        return None
    known = [(entry.index, body) for entry, body in _bodies(recorded, checkpoint)]
    if not known:
        return f"checkpoint {checkpoint} not found in the ledger"
    index, body = min(known, key=lambda found: found[0])
    if index > start:
        return f"checkpoint {checkpoint} was recorded in entry {index}, after the run started"
    if body["code"] is None:
        return f"the code hash of checkpoint {checkpoint} is not recorded"
    if body["code"] != code:
        return f"the run's code {code} is not the code of checkpoint {checkpoint}, {body['code']}"
    return None


def _bodies(
    recorded: Iterable[VerifiedEntry], checkpoint: str
) -> Iterable[tuple[VerifiedEntry, Mapping[str, Any]]]:
    """Give the entries that record this checkpoint as the line does whose stream they are in."""
    for entry in recorded:
        try:
            body = REGISTRY.upcast(entry.name, decode_body(entry.body))
            said, commit = body["checkpoint"], body["commit"]
            named = Line.checkpoint_id(UUID(str(entry.stream_id)), str(commit))
        except (KeyError, LedgerError, TypeError, ValueError):
            continue  # no checkpoint that anybody could have been made under
        if said == named == checkpoint:
            yield entry, body
