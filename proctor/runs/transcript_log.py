"""Where a policy's calls are recorded, and what was recorded of them before.

A call is saved the moment it is made. Calls made before the run is opened (the probe) wait until it
is: a server that cannot be asked leaves nothing behind.

I/O: appends to the log that is passed in, and reads it.  Units: tokens, US dollars, seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aggregates.transcript import Transcript
from ledger.application import LedgerApplication


@dataclass(frozen=True)
class Tally:
    """What calls have come to."""

    calls: int = 0
    usable: int = 0
    cached: int = 0
    tokens: int = 0
    cost: float | None = None  # None: not known of any call
    seconds: float = 0.0

    def plus(self, call: Any) -> "Tally":
        """Return the tally with one more Transcript.CallMade; what no model answered is none."""
        if call.model is None:
            return self
        tokens = 0 if call.cached else (call.usage or {}).get("total_tokens") or 0
        usable = call.outcome == "usable"
        return self.added(Tally(1, int(usable), int(call.cached), tokens, call.cost, call.seconds))

    def added(self, other: "Tally") -> "Tally":
        """Return both together."""
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Tally(
            calls=self.calls + other.calls,
            usable=self.usable + other.usable,
            cached=self.cached + other.cached,
            tokens=self.tokens + other.tokens,
            cost=sum(known) if known else None,
            seconds=self.seconds + other.seconds,
        )

    def __str__(self) -> str:
        cost = "cost unknown" if self.cost is None else f"${self.cost:.4f}"
        return f"calls {self.calls} (usable {self.usable}), tokens {self.tokens}, {cost}"


class TranscriptLog:
    """A transcript that is in the log as soon as it is written, from open() on."""

    def __init__(self, log: LedgerApplication, run_id: UUID) -> None:
        self.tally = Tally()
        self.outcomes: list[str] = []  # of all calls
        self._log = log
        self._run_id = run_id
        self._transcript = Transcript.start(str(run_id), policy={})  # open() replaces it
        self._waiting: list[dict[str, Any]] | None = []

    def open(self, policy: Mapping[str, Any]) -> None:
        """Begin the transcript, with the calls that have waited for it."""
        waiting, self._waiting = self._waiting or [], None
        self._transcript = Transcript.start(str(self._run_id), policy=policy)
        for call in waiting:
            self._transcript.add(**call)
        self._save()

    def add(self, **call: Any) -> int:
        """Record a call and return its number."""
        number = self._transcript.add(**call)
        self.tally = self.tally.plus(self._transcript.pending_events[-1])
        self.outcomes.append(call["outcome"])
        if self._waiting is not None:
            self._waiting.append(call)
        self._save()
        return number

    def count_votes(self, **votes: Any) -> float:
        """Record the ballots on one rule; return the share that agreed."""
        agreement = self._transcript.count_votes(**votes)
        self._save()
        return agreement

    def review_proposal(self, **review: Any) -> None:
        """Record what a person made of a proposed decision."""
        self._transcript.review_proposal(**review)
        self._save()

    def _save(self) -> None:
        """Append what was written last; what waits is not to be durable."""
        if self._waiting is None:
            self._log.save(self._transcript)


class RecordedAnswers:
    """Usable answers of earlier calls to one endpoint, by the whole request."""

    def __init__(self, log: LedgerApplication, endpoint: str) -> None:
        self._log = log
        self._endpoint = endpoint
        self._next = 1
        self._answers: dict[str, str] = {}

    def find(self, request_sha256: str, /) -> str | None:
        """Return the hash of the newest usable response to that very request."""
        for each in self._log.notifications("transcript.call_made", start=self._next):
            call: Any = self._log.mapper.to_domain_event(each)
            if call.outcome == "usable" and call.endpoint == self._endpoint and call.response:
                self._answers[str(call.request)] = call.response
            self._next = each.id + 1
        return self._answers.get(request_sha256)


def read_tally(log: LedgerApplication, runs: Iterable[str]) -> Tally:
    """Return what the calls of some runs have come to."""
    tally = Tally()
    for run in runs:
        for event in log.events.get(Transcript.id_of(UUID(run))):
            if isinstance(event, Transcript.CallMade):
                tally = tally.plus(event)
    return tally
