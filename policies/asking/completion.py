"""The result of a call to a chat endpoint, and the parsed body of a chat completion.

Separate from the client, because recorded calls are read without the client and its libraries.

Source: docs/reference/language-models.md, "What a server does".
Trust: the body is hostile; read_body() raises nothing for it.
I/O: none.  Units: seconds, bytes, US dollars.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aggregates.transcript import TOKENS
from policies.errors import AnswerError
from policies.extraction import read_strict

_MAX_TOKENS = 2**53


@dataclass(frozen=True)
class Completion:
    """What came of one call; `outcome` None: a message came, and is for the reader to judge."""

    outcome: str | None
    problem: str | None = None
    status: int | None = None
    body: bytes | None = None  # as it came, secrets struck out
    message: Mapping[str, Any] = field(default_factory=dict)  # choices[0].message
    finish_reason: str | None = None
    usage: Mapping[str, int | None] | None = None
    retries: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0
    cost: float | None = None


def read_body(body: bytes, *, status: int | None, outcome: str | None = None) -> Completion:
    """Return what a chat completion's body holds; of a failed call, `outcome` and tokens alone."""
    try:
        value = read_strict(body.decode())
    except (UnicodeDecodeError, AnswerError) as error:
        garbage = f"the body is no chat completion: {error}"
        return Completion(outcome or "unusable", garbage, status, body)
    value = value if isinstance(value, dict) else {}
    usage = _usage(value.get("usage"))
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if outcome is not None:
        return Completion(outcome, None, status, body, usage=usage)
    if not isinstance(choice, dict) or not isinstance(message, dict):
        missing = "the body is no chat completion: it has no choices[0].message"
        return Completion("unusable", missing, status, body, usage=usage)
    reason = choice.get("finish_reason")
    reason = reason[:40] if isinstance(reason, str) else None
    refusal = message.get("refusal")
    problem = None
    if isinstance(refusal, str) and refusal.strip():
        outcome, problem = "refused", f"the model refuses: {refusal[:300]}"
    elif reason == "content_filter":
        outcome, problem = "refused", "a content filter held the answer back"
    elif reason == "length":
        outcome, problem = "truncated", "the answer was cut off at the token limit"
    return Completion(outcome, problem, status, body, message, reason, usage)


def _usage(value: object) -> dict[str, int | None] | None:
    if not isinstance(value, dict):
        return None
    found = {name: value.get(name) for name in TOKENS}
    return {
        name: count if type(count) is int and 0 <= count <= _MAX_TOKENS else None
        for name, count in found.items()
    }
