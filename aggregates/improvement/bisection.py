"""The search for the checkpoint that made a line worse: its probes and its result.

I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

VERDICTS = ("bad", "good", "skip")
KNOWN_RULES = (1, 2, 3)  # by which verdicts are weighed
MAX_TEXT = 4_000  # characters of a reason


class Bisection(Aggregate):
    """One search along a chain of checkpoints, resumable after every probe."""

    class Opened(Aggregate.Created):
        """The suspects in the order of the chain; the first of them that is bad is looked for."""

        line: str
        good: str  # the checkpoint before the first suspect
        suspects: list[str]  # checkpoints
        oracle: dict[str, Any]  # how a checkpoint is probed
        error: float  # given share of wrong verdicts; 0: verdicts are sure
        confidence: float  # at which the search ends
        ends_believed: bool  # the good one is good and the last is bad, without being asked
        rules: int  # by which verdicts are weighed; judge/bisection/search.py

    class Probed(Aggregate.Event):
        """One checkpoint was put to the test once."""

        number: int  # from 1
        checkpoint: str
        verdict: str  # one of VERDICTS
        evidence: dict[str, Any]

        def apply(self, aggregate: "Bisection") -> None:
            """Count it."""
            aggregate.probes.append((self.checkpoint, self.verdict))

    class Ended(Aggregate.Event):
        """A culprit was found, or it was seen that none can be."""

        culprit: str | None
        candidates: list[str]  # that cannot be told apart; the culprit alone where there is one
        posterior: float  # that the culprit is among them
        reason: str

        def apply(self, aggregate: "Bisection") -> None:
            """Close the search."""
            aggregate.ended = True
            aggregate.culprit = self.culprit

    line: str
    good: str
    suspects: list[str]
    oracle: dict[str, Any]
    error: float
    confidence: float
    ends_believed: bool
    rules: int
    probes: list[tuple[str, str]] = field(default_factory=list, init=False)
    ended: bool = field(default=False, init=False)
    culprit: str | None = field(default=None, init=False)

    @classmethod
    def open(
        cls,
        *,
        line: str,
        good: str,
        suspects: Sequence[str],
        oracle: Mapping[str, Any],
        error: float,
        confidence: float,
        ends_believed: bool = True,
        rules: int = KNOWN_RULES[-1],
        search_id: UUID | None = None,
    ) -> "Bisection":
        """Begin a search."""
        if not suspects or good in suspects or len(set(suspects)) != len(suspects):
            raise InvariantError(
                "a search needs a good checkpoint and, after it, suspects without repetition"
            )
        if not 0 <= error < 0.5 or not 0.5 < confidence < 1:
            raise InvariantError("error rates must be below 0.5, the confidence between 0.5 and 1")
        if rules not in KNOWN_RULES:
            raise InvariantError(f"there are no rules {rules} of a search")
        return cls._create(
            event_class=cls.Opened,
            id=search_id or uuid4(),
            line=line,
            good=good,
            suspects=list(suspects),
            oracle=dict(oracle),
            error=error,
            confidence=confidence,
            ends_believed=ends_believed,
            rules=rules,
        )

    def probe(self, checkpoint: str, verdict: str, evidence: Mapping[str, Any]) -> None:
        """Record one verdict."""
        self._check_open()
        if checkpoint not in (self.good, *self.suspects) or verdict not in VERDICTS:
            raise InvariantError(f"{checkpoint} is not a suspect, or {verdict!r} is not a verdict")
        self.trigger_event(
            self.Probed,
            number=len(self.probes) + 1,
            checkpoint=checkpoint,
            verdict=verdict,
            evidence=dict(evidence),
        )

    def end(
        self, *, culprit: str | None, candidates: Sequence[str], posterior: float, reason: str
    ) -> None:
        """Record what the probes come to; `good` is a candidate where it was bad already."""
        self._check_open()
        if not set(candidates) <= {self.good, *self.suspects}:
            raise InvariantError(f"one of {', '.join(candidates)} is not in this search")
        if culprit is not None and (culprit not in self.suspects or list(candidates) != [culprit]):
            raise InvariantError(f"{culprit} is not the only remaining suspect")
        self.trigger_event(
            self.Ended,
            culprit=culprit,
            candidates=list(candidates),
            posterior=posterior,
            reason=reason[:MAX_TEXT],
        )

    def _check_open(self) -> None:
        if self.ended:
            raise InvariantError("this search has ended")


def without_rules(body: dict[str, Any]) -> dict[str, Any]:
    """Return the opening of a search of version 1 as version 2: its rules were the first ones."""
    return {**body, "rules": 1}
