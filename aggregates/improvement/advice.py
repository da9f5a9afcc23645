"""The advice block of a language model's prompt: proposals, what they were tested on, results.

One stream for each model. A checkpoint of this line is a text: the champion. A round proposes
another text, or says why it has none; it ends with the text promoted, or with the old one kept.
Nothing is deleted: a reset makes what was tried before history.

Trust: texts, reasons and problems can be a model's words; texts are checked by whoever proposes.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Annotated, Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Cut, Event, First, OneOf, begins, counted, records

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


class Advice(Aggregate):
    """The advice to one model, rebuilt from its events."""

    class Opened(First):
        """The model that an advice block is for."""

        model: str

        def stream(self) -> UUID:
            return Advice.id_of(self.model)

    class Proposed(Event):
        """An advice block that is to be tested against the champion."""

        _: KW_ONLY
        round: int = counted(after="rounds")
        version: int = counted(after="versions")  # from 1; version 0 is the empty block
        parent: int = counted("champion_version")  # the version that it is to replace
        campaign: str | None = None  # the campaign; null: outside of one
        attempt: int | None = None  # the attempt after which it was proposed, or null
        proposer: str  # `template`, or the model that wrote the text
        technique: str  # how it was written
        pattern: str  # the error pattern that it is about
        rationale: Annotated[str, Cut(MAX_TEXT)]
        text: str = field(kw_only=False)  # the whole block, at most 4,000 characters
        evidence: Sequence[Mapping[str, Any]] = ()  # what shows the pattern

        def check(self, advice: "Advice") -> None:
            if advice.open is not None:
                raise InvariantError(
                    f"round {self.round} has not ended; end it before the next proposal"
                )
            if len(self.text) > MAX_ADVICE:
                raise InvariantError(
                    f"an advice block has at most {MAX_ADVICE} characters, not {len(self.text)}"
                )
            if self.text == advice.champion:
                raise InvariantError("the proposed text is the same as the champion")

        def apply(self, advice: "Advice") -> None:
            advice.versions = self.version
            advice.open = self
            advice.answers = []

    class Answered(Event):
        """Both texts' answers to one scenario, asked one after the other."""

        round: int = counted(after="rounds")
        scenario: str
        _: KW_ONLY
        repeat: int  # number of the pair, from 0
        seed: int  # drawn for the pair
        first: str  # the arm that was asked first, `base` or `candidate`; the order is drawn
        # with the champion: an object with `success`, `valid` (every due rule has a usable answer),
        # `missing` (no answer at all) and `problem`
        base: Mapping[str, Any]
        candidate: Mapping[str, Any]  # likewise, with the proposed text

        def check(self, advice: "Advice") -> None:
            if advice.open is None:
                raise InvariantError("no text is being tested")
            asked = (self.scenario, self.repeat)
            if any((each.scenario, each.repeat) == asked for each in advice.answers):
                raise InvariantError(
                    f"repeat {self.repeat} of scenario {self.scenario} already has an answer"
                )

        def apply(self, advice: "Advice") -> None:
            advice.answers.append(self)

    class RoundEnded(Event):
        """A round of tuning an advice block, and its outcome."""

        _: KW_ONLY
        round: int = counted(after="rounds")
        campaign: str | None = None  # the campaign; null: outside of one
        attempt: int | None = None
        proposer: str
        technique: str | None = None  # how the text was written; null if none was chosen
        pattern: str | None = None  # the error pattern; null if none was chosen
        version: int | None = counted()  # the text that was tested; null: none
        outcome: Annotated[str, OneOf("a round's outcome", OUTCOMES)] = field(kw_only=False)
        reason: Annotated[str, Cut(MAX_TEXT)]
        calls: int = 0  # to language models; they are in transcripts
        measured: Mapping[str, Any] | None = None  # the comparison; null: there was none

        def check(self, advice: "Advice") -> dict[str, Any]:
            """Take from the open proposal what it has said of itself."""
            if not self.reason:
                raise InvariantError("a round must give a reason")
            compared = self.outcome in ("promoted", "kept")
            measured = self.measured is not None
            if compared != measured or (compared and advice.open is None):
                raise InvariantError(
                    "a round that ends as promoted or kept needs a proposed text and its "
                    "measurements; a round with another outcome has no measurements"
                )
            if advice.open is None:
                return {"version": None}
            return {name: getattr(advice.open, name) for name in _OPEN}

        def apply(self, advice: "Advice") -> None:
            """Close the round; a promoted text is the champion."""
            if self.outcome == "promoted" and advice.open is not None:
                advice.champion = advice.open.text
                advice.champion_version = advice.open.version
            advice.open, advice.answers = None, []
            advice.rounds = self.round
            advice.tried.append(self)

    class Steered(Event):
        """An order to turn the tuning on or off, or to begin anew; nothing is deleted."""

        # `on`, `off` or `reset` (the block is empty again, and earlier rounds no longer count)
        order: Annotated[str, OneOf("an order", ORDERS)]

        def check(self, advice: "Advice") -> None:
            if self.order == "reset" and advice.open is not None:
                raise InvariantError("a text is being tested: end its round first")

        def apply(self, advice: "Advice") -> None:
            if self.order == "reset":
                advice.champion, advice.champion_version = "", 0
                advice.since = advice.rounds
            else:
                advice.on = self.order == "on"

    class ScenarioRecorded(Event):
        """A situation with its acceptable answers."""

        name: str  # the scenario
        _: KW_ONLY
        origin: str  # where it comes from
        observation: Mapping[str, Any]  # the situation
        # for each due rule, an object with `rule` and `acts`; no acts: the rule has to wait
        expected: Sequence[Mapping[str, Any]]
        admitted: bool  # whether it counts; false: it is a candidate

        def check(self, advice: "Advice") -> None:
            if self.name in advice.scenarios:
                raise InvariantError(f"scenario {self.name} is already recorded")

        def apply(self, advice: "Advice") -> None:
            keys = ("observation", "expected", "origin", "admitted")
            advice.scenarios[self.name] = {key: getattr(self, key) for key in keys}

    class ScenarioAdmitted(Event):
        """A person lets a candidate count from the next round on."""

        name: str  # the candidate that counts from the next round on

        def check(self, advice: "Advice") -> None:
            if advice.open is not None:
                raise InvariantError("a text is being tested: its scenarios stay as they are")
            if self.name not in advice.scenarios:
                raise InvariantError(f"there is no scenario {self.name!r:.80}")
            if advice.scenarios[self.name]["admitted"]:
                raise InvariantError(f"scenario {self.name} is already admitted")

        def apply(self, advice: "Advice") -> None:
            advice.scenarios[self.name]["admitted"] = True

    model: str
    on: bool = True
    champion: str = ""
    champion_version: int = 0
    versions: int = 0  # that were proposed
    rounds: int = 0  # that have ended
    since: int = 0  # rounds up to this one are history
    open: Proposed | None = None  # what is being tested
    answers: list[Answered] = field(default_factory=list)  # of the open round
    tried: list[RoundEnded] = field(default_factory=list)
    scenarios: dict[str, dict[str, Any]] = field(default_factory=dict)

    opened = begins(Opened)
    propose = records(Proposed)
    answer = records(Answered)
    end_round = records(RoundEnded)
    steer = records(Steered)
    record_scenario = records(ScenarioRecorded)
    admit_scenario = records(ScenarioAdmitted)

    @staticmethod
    def id_of(model: str) -> UUID:
        """Return the id of the advice to a model."""
        return uuid5(_LINES, model)

    def transcript_of(self, number: int, agent: str) -> UUID:
        """Return whose transcript a round's calls are in; the agent is one of TRANSCRIPTS."""
        return uuid5(self.id, f"round {number}, {agent}")


_OPEN = ("version", "campaign", "attempt", "proposer", "technique", "pattern")
