"""An exported set of training data: one sealed export, as of one index of the ledger.

Its content follows from the index and the query; the Merkle root fixes its lines.

I/O: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.errors import InvariantError

KINDS = ("preferences", "proposals", "sft")
_EXPORTS = UUID("0d8f3f57-2a0e-5a51-9b57-6c1f0f5c7a11")


@dataclass(eq=False, kw_only=True)
class Export(Aggregate):
    """One file of training data; the same question as of the same index is the same export."""

    class Sealed(Aggregate.Created):
        """What was asked, of which ledger, and what came out."""

        kind: str  # one of KINDS
        as_of: int  # index of the last entry that was looked at
        head: str  # that entry's hash
        query: dict[str, Any]  # what the examples had to meet
        code: str  # SHA-256 of what decides which examples these are
        examples: int
        root: str  # RFC 6962, over the lines without their line breaks
        sha256: str  # of the JSON Lines
        members: str  # SHA-256 of the stored list of examples, each with its run and its decision

    kind: str
    as_of: int
    head: str
    query: dict[str, Any]
    code: str
    examples: int
    root: str
    sha256: str
    members: str

    @staticmethod
    def id_of(*, kind: str, head: str, query: Mapping[str, Any], code: str) -> UUID:
        """Return the stream's id: who seals the same twice finds it sealed."""
        asked = {"kind": kind, "head": head, "query": dict(query), "code": code}
        return uuid5(_EXPORTS, digest(asked))

    @classmethod
    def seal(
        cls,
        *,
        kind: str,
        as_of: int,
        head: str,
        query: Mapping[str, Any],
        code: str,
        examples: int,
        root: str,
        sha256: str,
        members: str,
    ) -> "Export":
        """Record what was handed out."""
        if kind not in KINDS:
            raise InvariantError(
                f"the kind of an export must be {' or '.join(KINDS)}, not {kind!r}"
            )
        if as_of < 0 or examples < 0:
            raise InvariantError(
                "an export needs an index and a number of examples, both at least 0"
            )
        return cls._create(
            event_class=cls.Sealed,
            id=cls.id_of(kind=kind, head=head, query=query, code=code),
            kind=kind,
            as_of=as_of,
            head=head,
            query=dict(query),
            code=code,
            examples=examples,
            root=root,
            sha256=sha256,
            members=members,
        )
