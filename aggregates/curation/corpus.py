"""The origins of data and decisions that an operator admits to training data.

One stream in a ledger. Origins that are not admitted, or were withdrawn, enter no export.

I/O: none.
"""

from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

KINDS = ("data", "model")
MAX_TEXT = 4_000  # characters of a note
_CORPUS = UUID("7a4b6a0c-51d2-5f6b-8a53-0c0e7d2f9b41")


class Corpus(Aggregate):
    """The founding stock: origins by kind and name, each with the note of who let it in."""

    class Opened(Aggregate.Created):
        """Nothing is admitted yet."""

    class Admitted(Aggregate.Event):
        """An origin may enter from now on."""

        kind: str  # one of KINDS
        name: str  # of data: its fingerprint; of a model: as the policy names it
        note: str

        def apply(self, aggregate: "Corpus") -> None:
            """Let it in."""
            aggregate.admitted[self.kind, self.name] = self.note

    class Withdrawn(Aggregate.Event):
        """An origin may not enter any more, and what came of it is tainted."""

        kind: str
        name: str
        note: str

        def apply(self, aggregate: "Corpus") -> None:
            """Take it out."""
            aggregate.admitted.pop((self.kind, self.name), None)

    def __init__(self) -> None:
        self.admitted: dict[tuple[str, str], str] = {}

    @staticmethod
    def id_of() -> UUID:
        """Return the stream's id; a ledger has one corpus."""
        return uuid5(_CORPUS, "corpus")

    @classmethod
    def open(cls) -> "Corpus":
        """Begin with nothing."""
        return cls._create(event_class=cls.Opened, id=cls.id_of())

    def admit(self, kind: str, name: str, note: str) -> None:
        """Let an origin in."""
        self._check(kind, name)
        if (kind, name) in self.admitted:
            raise InvariantError(f"{kind} {name} is already admitted")
        self.trigger_event(self.Admitted, kind=kind, name=name, note=note[:MAX_TEXT])

    def withdraw(self, kind: str, name: str, note: str) -> None:
        """Take an origin out, with all that came of it."""
        self._check(kind, name)
        if (kind, name) not in self.admitted:
            raise InvariantError(f"{kind} {name} is not admitted")
        self.trigger_event(self.Withdrawn, kind=kind, name=name, note=note[:MAX_TEXT])

    @staticmethod
    def _check(kind: str, name: str) -> None:
        if kind not in KINDS or not name:
            raise InvariantError(
                f"the kind of an origin must be {' or '.join(KINDS)}, and it must have a name"
            )
