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
        """The suspects in the order of the chain; the first of them that is bad is looked for."""

        _: KW_ONLY
        line: str
        good: str  # the checkpoint before the first suspect
        suspects: Sequence[str]  # checkpoints
        oracle: Mapping[str, Any]  # how a checkpoint is probed
        error: float  # given share of wrong verdicts; 0: verdicts are sure
        confidence: float  # at which the search ends
        ends_believed: bool = True  # the good one is good and the last is bad, without being asked
        # By which verdicts are weighed; see judge/bisection/search.py.
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
        """One checkpoint was put to the test once."""

        number: int = counted(after="probes")  # from 1
        checkpoint: str
        verdict: str  # one of VERDICTS
        evidence: Mapping[str, Any]

        def check(self, search: "Bisection") -> None:
            if self.checkpoint not in search.checkpoints or self.verdict not in VERDICTS:
                raise InvariantError(
                    f"{self.checkpoint} is not a suspect, or {self.verdict!r} is not a verdict"
                )

        def apply(self, search: "Bisection") -> None:
            search.probes.append((self.checkpoint, self.verdict))

    class Ended(Event):
        """A culprit was found, or it was seen that none can be."""

        ENDS = "this search has ended"
        culprit: Kept[str | None]
        # That cannot be told apart; the culprit alone where there is one, the good checkpoint where
        # it was bad already.
        candidates: Sequence[str]
        posterior: float  # that the culprit is among them
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
