"""One call from question to record: ask, read, store both bodies, note what came of it.

I/O: the client's; blobs and the log that are passed in. A call's bodies are stored before the call
is recorded.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ledger.blobs import Blobs
from ledger.errors import LedgerError
from policies.asking.completion import Completion, read_body
from policies.asking.fields import advice, refused_field
from policies.asking.ladder import (
    PROBE_MESSAGES,
    PROBE_SCHEMA,
    TRIES,
    request_for,
    verify_probe,
)
from policies.asking.settings import RUNGS, VERSION, ModelSettings
from policies.calls import Answers, CallLog
from policies.errors import AnswerError, PolicyError, SilentError
from policies.extraction import extract

if TYPE_CHECKING:
    from policies.asking.chat import ChatClient

T = TypeVar("T")
_FATAL = (401, 403, 404)  # at the probe: no other rung would change it


class Client(Protocol):
    """Asks one endpoint."""

    endpoint: str

    def ask(self, request: bytes, /) -> Completion:
        """Send a request's body and return what came of it."""


def open_client(settings: ModelSettings) -> "ChatClient":
    """Return the client of a model's server, with the key that the environment has for it."""
    from policies.asking.chat import ChatClient  # noqa: PLC0415 - openai takes long to import

    return ChatClient(settings, os.environ.get(settings.key_env))


@dataclass(frozen=True)
class Asked(Generic[T]):
    """What a call came to."""

    number: int  # of the call, from 1
    outcome: str
    problem: str | None
    found: T | None  # None: nothing that could be read
    answer: Completion


class Asker:
    """Asks a model in the name of one run."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        client: Client,
        log: CallLog,
        blobs: Blobs,
        answers: Answers | None = None,
        version: int = VERSION,
    ) -> None:
        self.settings = settings
        self.version = version
        self._refused: set[str] = set()  # optional fields that the server does not take
        self.endpoint = client.endpoint
        self._client = client
        self.log = log
        self._blobs = blobs
        self._answers = answers if settings.cache else None

    def ask(
        self,
        rung: str,
        messages: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any],
        read: Callable[[Any], tuple[T, str | None, bool]],
        *,
        agent: str,
        action: str,
        epoch: int | None = None,
        rules: tuple[str, ...] = (),
        seed: int | None = None,
    ) -> Asked[T]:
        """Make one call and record it; and another, if the server refuses an optional field.

        `read` gets the JSON of the answer and returns what it found, what is wrong with that, and
        whether any of it is usable; it may raise AnswerError.
        """
        settings = self.settings
        request = request_for(rung, settings, messages, schema, seed=seed, refused=self._refused)
        # Not sorted: servers make the fields of an answer in the schema's order.
        body = json.dumps(
            request, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
        started = time.monotonic()
        # A probe asks what the server does now, and not what one did once.
        answer, cached = (None, False) if action == "probe" else self._remembered(body)
        if answer is None:
            answer = self._client.ask(body)
        outcome, problem = answer.outcome, answer.problem
        found: T | None = None
        if outcome is None:
            usable = False
            try:
                early = self.version == 1
                found, problem, usable = read(extract(rung, answer.message, early=early))
            except AnswerError as error:
                problem = str(error)
            outcome = "usable" if usable else "unusable"
        said = answer.body
        parameters = settings.parameters(request.get("seed"), self._refused)
        number = self.log.add(
            agent=agent,
            action=action,
            outcome=outcome,
            epoch=epoch,
            rules=rules,
            model=settings.model,
            endpoint=self.endpoint,
            rung=rung,
            parameters=parameters,
            request=self._blobs.put(body),
            request_bytes=len(body),
            response=None if said is None else self._blobs.put(said),
            response_bytes=None if said is None else len(said),
            status=answer.status,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            seconds=time.monotonic() - started,
            cost=answer.cost,
            retries=answer.retries,
            problem=problem,
            cached=cached,
        )
        if self.version > 1 and outcome == "rejected":
            field = refused_field(parameters, answer.status, said, self._refused)
            if field is not None:
                self._refused.add(field)
                return self.ask(
                    rung,
                    messages,
                    schema,
                    read,
                    agent=agent,
                    action=action,
                    epoch=epoch,
                    rules=rules,
                    seed=seed,
                )
        return Asked(number, outcome, problem, found, answer)

    def _remembered(self, body: bytes) -> tuple[Completion | None, bool]:
        """Return the earlier answer to this very request, which costs nothing now."""
        if self._answers is None:
            return None, False
        digest = self._answers.find(hashlib.sha256(body).hexdigest())
        if digest is None:
            return None, False
        try:
            answer = read_body(self._blobs.get(digest), status=None, early=self.version == 1)
        except LedgerError:  # lost or damaged; the server is still there to be asked
            return None, False
        return replace(answer, usage=None, cost=0.0), True


def find_rung(asker: Asker) -> str:
    """Return the rung on which the endpoint gives what it is asked for, by trying.

    Where no rung is right, it is the last: what comes back is looked through for JSON, and checked
    like everything else. Raises PolicyError where asking on is of no use: nobody is there, or the
    key or the model is refused; SilentError where no request at all was answered.
    """
    if asker.settings.rung is not None:
        return asker.settings.rung
    answered, last, tries = False, "", 0
    status: int | None = None
    seed = asker.settings.seed
    for rung in RUNGS:
        for _ in range(TRIES):
            asked = asker.ask(
                rung,
                PROBE_MESSAGES,
                PROBE_SCHEMA,
                _read_probe,
                agent="prober",
                action="probe",
                seed=None if seed is None else (seed + tries) % 2**31,  # the same, the same noise
            )
            tries += 1
            status = asked.answer.status
            if asked.outcome == "unreachable" or status in _FATAL:
                what = "cannot be reached" if status is None else "refuses to answer"
                helps = advice(asker.settings, status)
                raise PolicyError(f"{asker.endpoint} {what}: {asked.problem}; {helps}")
            if asked.outcome == "usable":
                return rung
            last = asked.problem or asked.outcome
            if asked.outcome not in ("unusable", "truncated", "refused"):
                break  # trying this rung again is of no use
            answered = True
    if not answered:
        helps = advice(asker.settings, status)
        raise SilentError(f"{asker.endpoint} did not answer any request: {last}; {helps}")
    return RUNGS[-1]


def _read_probe(value: Any) -> tuple[None, None, bool]:
    verify_probe(value)
    return None, None, True
