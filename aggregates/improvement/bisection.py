"""The search for the checkpoint that made a line worse: its probes and its result.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, field
from typing import Annotated, Any
from uuid import UUID

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Cut, Event, First, Kept, Since, begins, counted, records

VERDICTS = ("bad", "good", "skip")
KNOWN_RULES = (1, 2, 3)  # by which verdicts are weighed
MAX_TEXT = 4_000  # characters of a reason


class Bisection(Aggregate):
    """One search along a chain of checkpoints, resumable after every probe."""

    class Opened(First):
        """A search for the checkpoint that made a line worse."""

        _: KW_ONLY
        line: str
        good: str  # the checkpoint before the first suspect
        suspects: Sequence[str]  # checkpoints in the order of the chain
        # how checkpoints are probed; `revealed_by`: the proposal or alarm that showed an older
        # fault
        oracle: Mapping[str, Any]
        error: float  # given share of wrong verdicts; 0: verdicts are certain
        confidence: float  # confidence at which the search ends
        # whether `good` is assumed good and the last suspect bad, without probes
        ends_believed: bool = True
        # how verdicts are weighed. 1: the given share is the true one, and errors are independent.
        # 2: one share is estimated. 3: two are, of false alarms and of missed faults
        rules: Annotated[int, Since(2, KNOWN_RULES[0])] = KNOWN_RULES[-1]
        search_id: InitVar[UUID | None] = None

        def check(self) -> None:
            suspects = self.suspects
            if not suspects or self.good in suspects or len(set(suspects)) != len(suspects):
                raise InvariantError(
                    "a search needs a good checkpoint and, after it, suspects without repetition"
                )
            if not 0 <= self.error < 0.5 or not 0.5 < self.confidence < 1:
                raise InvariantError(
                    "error rates must be below 0.5, the confidence between 0.5 and 1"
                )
            if self.rules not in KNOWN_RULES:
                raise InvariantError(f"there are no rules {self.rules} of a search")

    class Probed(Event):
        """One test of one checkpoint by a search."""

        number: int = counted(after="probes")  # from 1
        checkpoint: str  # what was probed
        verdict: str  # `bad`, `good` or `skip`
        evidence: Mapping[str, Any]

        def check(self, search: "Bisection") -> None:
            if self.checkpoint not in search.checkpoints or self.verdict not in VERDICTS:
                raise InvariantError(
                    f"{self.checkpoint} is not a suspect, or {self.verdict!r} is not a verdict"
                )

        def apply(self, search: "Bisection") -> None:
            search.probes.append((self.checkpoint, self.verdict))

    class Ended(Event):
        """The outcome of a search."""

        ENDS = "this search has ended"
        culprit: Kept[str | None]  # the first bad checkpoint, or null
        candidates: Sequence[str]  # remaining candidates; only the culprit if there is one
        posterior: float  # probability that the culprit is among them; from rules 2 on, at least
        reason: Annotated[str, Cut(MAX_TEXT)]

        def check(self, search: "Bisection") -> None:
            culprit, candidates = self.culprit, list(self.candidates)
            if not search.checkpoints.issuperset(candidates):
                raise InvariantError(f"one of {', '.join(candidates)} is not in this search")
            if culprit is not None and (culprit not in search.suspects or candidates != [culprit]):
                raise InvariantError(f"{culprit} is not the only remaining suspect")

    line: str
    good: str
    suspects: list[str]
    oracle: dict[str, Any]
    error: float
    confidence: float
    ends_believed: bool
    rules: int
    probes: list[tuple[str, str]] = field(default_factory=list)
    ended: str | None = None
    culprit: str | None = None

    open = begins(Opened)
    probe = records(Probed)
    end = records(Ended)

    @property
    def checkpoints(self) -> set[str]:
        """The good checkpoint and the suspects."""
        return {self.good, *self.suspects}
