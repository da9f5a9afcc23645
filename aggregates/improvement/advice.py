"""The advice block of a language model's prompt: proposals, what they were tested on, results.

One stream for each model. A checkpoint of this line is a text: the champion. A round proposes
another text, or says why it has none; it ends with the text promoted, or with the old one kept.
Nothing is deleted: a reset makes what was tried before history.

Trust: texts, reasons and problems can be a model's words; texts are checked by whoever proposes.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

OUTCOMES = (
    "promoted",
    "kept",  # the champion, after a comparison
    "nothing",  # there was nothing to act on, or nothing to be said about it
    "unusable",  # what was answered is no advice
    "unanswered",  # nobody answered, the writer or the scenarios
    "refused",  # the text is not allowed
    "abandoned",  # a reset closed it
)
ORDERS = ("on", "off", "reset")
ARMS = ("base", "candidate")
TRANSCRIPTS = ("writer", "tester")  # whose calls a round has
MAX_ADVICE = 4_000  # characters
MAX_TEXT = 2_000  # characters of a reason
_LINES = UUID("6f0d0c0e-52a5-5b0d-8d7e-6f3a3c6e9c21")  # namespace of the streams' ids


@dataclass(frozen=True)
class Tried:
    """A round that has ended, as later rounds need it."""

    round: int
    technique: str | None
    pattern: str | None
    outcome: str
    verdict: str | None
    level: float  # of error that was spent; 0.0: no repeats were looked at


class Advice(Aggregate):
    """The advice to one model, rebuilt from its events."""

    class Opened(Aggregate.Created):
        """Which model it is for."""

        model: str

    class Proposed(Aggregate.Event):
        """A text that is to be tested against the champion."""

        round: int
        version: int
        parent: int  # the champion's version
        campaign: str | None
        attempt: int | None  # after which it was proposed
        proposer: str
        technique: str
        pattern: str
        rationale: str
        text: str
        evidence: list[dict[str, Any]]

        def apply(self, aggregate: "Advice") -> None:
            """Open the round."""
            aggregate.versions = self.version
            aggregate.open = {key: value for key, value in vars(self).items() if key in _OPEN}
            aggregate.answers = []

    class Answered(Aggregate.Event):
        """Both texts' answers to one scenario, asked one after the other."""

        round: int
        scenario: str
        repeat: int
        seed: int
        first: str  # the arm that was asked first; the order is drawn
        base: dict[str, Any]
        candidate: dict[str, Any]

        def apply(self, aggregate: "Advice") -> None:
            """Keep the pair."""
            aggregate.answers.append(
                {name: getattr(self, name) for name in ("scenario", "repeat", "seed", *ARMS)}
            )

    class RoundEnded(Aggregate.Event):
        """What a round came to; `measured` is null where nothing was compared."""

        round: int
        campaign: str | None
        attempt: int | None
        proposer: str
        technique: str | None
        pattern: str | None
        version: int | None
        outcome: str
        reason: str
        calls: int
        measured: dict[str, Any] | None

        def apply(self, aggregate: "Advice") -> None:
            """Close the round; a promoted text is the champion."""
            measured = self.measured or {}
            if self.outcome == "promoted" and aggregate.open is not None:
                aggregate.champion = aggregate.open["text"]
                aggregate.champion_version = aggregate.open["version"]
            aggregate.open, aggregate.answers = None, []
            aggregate.rounds = self.round
            if self.campaign is not None and self.attempt is not None:
                aggregate.done[self.campaign, self.attempt] = self.round
            aggregate.tried.append(
                Tried(
                    self.round,
                    self.technique,
                    self.pattern,
                    self.outcome,
                    measured.get("verdict"),
                    measured.get("level", 0.0),
                )
            )

    class Steered(Aggregate.Event):
        """Somebody turned it on or off, or had it begin anew without advice."""

        order: str

        def apply(self, aggregate: "Advice") -> None:
            """Obey."""
            if self.order == "reset":
                aggregate.champion, aggregate.champion_version = "", 0
                aggregate.since = aggregate.rounds
            else:
                aggregate.on = self.order == "on"

    class ScenarioRecorded(Aggregate.Event):
        """A situation with its acceptable answers; a candidate until it is admitted."""

        name: str
        origin: str
        observation: dict[str, Any]
        expected: list[dict[str, Any]]
        admitted: bool

        def apply(self, aggregate: "Advice") -> None:
            """Keep it."""
            aggregate.scenarios[self.name] = {
                "observation": self.observation,
                "expected": self.expected,
                "origin": self.origin,
                "admitted": self.admitted,
            }

    class ScenarioAdmitted(Aggregate.Event):
        """A person lets a candidate count from the next round on."""

        name: str

        def apply(self, aggregate: "Advice") -> None:
            """Let it count."""
            aggregate.scenarios[self.name]["admitted"] = True

    model: str
    on: bool = field(default=True, init=False)
    champion: str = field(default="", init=False)
    champion_version: int = field(default=0, init=False)
    versions: int = field(default=0, init=False)  # that were proposed
    rounds: int = field(default=0, init=False)  # that have ended
    since: int = field(default=0, init=False)  # rounds up to this one are history
    open: dict[str, Any] | None = field(default=None, init=False)  # what is being tested
    answers: list[dict[str, Any]] = field(default_factory=list, init=False)  # of the open round
    tried: list[Tried] = field(default_factory=list, init=False)
    done: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    scenarios: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    @staticmethod
    def id_of(model: str) -> UUID:
        """Return the id of the advice to a model."""
        return uuid5(_LINES, model)

    @classmethod
    def opened(cls, model: str) -> "Advice":
        """Begin the advice to a model, which has none."""
        return cls._create(event_class=cls.Opened, id=cls.id_of(model), model=model)

    def transcript_of(self, number: int, agent: str) -> UUID:
        """Return whose transcript a round's calls are in; the agent is one of TRANSCRIPTS."""
        return uuid5(self.id, f"round {number}, {agent}")

    def propose(
        self,
        text: str,
        *,
        proposer: str,
        technique: str,
        pattern: str,
        rationale: str,
        evidence: Sequence[Mapping[str, Any]] = (),
        campaign: str | None = None,
        attempt: int | None = None,
    ) -> None:
        """Record a text that is to be tested against the champion."""
        if self.open is not None:
            raise InvariantError(
                f"round {self.rounds + 1} has not ended; end it before the next proposal"
            )
        if len(text) > MAX_ADVICE:
            raise InvariantError(
                f"an advice block has at most {MAX_ADVICE} characters, not {len(text)}"
            )
        if text == self.champion:
            raise InvariantError("the proposed text is the same as the champion")
        self.trigger_event(
            self.Proposed,
            round=self.rounds + 1,
            version=self.versions + 1,
            parent=self.champion_version,
            campaign=campaign,
            attempt=attempt,
            proposer=proposer,
            technique=technique,
            pattern=pattern,
            rationale=_cut(rationale),
            text=text,
            evidence=[dict(each) for each in evidence],
        )

    def answer(
        self,
        scenario: str,
        *,
        repeat: int,
        seed: int,
        first: str,
        base: Mapping[str, Any],
        candidate: Mapping[str, Any],
    ) -> None:
        """Record both texts' answers to a scenario."""
        if self.open is None:
            raise InvariantError("no text is being tested")
        if any(each["scenario"] == scenario and each["repeat"] == repeat for each in self.answers):
            raise InvariantError(f"repeat {repeat} of scenario {scenario} already has an answer")
        self.trigger_event(
            self.Answered,
            round=self.rounds + 1,
            scenario=scenario,
            repeat=repeat,
            seed=seed,
            first=first,
            base=dict(base),
            candidate=dict(candidate),
        )

    def end_round(
        self,
        outcome: str,
        *,
        reason: str,
        proposer: str,
        technique: str | None = None,
        pattern: str | None = None,
        calls: int = 0,
        campaign: str | None = None,
        attempt: int | None = None,
        measured: Mapping[str, Any] | None = None,
    ) -> None:
        """Record what a round came to; what is open belongs to the round."""
        if outcome not in OUTCOMES:
            raise InvariantError(
                f"a round's outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r:.80}"
            )
        if not reason:
            raise InvariantError("a round must give a reason")
        compared = outcome in ("promoted", "kept")
        if compared != (measured is not None) or (compared and self.open is None):
            raise InvariantError(
                "a round that ends as promoted or kept needs a proposed text and its measurements; "
                "a round with another outcome has no measurements"
            )
        opened = self.open or {}
        self.trigger_event(
            self.RoundEnded,
            round=self.rounds + 1,
            campaign=opened.get("campaign", campaign),
            attempt=opened.get("attempt", attempt),
            proposer=opened.get("proposer", proposer),
            technique=opened.get("technique", technique),
            pattern=opened.get("pattern", pattern),
            version=opened.get("version"),
            outcome=outcome,
            reason=_cut(reason),
            calls=calls,
            measured=None if measured is None else dict(measured),
        )

    def steer(self, order: str) -> None:
        """Turn it on or off, or begin anew; nothing is deleted."""
        if order not in ORDERS:
            raise InvariantError(f"an order must be one of {', '.join(ORDERS)}, not {order!r:.80}")
        if order == "reset" and self.open is not None:
            raise InvariantError("a text is being tested: end its round first")
        self.trigger_event(self.Steered, order=order)

    def record_scenario(
        self,
        name: str,
        *,
        origin: str,
        observation: Mapping[str, Any],
        expected: Sequence[Mapping[str, Any]],
        admitted: bool,
    ) -> None:
        """Keep a situation with its acceptable answers."""
        if name in self.scenarios:
            raise InvariantError(f"scenario {name} is already recorded")
        self.trigger_event(
            self.ScenarioRecorded,
            name=name,
            origin=origin,
            observation=dict(observation),
            expected=[dict(each) for each in expected],
            admitted=admitted,
        )

    def admit_scenario(self, name: str) -> None:
        """Let a candidate count from the next round on."""
        if self.open is not None:
            raise InvariantError("a text is being tested: its scenarios stay as they are")
        if name not in self.scenarios:
            raise InvariantError(f"there is no scenario {name!r:.80}")
        if self.scenarios[name]["admitted"]:
            raise InvariantError(f"scenario {name} is already admitted")
        self.trigger_event(self.ScenarioAdmitted, name=name)


_OPEN = ("version", "campaign", "attempt", "proposer", "technique", "pattern", "text")


def _cut(text: str) -> str:
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
