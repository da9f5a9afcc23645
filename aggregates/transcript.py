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
from dataclasses import KW_ONLY, field
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate
from msgspec import Meta

from aggregates.campaign import MODE
from aggregates.declared import check, check_fields, one_of
from aggregates.errors import InvariantError
from aggregates.events import Cut, Event, First, OneOf, begins, counted, cut, records
from aggregates.playbook import NO_ACTION, REMEDIES
from aggregates.review import MARKS
from aggregates.rulebook import RULES

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
TOKENS = ("completion_tokens", "prompt_tokens", "total_tokens")  # of a call's usage
# Parts of them, recorded where a server tells them: where in its answer.
TOKEN_KINDS: Mapping[str, tuple[str, str]] = {
    "cached_tokens": ("prompt_tokens_details", "cached_tokens"),
    "reasoning_tokens": ("completion_tokens_details", "reasoning_tokens"),
}


class Transcript(Aggregate):
    """The calls of one run, rebuilt from their events."""

    class Started(First):
        """Whose calls a transcript has, of a run or a proposal, and the policy that makes them."""

        run: str  # the run, or the proposal
        _: KW_ONLY
        mode: str = MODE  # `iterative_self_refine`; for a proposal `gauntlet_evolution`
        policy: Mapping[str, Any]  # the policy's settings and how it asks, without secrets

        def stream(self) -> UUID:
            return Transcript.id_of(UUID(self.run))

    class CallMade(Event):
        """A request to a language model with its retries, or a step of another agent.

        Other agents are the playbook in a mixed policy and a person. For them, `model` and all
        fields about a model are null.
        """

        _: KW_ONLY
        number: int = counted(after="calls")  # from 1 in each transcript
        epoch: _Epoch | None = None  # decided on; null for a probe and without a run
        # `decider`, `voter 1` and so on, `prober`, `proposer`, `playbook` or `human`
        agent: Annotated[str, Cut(MAX_NAME)]
        # `probe`, `decide`, `propose` (a change), `repair` (asked again, naming the problem) or
        # `review`
        action: Annotated[str, one_of(ACTIONS)]
        rules: Sequence[Annotated[str, one_of(RULES)]] = ()  # the due rules in the question
        model: _Name | None = None  # model name sent to the server
        # scheme, host, port and path of the request, without user and query
        endpoint: Annotated[str, Meta(max_length=MAX_ENDPOINT)] | None = None
        # how the answer's format was requested: `json_schema`, `json_object`, `tool` or `prompt`
        rung: _Name | None = None
        parameters: Mapping[str, Any] = field(default_factory=dict)  # temperature, seed, limits
        request: _SHA256 | None = None  # blob of the request's body as canonical JSON
        request_bytes: _Count | None = None
        # blob of the body received, secrets removed; null: none came
        response: _SHA256 | None = None
        response_bytes: _Count | None = None
        status: _Status | None = None  # of HTTP; null if no response came
        # finish reason given by the server
        finish_reason: Annotated[str | None, Cut(MAX_NAME)] = None
        # `prompt_tokens`, `completion_tokens`, `total_tokens` as counted by the server; each may be
        # null; parts of the first two, if it tells them: `cached_tokens`, `reasoning_tokens`
        usage: Mapping[str, _Count | None] | None = None
        seconds: float = 0.0  # duration with all retries
        cost: float | None = None  # US dollars; null if no price is known
        # `status`, `error`, `waited` (seconds) of each attempt before the last
        retries: Sequence[Mapping[str, Any]] = ()
        outcome: Annotated[str, one_of(OUTCOMES)]  # what became of the answer
        problem: Annotated[str | None, Cut(MAX_TEXT)] = None  # the problem, at most 500 characters
        cached: bool = False  # whether the answer of an earlier, identical request was used

        def check(self, _: "Transcript") -> dict[str, Any]:
            if self.endpoint is not None and not _is_bare(self.endpoint):
                raise InvariantError(
                    "an endpoint must be recorded without user and query, which may be secret"
                )
            check_fields(self, InvariantError)
            if self.action not in (_TIMELESS if self.epoch is None else _DATED):
                raise InvariantError(
                    "a call must have an epoch unless it is a probe, a proposal or a proposal's "
                    "repair"
                )
            if self.model is None and (self.request or self.response or self.usage):
                raise InvariantError(
                    "only a call to a model may have a request, a response and tokens"
                )
            _check_parameters(self.parameters)
            usage = self.usage
            return {
                "usage": None
                if usage is None
                else {
                    key: usage.get(key)
                    for key in (*TOKENS, *TOKEN_KINDS)
                    if key in TOKENS or key in usage
                },
                "seconds": _amount("seconds", self.seconds),
                "cost": _amount("cost", self.cost),
                "retries": [_retry(retry) for retry in self.retries[:MAX_RETRIES]],
            }

        def apply(self, transcript: "Transcript") -> None:
            transcript.calls += 1

    class VoteCounted(Event):
        """The ballots of an ensemble for one rule, and the share that agreed.

        A ballot that holds no vote counts as `unusable`: it agrees with nothing.
        """

        _: KW_ONLY
        epoch: int  # the epoch decided on
        rule: str
        # number of ballots by direction; `unusable` counts ballots without a vote
        votes: Mapping[str, int]
        chosen: str | None  # the chosen direction; null if no vote was usable
        agreement: float = counted()  # share of all ballots for it
        calls: Sequence[int]  # numbers of the calls that returned the ballots

        def check(self, transcript: "Transcript") -> dict[str, Any]:
            check("epoch", self.epoch, _Epoch, InvariantError)
            votes, chosen = self.votes, self.chosen
            if self.rule not in RULES:
                raise InvariantError(f"votes must be for a rule, not for {self.rule!r:.80}")
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
            made = transcript.calls
            if not self.calls or not all(_is_count(n) and 1 <= n <= made for n in self.calls):
                raise InvariantError(
                    f"ballots must come from calls 1 to {made}, not {self.calls!r:.80}"
                )
            return {"agreement": votes[chosen] / sum(votes.values()) if chosen else 0.0}

    class ProposalReviewed(Event):
        """A person's verdict on a proposed decision.

        The resulting decision is `run.decision_made`.
        """

        _: KW_ONLY
        epoch: int  # the epoch decided on
        proposed: dict[str, Any]  # the decision that was proposed
        verdict: Annotated[str, OneOf("the verdict on a proposal", VERDICTS)]
        decision: dict[str, Any]  # the resulting decision
        mark: str | None = None  # `gold`, `bad` or null
        note: Annotated[str, Cut(MAX_TEXT)] = ""  # the person's note, at most 500 characters

        def check(self, _: "Transcript") -> None:
            check("epoch", self.epoch, _Epoch, InvariantError)
            if self.mark is not None and self.mark not in MARKS:
                raise InvariantError(f"a mark must be {' or '.join(MARKS)}, not {self.mark!r:.80}")
            if self.verdict == "approve" and self.decision != self.proposed:
                raise InvariantError("an approved decision must be recorded as it was proposed")
            if self.verdict == "reject" and self.decision["event_type"] != NO_ACTION:
                raise InvariantError(
                    f"a rejection must be recorded as {NO_ACTION}, not "
                    f"{self.decision['event_type']}"
                )

    calls: int = 0

    start = begins(Started)
    add = records(CallMade, lambda told: told.number)
    count_votes = records(VoteCounted, lambda told: told.agreement)
    review_proposal = records(ProposalReviewed)

    @staticmethod
    def id_of(run_id: UUID) -> UUID:
        """Return the id of a run's transcript."""
        return uuid5(run_id, "transcript")


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(parameters, allow_nan=False))
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
        "error": None if error is None else cut(str(error), MAX_NAME),
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
