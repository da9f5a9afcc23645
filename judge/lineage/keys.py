"""Which keys were in force for a lineage: operators that approve, judges that judge.

The ledger's own rules decide (Authority), over the whole authority stream.

Source: docs/reference/curation.md, "Links", 6, 7 and 9.
Trust: as in chain.py.
I/O: none.
Not covered: entries' own authors, which open_selection() and the reader of a ledger verify.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from judge.approvals import (
    LEDGER,
    RECORDED,
    Approval,
    ledger_digest,
    names_of,
    read_approval,
)
from judge.errors import ApprovalError, LineageError
from judge.lineage.chain import Body, Chain
from ledger.errors import MalformedError
from ledger.handover.envelope import payload_of
from ledger.mapper import readable_body
from ledger.strict_json import read_json
from ledger.verification.authority import Authority, KeyRecord
from ledger.verification.verified_entries import VerifiedEntry


class Keys:
    """The keys of a chain's ledger, by its authority stream."""

    def __init__(self, chain: Chain, authority: Authority) -> None:
        self._chain = chain
        self._authority = authority  # after the last entry
        self._entries = chain.stream(authority.stream_id)

    def take(self) -> None:
        """9. Take the authority stream."""
        for entry in self._entries:
            told = readable_body(entry.body) or {}
            about = " ".join(str(told[name]) for name in ("role", "vkey") if name in told)
            self._chain.take(entry, f"{entry.name.partition('.')[2]} {about}".strip())

    def _before(self, entry: VerifiedEntry) -> Authority:
        """Return the keys as they stood where an entry is."""
        authority = Authority(self._authority.keys[0].vkey)
        for each in self._entries:
            if each.index < entry.index:
                authority.apply(each)
        return authority

    def approval(
        self,
        entry: VerifiedEntry,
        body: Body,
        *,
        kind: str,
        line: UUID,
        subjects: dict[str, Any],
        proposal: str | None = None,
    ) -> Approval:
        """Check the envelope in an entry, which an operator in force has signed."""
        operators = [
            key.vkey
            for key in self._before(entry).keys
            if key.role == "operator" and key.ended is None and not self._is_doubted(key, entry)
        ]
        try:
            said = read_approval(str(body.get("envelope")), operators=operators)
        except ApprovalError as e:
            raise LineageError(f"entry {entry.index}: {e}", index=entry.index) from e
        wanted = {"kind": kind, "line": str(line), "proposal": proposal, **subjects}
        found = {"kind": said.kind, "line": said.line, "proposal": said.proposal, **said.subjects}
        if any(found.get(key) != value for key, value in wanted.items()):
            raise LineageError(f"entry {entry.index}: the approval is for something else")
        ledger = said.subjects.get(LEDGER)
        if ledger is None and any(map(self._names_ledger, self._recorded(entry))):
            raise LineageError(f"entry {entry.index}: the approval names no ledger")
        if ledger not in (None, ledger_digest(self._authority.keys[0].vkey)):
            raise LineageError(f"entry {entry.index}: the approval is for another ledger")
        if entry.time_ns >= said.expires * 10**9:
            raise LineageError(f"entry {entry.index}: the approval had expired", index=entry.index)
        return said

    def _recorded(self, before: VerifiedEntry) -> Iterator[Body]:
        """Yield what earlier entries have recorded of approvals."""
        for name in RECORDED:
            for _, body in self._chain.all(name, before=before.index):
                yield body

    def _names_ledger(self, body: Body) -> bool:
        return LEDGER in names_of(str(body.get("envelope")))

    def said(self, body: Body) -> str | None:
        """Return what kind of approval an envelope says that it is; approval() verifies it."""
        try:
            found = read_json(payload_of(str(body.get("envelope"))))["predicate"]["kind"]
        except (MalformedError, ValueError, KeyError, TypeError):
            return None
        return found if isinstance(found, str) else None

    def accept_score(self, scored: VerifiedEntry, *, audit: VerifiedEntry) -> bool:
        """Tell whether a judge has signed a score, where a judge's key was granted before it.

        And the start of its audit with the same key: the score does not say which run it is of.
        """
        judges = [key for key in self._before(scored).keys if key.role == "judge"]
        if not judges:
            return True
        if scored.author is None or audit.author is None:
            return False
        named = scored.author.key_id
        return audit.author.key_id == named and any(
            key.key_id == named and not self._is_doubted(key, scored) for key in judges
        )

    def _is_doubted(self, key: KeyRecord, entry: VerifiedEntry) -> bool:
        """Tell whether a key was revoked since a time before an entry."""
        found = (each for each in self._authority.keys if each.key_id == key.key_id)
        return any(
            revoked.since <= entry.time_ns
            and (revoked.lifted is None or entry.index <= revoked.lifted)
            for revoked in next(found).revocations
        )
