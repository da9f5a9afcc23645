"""Who has signed the entries of a lineage, and who let each key in.

Source: docs/reference/lineage.md, "Links", 6, 7 and 9.
Trust: as in chain.py.
I/O: none.
Not covered: a revocation that a file does not show; whoever makes one has the ledger.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from judge.errors import LineageError
from judge.gauntlet.approvals import (
    LEDGER,
    RECORDED,
    Approval,
    ledger_digest,
    names_of,
    read_approval,
)
from judge.gauntlet.errors import ApprovalError
from judge.lineage.chain import Body, Chain, Found, natural
from ledger.errors import MalformedError
from ledger.handover.envelope import payload_of
from ledger.strict_json import read_json
from ledger.verification.authority import authority_stream
from ledger.verification.verified_entries import VerifiedEntry, verify_author
from ledger.verification.verified_notes import ED25519, parse_vkey

__all__ = ["Keys"]


class Keys:
    """The keys that a chain's ledger has granted."""

    def __init__(self, chain: Chain, vkeys: Sequence[str]) -> None:
        self._chain = chain
        self._vkeys = vkeys  # the ledger's own, oldest first
        self._origin = vkeys[0].partition("+")[0]
        self._stream = authority_stream(self._origin)

    def take_authors(self) -> None:
        """9. Take the grant of each key that has signed an entry, and of those that signed that."""
        done: set[int] = set()
        while todo := [step.entry for at, step in self._chain.steps.items() if at not in done]:
            for entry in todo:
                done.add(entry.index)
                if entry.author is not None:
                    self._take_author(entry)
                elif entry.name == "key.granted":
                    raise LineageError("the grant of a key is not signed", index=entry.index)

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
        """Check the envelope in an entry, and take the grant of the key that has signed it."""
        grants = {
            str(told.get("vkey")): (grant, told)  # the newest grant of a key
            for grant, told in self._chain.all("key.granted", role="operator", before=entry.index)
            if not self._is_revoked(str(told.get("vkey")), "operator", entry, granted=grant.index)
        }
        try:
            said = read_approval(str(body.get("envelope")), operators=list(grants))
        except ApprovalError as e:
            raise LineageError(f"entry {entry.index}: {e}", index=entry.index) from e
        wanted = {"kind": kind, "line": str(line), "proposal": proposal, **subjects}
        found = {"kind": said.kind, "line": said.line, "proposal": said.proposal, **said.subjects}
        if any(found.get(key) != value for key, value in wanted.items()):
            raise LineageError(f"entry {entry.index}: the approval is for something else")
        ledger = said.subjects.get(LEDGER)
        if ledger is None and any(map(self._names_ledger, self._recorded(entry))):
            raise LineageError(f"entry {entry.index}: the approval names no ledger")
        if ledger not in (None, ledger_digest(self._vkeys[0])):
            raise LineageError(f"entry {entry.index}: the approval is for another ledger")
        if entry.time_ns >= said.expires * 10**9:
            raise LineageError(f"entry {entry.index}: the approval had expired", index=entry.index)
        self._take_grant(grants[said.key])
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
        grants = self._chain.all("key.granted", role="judge", before=scored.index)
        if not grants:
            return True
        author = scored.author
        if author is None or author.role != "judge":
            return False
        if audit.author is None or audit.author.key_id != author.key_id:
            return False
        return not any(
            _key_id(str(body["vkey"])) == author.key_id
            and self._is_revoked(str(body["vkey"]), "judge", scored, granted=grant.index)
            for grant, body in grants
        )

    def _take_author(self, entry: VerifiedEntry) -> None:
        author = entry.author
        assert author is not None
        grants: dict[str, Found] = {}
        if author.role != "ledger":
            found = self._chain.all("key.granted", role=author.role, before=entry.index)
            grants = {str(body.get("vkey")): (grant, body) for grant, body in found}
        for vkey in grants if author.role != "ledger" else self._vkeys:
            if _key_id(vkey) == author.key_id:
                verify_author(entry, origin=self._origin, public_key=_public_key(vkey))
                if vkey in grants:
                    self._take_grant(grants[vkey])
                return
        raise LineageError(
            f"entry {entry.index} ({entry.name}) is signed by a key that was never granted",
            index=entry.index,
        )

    def _take_grant(self, found: Found) -> None:
        grant, body = found
        if grant.stream_id != self._stream:
            raise LineageError("a grant is in another stream", index=grant.index)
        if grant.author is None or grant.author.role not in ("ledger", "operator"):
            raise LineageError(
                "a key must be granted by the ledger's key or an operator", index=grant.index
            )
        self._chain.take(grant, f"{body.get('role')} key {body.get('vkey')} is granted")

    def _is_revoked(self, vkey: str, role: str, entry: VerifiedEntry, *, granted: int) -> bool:
        """Tell whether a key was revoked before an entry, or is not to be trusted since before."""
        return any(
            revoked.index < entry.index or natural(body.get("since"), revoked) <= entry.time_ns
            for revoked, body in self._chain.all("key.revoked", role=role, vkey=vkey, after=granted)
            if revoked.stream_id == self._stream
        )


def _public_key(vkey: str) -> bytes:
    return parse_vkey(vkey, type=ED25519).public_key


def _key_id(vkey: str) -> bytes:
    return sha256(_public_key(vkey)).digest()
