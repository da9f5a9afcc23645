"""The origins of data and decisions that an operator admits to training data.

One stream in a ledger. Origins that are not admitted, or were withdrawn, enter no export.

I/O: none.
"""

from dataclasses import field
from typing import Annotated
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Cut, Event, First, begins, records

KINDS = ("data", "model")
MAX_TEXT = 4_000  # characters of a note
_CORPUS = UUID("7a4b6a0c-51d2-5f6b-8a53-0c0e7d2f9b41")


class Corpus(Aggregate):
    """The founding stock: origins by kind and name, each with the note of who let it in."""

    class Opened(First):
        """The list of admitted origins begins: nothing is admitted yet."""

        def stream(self) -> UUID:
            return Corpus.id_of()

    class Admitted(Event):
        """Data or a model that may enter training data from now on."""

        kind: str  # `data` or `model`
        name: str  # fingerprint of the data, or the model's name as in the policy
        note: Annotated[str, Cut(MAX_TEXT)]

        def check(self, corpus: "Corpus") -> None:
            if corpus.has(self.kind, self.name):
                raise InvariantError(f"{self.kind} {self.name} is already admitted")

        def apply(self, corpus: "Corpus") -> None:
            corpus.admitted[self.kind, self.name] = self.note

    class Withdrawn(Event):
        """Data or a model that may not enter any more; what came of it is tainted."""

        kind: str  # `data` or `model`
        name: str  # as it was admitted
        note: Annotated[str, Cut(MAX_TEXT)]

        def check(self, corpus: "Corpus") -> None:
            if not corpus.has(self.kind, self.name):
                raise InvariantError(f"{self.kind} {self.name} is not admitted")

        def apply(self, corpus: "Corpus") -> None:
            corpus.admitted.pop((self.kind, self.name), None)

    admitted: dict[tuple[str, str], str] = field(default_factory=dict)

    open = begins(Opened)
    admit = records(Admitted)
    withdraw = records(Withdrawn)

    @staticmethod
    def id_of() -> UUID:
        """Return the stream's id; a ledger has one corpus."""
        return uuid5(_CORPUS, "corpus")

    def has(self, kind: str, name: str) -> bool:
        """Return whether an origin is admitted; raise InvariantError for what is no origin."""
        if kind not in KINDS or not name:
            raise InvariantError(
                f"the kind of an origin must be {' or '.join(KINDS)}, and it must have a name"
            )
        return (kind, name) in self.admitted
