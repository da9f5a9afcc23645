"""An exported set of training data: one sealed export, as of one index of the ledger.

Its content follows from the index and the query; the Merkle root fixes its lines.

I/O: none.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import Annotated, Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.canonical import digest
from aggregates.errors import InvariantError
from aggregates.events import First, Long, OneOf, begins

KINDS = ("preferences", "proposals", "sft")
_EXPORTS = UUID("0d8f3f57-2a0e-5a51-9b57-6c1f0f5c7a11")


class Export(Aggregate):
    """One file of training data; the same question as of the same index is the same export."""

    class Sealed(First):
        """An export of training data: what was asked, of which ledger, and what came out."""

        _: KW_ONLY
        kind: Annotated[str, OneOf("the kind of an export", KINDS)]
        as_of: Long  # index of the last entry used
        head: str  # that entry's hash
        query: Mapping[str, Any]  # conditions for the examples
        code: str  # SHA-256 of the code that selects the examples
        examples: Long  # number of examples
        root: str  # Merkle root (RFC 6962) over the lines, without line breaks
        sha256: str  # SHA-256 of the JSON Lines file
        members: str  # SHA-256 of the stored list of examples

        def stream(self) -> UUID:
            return Export.id_of(kind=self.kind, head=self.head, query=self.query, code=self.code)

        def check(self) -> None:
            if self.as_of < 0 or self.examples < 0:
                raise InvariantError(
                    "an export needs an index and a number of examples, both at least 0"
                )

    kind: str
    as_of: int
    head: str
    query: dict[str, Any]
    code: str
    examples: int
    root: str
    sha256: str
    members: str

    seal = begins(Sealed)

    @staticmethod
    def id_of(*, kind: str, head: str, query: Mapping[str, Any], code: str) -> UUID:
        """Return the stream's id: who seals the same twice finds it sealed."""
        asked = {"kind": kind, "head": head, "query": dict(query), "code": code}
        return uuid5(_EXPORTS, digest(asked))
