"""Whether the entries of a run that somebody selected are those that its judge read.

A hash in an entry covers all entries before it, but a selection has gaps: between two entries that
are shown, others can stand there than those that were judged. A root covers them. The judge signs
one in `audit.started`: `judged.root`, of the ledger up to the run's last entry; audits of earlier
versions have their tree head alone, whose root is known only where an entry beside it is shown.

Source: docs/reference/ledger-format.md, "Selections".
Trust: the selection is verified; the audit's start is signed by a judge whom the caller knows.
I/O: none.
"""

from uuid import UUID

from aggregates.transcript import Transcript
from ledger.errors import InclusionError, VerificationError
from ledger.handover.selection import Selection
from ledger.mapper import readable_body
from ledger.verification.verified_notes import parse_tree_head


def is_as_judged(selection: Selection, audit: UUID) -> bool:
    """Tell whether the run's entries are proved to be those that this audit's judge read.

    Raise InclusionError where they are proved to be others.
    """
    start = selection.of_stream(audit)[0]
    told = readable_body(start.body) or {}
    try:
        run = UUID(str(told.get("run")))
    except ValueError:
        return False
    size, root = _signed(selection, run, told)
    found = None if root is None else selection.root_at(size)
    if found is None:
        return False
    if found != root:
        raise InclusionError(
            f"run {run} is not as it was judged: the judge signed another state of the ledger in "
            f"entry {start.index}",
            index=start.index,
        )
    own = [*selection.of_stream(run), *selection.of_stream(Transcript.id_of(run))]
    return all(entry.index < size for entry in own)


def _signed(selection: Selection, run: UUID, told: dict[str, object]) -> tuple[int, bytes | None]:
    """Return a size of the ledger, and the root that the judge signed for it, if there is one."""
    judged = told.get("judged")
    if isinstance(judged, dict) and "root" in judged:
        last = [e for e in selection.of_stream(run) if e.entry_hash.hex() == judged.get("entry")]
        try:
            root = bytes.fromhex(str(judged["root"]))
        except ValueError:
            return 0, None
        return (last[0].index + 1, root) if last else (0, None)
    try:
        head = parse_tree_head(str(told.get("tree_head")))
    except VerificationError:
        return 0, None
    return head.size, head.root if head.origin == selection.head.origin else None
