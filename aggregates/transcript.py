"""The transcript: every request to a language model in a run, and its result.

One stream for each run. Prompts and answers are kept as blobs and named here by their hashes. What
answers without a model (the playbook in a mixed policy, a person) is a call without request,
response and tokens, so that who did what for how long can be read from one place.

Trust: problems, reasons and token counts come from servers; texts are cut, numbers are bounded.
I/O: none.  Units: seconds, bytes, tokens, US dollars; epochs from 0.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate
from msgspec import Meta

from aggregates.campaign import MODE
from aggregates.decisions import Decision
from aggregates.declared import check, check_fields, one_of
from aggregates.errors import InvariantError
from aggregates.playbook import NO_ACTION, REMEDIES
from aggregates.review import MARKS
from aggregates.rules import RULES

ACTIONS = ("decide", "probe", "propose", "repair", "review")
_TIMELESS = ("probe", "propose", "repair")  # what can belong to no epoch
_DATED = ("decide", "repair", "review")  # what can belong to an epoch; a repair: as what it repairs
OUTCOMES = (
    "usable",  # became decisions
    "unusable",  # came back whole, and is no decision
    "refused",  # by the model, in words
    "truncated",  # for want of tokens
    "too_large",  # not read to its end
    "timeout",
    "rate_limited",
    "server_error",
    "rejected",  # with any other status from 400 to 499
    "dropped",  # the connection broke
    "unreachable",
)
VERDICTS = ("approve", "edit", "reject")
UNUSABLE = "unusable"  # a ballot that holds no vote
# All together fit into an entry, with four bytes to a character.
MAX_TEXT = 500  # characters of a problem or a note
MAX_NAME = 200  # characters of an agent, a model, a reason to finish or a retry's error
MAX_ENDPOINT = 500  # characters
MAX_RETRIES = 32
MAX_PARAMETERS = 4_000  # characters as JSON
_MAX_COUNT = 2**53  # beyond it JSON readers disagree on whole numbers
_Count = Annotated[int, Meta(ge=0, le=_MAX_COUNT)]
_Epoch = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Name = Annotated[str, Meta(max_length=MAX_NAME)]
_SHA256 = Annotated[
    str, Meta(pattern=r"\A[0-9a-f]{64}\Z", extra={"allowed": "given by its SHA-256"})
]
_Status = Annotated[int, Meta(ge=0, le=999)]
_USAGE = ("completion_tokens", "prompt_tokens", "total_tokens")


@dataclass(frozen=True)
class Call:
    """One request with its retries, or one step of an agent that is no model."""

    agent: str  # decider, voter 2, prober, playbook, human
    action: Annotated[str, one_of(ACTIONS)]
    outcome: Annotated[str, one_of(OUTCOMES)]
    epoch: _Epoch | None = None  # None for a probe and for what is asked of no run
    rules: tuple[Annotated[str, one_of(RULES)], ...] = ()  # the due rules asked about
    model: _Name | None = None
    # scheme://host:port/path, nothing secret
    endpoint: Annotated[str, Meta(max_length=MAX_ENDPOINT)] | None = None
    rung: _Name | None = None  # how the form of the answer was asked for
    parameters: Mapping[str, Any] = field(default_factory=dict)
    request: _SHA256 | None = None  # of the stored body
    request_bytes: _Count | None = None
    response: _SHA256 | None = None  # of the stored body, secrets struck out
    response_bytes: _Count | None = None
    status: _Status | None = None  # of HTTP
    finish_reason: str | None = None
    usage: Mapping[str, _Count | None] | None = None
    seconds: float = 0.0
    cost: float | None = None  # None: unknown
    retries: tuple[Mapping[str, Any], ...] = ()  # {status, error, waited} of each
    problem: str | None = None
    cached: bool = False  # answered by an earlier call's response


class Transcript(Aggregate):
    """The calls of one run, rebuilt from their events."""

    class Started(Aggregate.Created):
        """Whose calls they are, and the policy that makes them."""

        run: str
        mode: str
        policy: dict[str, Any]

    class CallMade(Aggregate.Event):
        """One call: what was asked, answered and made of it."""

        number: int
        epoch: int | None
        agent: str
        action: str
        rules: list[str]
        model: str | None
        endpoint: str | None
        rung: str | None
        parameters: dict[str, Any]
        request: str | None
        request_bytes: int | None
        response: str | None
        response_bytes: int | None
        status: int | None
        finish_reason: str | None
        usage: dict[str, int | None] | None
        seconds: float
        cost: float | None
        retries: list[dict[str, Any]]
        outcome: str
        problem: str | None
        cached: bool

        def apply(self, aggregate: "Transcript") -> None:
            """Count the call."""
            aggregate.calls += 1

    class VoteCounted(Aggregate.Event):
        """What an ensemble made of one rule."""

        epoch: int
        rule: str
        votes: dict[str, int]
        chosen: str | None
        agreement: float
        calls: list[int]

    class ProposalReviewed(Aggregate.Event):
        """What a person made of a proposed decision before it was said."""

        epoch: int
        proposed: dict[str, Any]
        verdict: str
        decision: dict[str, Any]
        mark: str | None
        note: str

    def __init__(self, run: str, mode: str, policy: dict[str, Any]) -> None:
        self.run = run
        self.mode = mode
        self.policy = policy
        self.calls = 0

    @staticmethod
    def id_of(run_id: UUID) -> UUID:
        """Return the id of a run's transcript."""
        return uuid5(run_id, "transcript")

    @classmethod
    def start(cls, run_id: UUID, *, policy: Mapping[str, Any], mode: str = MODE) -> "Transcript":
        """Open the transcript of a run, or of a proposal: then its id is given."""
        return cls._create(
            event_class=cls.Started,
            id=cls.id_of(run_id),
            run=str(run_id),
            mode=mode,
            policy=dict(policy),
        )

    def add(self, call: Call) -> int:
        """Record a call and return its number; raises InvariantError for one that cannot be."""
        _check_call(call)
        number = self.calls + 1
        values = {
            **vars(call),
            "rules": list(call.rules),
            "parameters": dict(call.parameters),
            "agent": _cut(call.agent, MAX_NAME),
            "finish_reason": _cut(call.finish_reason, MAX_NAME),
            "problem": _cut(call.problem, MAX_TEXT),
            "usage": None if call.usage is None else {key: call.usage.get(key) for key in _USAGE},
            "seconds": _amount("seconds", call.seconds),
            "cost": _amount("cost", call.cost),
            "retries": [_retry(retry) for retry in call.retries[:MAX_RETRIES]],
        }
        self.trigger_event(self.CallMade, number=number, **values)
        return number

    def count_votes(
        self,
        *,
        epoch: int,
        rule: str,
        votes: Mapping[str, int],
        chosen: str | None,
        calls: Sequence[int],
    ) -> float:
        """Record the ballots on one rule, by direction; return the share that agreed.

        A ballot that holds no vote counts as `unusable`: it agrees with nothing.
        """
        check("epoch", epoch, _Epoch, InvariantError)
        if rule not in RULES:
            raise InvariantError(f"votes must be for a rule, not for {rule!r:.80}")
        if not votes or not all(
            (direction in REMEDIES or direction == UNUSABLE) and _is_count(count) and count > 0
            for direction, count in votes.items()
        ):
            raise InvariantError(f"votes must be counts of directions, not {votes!r:.200}")
        usable = [direction for direction in votes if direction != UNUSABLE]
        if chosen not in usable if usable else chosen is not None:
            raise InvariantError(
                f"chosen must be one of the directions voted for, not {chosen!r:.80}"
            )
        if not calls or not all(
            _is_count(number) and 1 <= number <= self.calls for number in calls
        ):
            raise InvariantError(
                f"ballots must come from calls 1 to {self.calls}, not {calls!r:.80}"
            )
        agreement = votes[chosen] / sum(votes.values()) if chosen else 0.0
        self.trigger_event(
            self.VoteCounted,
            epoch=epoch,
            rule=rule,
            votes=dict(votes),
            chosen=chosen,
            agreement=agreement,
            calls=list(calls),
        )
        return agreement

    def review_proposal(
        self,
        *,
        epoch: int,
        proposed: Decision,
        verdict: str,
        decision: Decision,
        mark: str | None = None,
        note: str = "",
    ) -> None:
        """Record what a person made of a proposed decision."""
        check("epoch", epoch, _Epoch, InvariantError)
        if verdict not in VERDICTS:
            raise InvariantError(
                f"the verdict on a proposal must be one of {', '.join(VERDICTS)}, not "
                f"{verdict!r:.80}"
            )
        if mark is not None and mark not in MARKS:
            raise InvariantError(f"a mark must be {' or '.join(MARKS)}, not {mark!r:.80}")
        if verdict == "approve" and decision != proposed:
            raise InvariantError("an approved decision must be recorded as it was proposed")
        if verdict == "reject" and decision.event_type != NO_ACTION:
            raise InvariantError(
                f"a rejection must be recorded as {NO_ACTION}, not {decision.event_type}"
            )
        self.trigger_event(
            self.ProposalReviewed,
            epoch=epoch,
            proposed=proposed.to_dict(),
            verdict=verdict,
            decision=decision.to_dict(),
            mark=mark,
            note=_cut(note, MAX_TEXT),
        )


def _check_call(call: Call) -> None:
    if call.endpoint is not None and not _is_bare(call.endpoint):
        raise InvariantError(
            "an endpoint must be recorded without user and query, which may be secret"
        )
    check_fields(call, InvariantError)
    if call.action not in (_TIMELESS if call.epoch is None else _DATED):
        raise InvariantError(
            "a call must have an epoch unless it is a probe, a proposal or a proposal's repair"
        )
    if call.model is None and (call.request or call.response or call.usage):
        raise InvariantError("only a call to a model may have a request, a response and tokens")
    try:
        size = len(json.dumps(dict(call.parameters), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvariantError(f"parameters cannot be written as JSON: {error}") from error
    if size > MAX_PARAMETERS:
        raise InvariantError(f"parameters have {size} characters; the maximum is {MAX_PARAMETERS}")


def _amount(what: str, amount: float | None) -> float | None:
    if amount is None:
        return None
    if not (math.isfinite(amount) and amount >= 0):
        raise InvariantError(f"{what} must be a finite number of at least 0, not {amount!r:.80}")
    return float(amount)


def _retry(retry: Mapping[str, Any]) -> dict[str, Any]:
    status, error, waited = (retry.get(key) for key in ("status", "error", "waited"))
    check("status", status, _Status | None, InvariantError)
    return {
        "status": status,
        "error": None if error is None else _cut(str(error), MAX_NAME),
        "waited": _amount("waited", waited),
    }


def _is_bare(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return False
    return "@" not in parts.netloc and not parts.query and not parts.fragment


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= _MAX_COUNT


def _cut(text: str | None, limit: int) -> str | None:
    """Return at most `limit` characters, all of which UTF-8 can hold."""
    if text is None:
        return None
    return text[:limit].encode("utf-8", "replace").decode("utf-8")
