"""Who signed a verdict, and who says that this key is a judge's: what every `verify` tells.

A ledger grants its judges itself. So a key that the reader does not know from elsewhere can be the
ledger owner's own: then the verdict is worth what the owner's word is worth.

Trust: the selection is verified; `judge` is the reader's own choice.
I/O: none.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.errors import SignatureError
from ledger.handover.selection import Selection
from ledger.verification.verified_notes import parse_vkey
from ledger.wording import counted

if TYPE_CHECKING:
    from projections.counting import CountingAudit


@dataclass(frozen=True)
class Vouched:
    """Who vouches for the audit that counts for a run."""

    run: str
    audit: str
    judge: str | None  # vkey of the key that signed the whole audit; None: no judge signed it
    granted_by: str | None  # vkey of the ledger or of an operator
    granted_as: str | None  # ledger or operator
    as_judged: bool  # the run's entries are proved to be those that the judge read
    trusted: bool  # so they are, and the reader has named this judge

    @property
    def says(self) -> str:
        """Who signed, in one sentence."""
        if self.judge is None:
            return "no judge signed the verdict: it is the word of the ledger's owner"
        said = f"signed by the judge {self.judge}"
        if not self.as_judged:
            return (
                f"{said}, but nothing here proves that the run is as it was judged: its audit is "
                "of an earlier version; verify the ledger or a bundle"
            )
        if self.trusted:
            return f"{said}, whom you named"
        whose = (
            "the ledger's own key" if self.granted_as == "ledger" else "an operator of the ledger"
        )
        return (
            f"{said}, granted by {whose}: the ledger's owner can have made this judge; name one "
            "that you know with --judge VKEY"
        )


def vouched(
    selection: Selection, audits: "Iterable[CountingAudit]", *, judge: str | None
) -> list[Vouched]:
    """Return who vouches for each audit.

    With a `judge` (a vkey), raise SignatureError for an audit that this key has not signed, and
    where there is none.
    """
    from aggregates.judged import is_as_judged  # noqa: PLC0415 - loads all aggregates

    entries = {entry.index: entry for entry in selection.entries}
    named = None if judge is None else parse_vkey(judge, role="judge").public_key
    found = []
    for audit in audits:
        key = selection.author(entries[audit.scored]) if audit.signed else None
        grantor = None if key is None else selection.granted_by(key)
        as_judged = audit.signed and is_as_judged(selection, audit.audit)
        is_named = key is not None and key.public_key == named
        each = Vouched(
            run=audit.run,
            audit=str(audit.audit),
            judge=None if key is None else key.vkey,
            granted_by=None if grantor is None else grantor.vkey,
            granted_as=None if grantor is None else grantor.role,
            as_judged=as_judged,
            trusted=is_named and as_judged,
        )
        if judge is not None and not is_named:
            raise SignatureError(
                f"the verdict on run {each.run} is not signed by {judge}: {each.says}"
            )
        found.append(each)
    if judge is not None and not found:
        raise SignatureError(f"no verdict is shown, so none is signed by {judge}")
    return found


def told_vouched(found: Iterable[Vouched]) -> list[str]:
    """Return who signed, one line for each signer."""
    lines = Counter(each.says for each in found)
    if sum(lines.values()) < 2:
        return [*lines]
    return [f"{counted(many, 'verdict')} {line}" for line, many in lines.items()]


def all_trusted(found: Iterable[Vouched]) -> bool:
    """Tell whether there are verdicts, and the reader knows the judge of each."""
    trusted = [each.trusted for each in found]
    return bool(trusted) and all(trusted)
