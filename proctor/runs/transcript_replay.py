"""Decisions derived again from what is recorded of a model and of a person, without either.

The policy itself is asked again, over the observations of the second training. Its client answers
from the recorded bodies, so that every request has to follow from what was observed, every outcome
from the answer, and every decision from both. At its console the recorded verdicts are typed again.
A run that an earlier version asked in other words is read as it was read then, and its requests are
not made again.

Trust: the record is hostile; bodies are held against their hashes.
I/O: reads blobs.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

from aggregates.decisions import Decision, Observation, Said
from aggregates.errors import AggregateError
from aggregates.registry import REGISTRY
from aggregates.run import OWN_ENDS, Run
from aggregates.transcript import Transcript
from judge.auditing.events import HOSTILE
from judge.compare import Difference, differences
from ledger.blobs import Blobs
from ledger.errors import LedgerError
from ledger.mapper import recorded_fields
from ledger.wording import counted
from policies.asking.completion import Completion, read_body
from policies.asking.settings import VERSION, ModelSettings
from policies.deciding.catalogue import create_policy
from policies.deciding.human import HumanPolicy
from policies.deciding.language_model import LanguageModelPolicy
from policies.deciding.mixed import MixedPolicy
from policies.deciding.recorded import RecordedPolicy
from policies.errors import PolicyError
from proctor.runs.policies import HUMAN, MIXED, OPENAI, model_policy
from proctor.runs.training import Told

_IGNORED = ("cost", "retries", "seconds")  # what another day and place make different
_WORDS = ("request", "request_bytes")  # what another version words differently
_ODD = (*HOSTILE, AggregateError, LedgerError, PolicyError)  # what odd records raise
_READ = ("refused", "truncated", "unusable", "usable")  # outcomes that follow from the body


class RecordedCalls:
    """The model and the memory of then: asks nobody, and writes the transcript once more."""

    def __init__(self, run_id: UUID, events: Sequence[Any], blobs: Blobs) -> None:
        self.policy: Mapping[str, Any] = events[0].policy
        asked = self.policy.get("proposer", self.policy)
        self.version = asked.get("version", 1)
        # The form of exports has the same words in each version.
        self.same_words = self.version == VERSION or asked.get("form") == "exported"
        self.reviews = [each for each in events if type(each) is Transcript.ProposalReviewed]
        self.transcript = Transcript.start(str(run_id), policy=self.policy)
        self._recorded = events
        self._calls = [event for event in events if type(event) is Transcript.CallMade]
        self._blobs = blobs
        self.probed = any(call.action == "probe" for call in self._calls)  # for the rung
        # One policy asks one endpoint: another one further on is a difference.
        self.endpoint: str = next((call.endpoint for call in self._calls if call.endpoint), "")

    @property
    def count(self) -> int:
        """How many calls to a model were made again so far."""
        return sum(call.model is not None for call in self._calls[: self.transcript.calls])

    def ask(self, _: bytes) -> Completion:
        """Return what was answered then to the call that is made now."""
        call = self._now()
        if call is None:
            return Completion("unreachable", problem="no such call is recorded")
        body = None if call.response is None else self._blobs.get(call.response)
        if body is not None and call.outcome in _READ:
            return read_body(body, status=call.status, early=self.version == 1)
        failed = Completion(call.outcome, status=call.status, body=body)
        if body is not None:
            early = self.version == 1
            failed = read_body(body, status=call.status, outcome=call.outcome, early=early)
        return replace(failed, problem=call.problem)

    def find(self, _: str, /) -> str | None:
        """Return the remembered answer if there was one then."""
        call = self._now()
        found: str | None = call.response if call is not None and call.cached else None
        return found

    def put(self, content: bytes, /) -> str:
        """Return the hash of bytes, which are kept already if they are those of then."""
        return hashlib.sha256(content).hexdigest()

    def get(self, digest: str, /) -> bytes:
        """Return kept bytes."""
        return self._blobs.get(digest)

    def compare(self, *, without: int | None) -> Iterator[Difference]:
        """Yield where the transcript comes out another, apart from one epoch."""
        recorded = [
            event
            for event in self._recorded
            if without is None or getattr(event, "epoch", None) != without
        ]
        again = list(self.transcript.collect_events())
        if len(again) != len(recorded):
            yield Difference("transcript, number of events", len(recorded), len(again))
        for number, (old, new) in enumerate(zip(recorded, again, strict=False)):
            name = REGISTRY.for_class(type(old)).name
            ignored = _IGNORED if self.same_words else (*_IGNORED, *_WORDS)
            told = [_told(each, ignored) for each in (old, new)]
            yield from differences(*told, place=f"transcript {number} {name}")

    def missing(self) -> Iterator[Difference]:
        """Yield bodies that are not there any more, or were changed."""
        for call in self._calls:
            for what in ("request", "response"):
                if (digest := getattr(call, what)) is not None:
                    try:
                        self._blobs.get(digest)
                    except LedgerError as error:
                        yield Difference(f"call {call.number} {what}", digest, str(error))

    def _now(self) -> Any:
        number = self.transcript.calls
        return self._calls[number] if number < len(self._calls) else None


class CheckedPolicy(RecordedPolicy):
    """Says what was said then, and notes where the policy would say something else."""

    def __init__(
        self,
        run: Run,
        calls: RecordedCalls | None,
        told: Told,
    ) -> None:
        super().__init__(run.decisions, run.policy)
        self.found: list[Difference] = []
        self._calls = calls
        self._cut_off = None if run.end_reason in OWN_ENDS else run.epoch  # what never ended
        self._since = run.own_from  # what a fork repeats from its parent, others have said
        self._policy = None
        if (asks := run.policy["name"] in (HUMAN, MIXED, OPENAI)) != (calls is not None):
            why = f"there must be {'one' if asks else 'none'} beside {run.policy['name']}"
            self.found.append(Difference("transcript", "none" if asks else "one", why))
        if not asks or calls is None:
            return
        try:
            self._policy = _policy_again(run.policy, calls, told)
        except _ODD as error:
            self.found.append(Difference("policy", run.policy["name"], str(error)))
            return
        described = {"name": self._policy.name, **self._policy.describe()}
        self.found += differences(run.policy, described, place="policy")
        self.found += differences(calls.policy, described, place="transcript.policy")

    def decide(self, observation: Observation) -> list[Said]:
        """Return the decisions of the observed epoch, in their order."""
        said = super().decide(observation)
        asked = self._since <= observation.epoch != self._cut_off
        if self._policy is not None and asked:
            self._check(self._policy.decide, observation, said)
        return said

    def _check(self, decide: Any, observation: Observation, said: list[Said]) -> None:
        place = f"epoch {observation.epoch} decisions"
        try:
            answers = decide(observation)
        except _ODD as error:
            self.found.append(Difference(place, counted(len(said), "decision"), str(error)))
            return
        again = [Said(answer) if isinstance(answer, Decision) else answer for answer in answers]
        self.found += differences(_by_rule(said), _by_rule(again), place=place)

    def differences(self) -> list[Difference]:
        """Return everything that does not follow from the record, when the training is done."""
        found = list(self.found)
        if self._calls is not None:
            if self._policy is not None:
                found += self._calls.compare(without=self._cut_off)
            found += self._calls.missing()
        return found


class _Retyped:
    """The console of then: what leads to the verdicts that are recorded is typed once more."""

    def __init__(self, reviews: Sequence[Any]) -> None:
        self._lines = (line for review in reviews for line in _typed(review))

    def show(self, _: str, /) -> None:
        """Nobody reads."""

    def ask(self, _: str, /) -> str:
        """Return the next line; raises EOFError behind the last."""
        for line in self._lines:
            return line
        raise EOFError


def _typed(review: Any) -> Iterator[str]:
    said = review.decision
    if review.mark is not None:
        yield review.mark[:1]
        yield review.note
    yield review.verdict[:1]
    if review.verdict == "edit":
        yield json.dumps({key: said[key] for key in ("direction", "params", "justification")})
    if review.verdict == "reject":
        yield said["justification"]


def _policy_again(described: Mapping[str, Any], calls: RecordedCalls, told: Told) -> Any:
    if described["name"] == HUMAN:
        proposer = described["proposer"]
        asked = (
            _model_again(proposer, calls, told)
            if "model" in proposer
            else create_policy("playbook")
        )
        return HumanPolicy(asked, console=_Retyped(calls.reviews), log=calls.transcript)
    model = _model_again(described, calls, told)
    return MixedPolicy(model, log=calls.transcript) if described["name"] == MIXED else model


def _model_again(
    described: Mapping[str, Any], calls: RecordedCalls, told: Told
) -> LanguageModelPolicy:
    names = {field.name for field in fields(ModelSettings)}
    settings = ModelSettings.from_dict({k: v for k, v in described.items() if k in names})
    return model_policy(
        replace(settings, rung=None) if calls.probed else settings,
        client=calls,
        log=calls.transcript,
        blobs=calls,
        answers=calls,
        told=told,
        version=calls.version,
    )


def _by_rule(said: Sequence[Said]) -> dict[str, Any]:
    """Return decisions by what they cite: where runs restart, their order is the loop's."""
    return {
        " ".join(each.decision.cites): {**each.decision.to_dict(), "source": each.source}
        for each in said
    }


def _told(event: Any, ignored: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in recorded_fields(event).items() if key not in ignored}
