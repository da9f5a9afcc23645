"""The human policy: a person at a terminal approves, edits or rejects what another policy proposes.

Approved words stay their author's; edits and rejections are the person's own. A proposal can be
marked gold or bad with a note; the marks are events, for later use.

Trust: proposals may come from a model and are shown as JSON strings, so that no text moves the
cursor or feigns a prompt. What is typed is hostile until it has been validated.
I/O: the console and the log that are passed in.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from aggregates.decisions import Decision, Observation, Said, parse_decision, validate_decision
from aggregates.errors import DecisionError
from aggregates.playbook import DEFER, REMEDIES
from ledger.strict_json import JSONError, read_json
from policies.asking.prompt import quoted, situation
from policies.calls import CallLog
from policies.deciding.mixed import Proposer
from policies.errors import PolicyError

_HISTORY = 8  # epochs shown
_MOST_WORDS = 4_000  # bytes of a proposal's justification
_KEYS = "[a]pprove, [e]dit, [r]eject, or mark it [g]old or [b]ad first: "
_HOW_TO_EDIT = (
    'The decision as JSON, for example {"direction": "decrease_lr", "params": {"lr": 0.01}, '
    '"justification": "..."}; direction and params stay if left out.'
)
_MOST_LINES = 30  # that are asked for on one proposal; a decision with a mark takes four
_LONGEST_LINE = 2**20  # characters
_MARKS = {"b": "bad", "g": "gold"}


class Console(Protocol):
    """Where a person reads and types."""

    def show(self, text: str, /) -> None:
        """Show text."""

    def ask(self, prompt: str, /) -> str:
        """Return the line that is typed; raises EOFError where no more will come."""


class Terminal:
    """The console on two streams of text."""

    def __init__(self, reader: TextIO, writer: TextIO) -> None:
        self._reader = reader
        self._writer = writer

    def show(self, text: str) -> None:
        """Write text as a line."""
        self._writer.write(text + "\n")
        self._writer.flush()

    def ask(self, prompt: str) -> str:
        """Write the prompt and read a line."""
        self._writer.write(prompt)
        self._writer.flush()
        try:
            line = self._reader.readline(_LONGEST_LINE)
        except UnicodeDecodeError:
            return "\N{REPLACEMENT CHARACTER}"  # no answer to any question
        if not line:
            self.show("")
            raise EOFError
        if len(line) == _LONGEST_LINE:
            raise PolicyError(f"a line has {_LONGEST_LINE:,} characters or more; nobody typed that")
        return line.strip()


def _patient(ask: Callable[[str], str]) -> Callable[[str], str]:
    """Return what asks for so many lines at most."""
    left = iter(range(_MOST_LINES))

    def asked(prompt: str) -> str:
        if next(left, None) is None:
            raise PolicyError(
                f"no decision after {_MOST_LINES} lines of input on one proposal; answer with one "
                "of the keys that are shown"
            )
        return ask(prompt)

    return asked


class HumanPolicy:
    """Puts each decision of `proposer` before a person."""

    name = "human"

    def __init__(self, proposer: Proposer, *, console: Console, log: CallLog) -> None:
        self._proposer = proposer
        self._console = console
        self._log = log

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {"name": self.name, "proposer": self._proposer.describe()}

    def decide(self, observation: Observation) -> list[Said]:
        """Return what the person makes of each proposal; raises PolicyError at the end of input."""
        proposals = self._proposer.decide(observation)
        self._console.show(situation(observation, _HISTORY))
        try:
            return [
                self._review(
                    proposal if isinstance(proposal, Said) else Said(proposal), observation
                )
                for proposal in proposals
            ]
        except EOFError:
            raise PolicyError("no terminal: the input has ended, so nobody can decide") from None

    def _review(self, proposal: Said, seen: Observation) -> Said:
        began = time.monotonic()
        verdict, said, mark, note = self._ask(proposal, seen)
        self._log.add(
            agent=self.name,
            action="review",
            outcome="usable",
            epoch=seen.epoch,
            rules=proposal.decision.cites,
            seconds=time.monotonic() - began,
        )
        self._log.review_proposal(
            epoch=seen.epoch,
            proposed=proposal.decision.to_dict(),
            verdict=verdict,
            decision=said.decision.to_dict(),
            mark=mark,
            note=note,
        )
        return said

    def _ask(self, proposal: Said, seen: Observation) -> tuple[str, Said, str | None, str]:
        """Return the verdict, what is said then, and the mark of the proposal with its note."""
        proposed = proposal.decision
        self._console.show(
            f"\nProposed for {', '.join(proposed.cites)} by {proposal.source}: "
            f"{proposed.direction} {json.dumps(dict(proposed.params))}\n"
            f"said: {quoted(proposed.justification, _MOST_WORDS)}"
        )
        ask, mark, note = _patient(self._console.ask), None, ""
        while True:
            key = ask(_KEYS).lower()[:1]
            if key == "a":
                return "approve", proposal, mark, note
            if key in _MARKS:
                mark, note = _MARKS[key], ask("note: ")
            elif key == "e":
                self._console.show(_HOW_TO_EDIT)
                own = self._valid(lambda: read_edit(ask("decision: "), proposed), seen)
                return "edit", own, mark, note
            elif key == "r":
                own = self._valid(lambda: _left(proposed, ask("reason: ")), seen)
                return "reject", own, mark, note
            elif key:
                self._console.show(f"{quoted(key, 8)} is not a valid answer")

    def _valid(self, read: Callable[[], Decision], seen: Observation) -> Said:
        """Return the person's own decision; asks until it is one that fits."""
        while True:
            try:
                decision = read()
                validate_decision(decision, seen)
            except DecisionError as error:
                self._console.show(f"not accepted: {quoted(str(error), _MOST_WORDS)}")
            else:
                return Said(decision, "human")


def _left(proposed: Decision, reason: str) -> Decision:
    """Return the decision to leave the rules of `proposed` alone."""
    return parse_decision(Decision.of(proposed.cites, DEFER, {}, reason).to_dict())


def read_edit(line: str, proposed: Decision) -> Decision:
    """Return `proposed` as a line of JSON changes it; raises DecisionError saying what is wrong."""
    try:
        value = read_json(line)
    except JSONError as error:
        raise DecisionError(f"not JSON: {error}") from error
    known = {"direction", "params", "justification"}
    if not isinstance(value, Mapping) or not set(value) <= known:
        raise DecisionError(
            f"an edit must be a JSON object with the keys {', '.join(sorted(known))} only"
        )
    if "justification" not in value:
        raise DecisionError("an edit must have its own justification")
    changed = {**proposed.to_dict(), **value}
    if "direction" in value and "params" not in value:
        changed["params"] = {}
    if isinstance(changed["direction"], str) and changed["direction"] in REMEDIES:
        changed["event_type"] = REMEDIES[changed["direction"]].event_type
    return parse_decision(changed)
