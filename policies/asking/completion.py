"""The result of a call to a chat endpoint, and the parsed body of a chat completion.

Separate from the client, because recorded calls are read without the client and its libraries.

Source: docs/reference/language-models.md, "What a server does".
Trust: the body is hostile; read_body() raises nothing for it.
I/O: none.  Units: seconds, bytes, US dollars.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aggregates.transcript import TOKEN_KINDS, TOKENS
from policies.errors import AnswerError
from policies.extraction import read_strict

_MAX_TOKENS = 2**53
_STREAMS = ("data:", "event:", "id:", "retry:", ":")  # how a text/event-stream begins


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


def read_body(
    body: bytes, *, status: int | None, outcome: str | None = None, early: bool = False
) -> Completion:
    """Return what a chat completion's body holds; of a failed call, `outcome` and tokens alone.

    `early` reads as version 1 of asking did: no event stream, and no kinds of tokens.
    """
    try:
        text = body.decode()
        streamed = not early and text.lstrip().startswith(_STREAMS)
        value = _assembled(text) if streamed else read_strict(text)
    except (UnicodeDecodeError, AnswerError) as error:
        garbage = f"the body is no chat completion: {error}"
        return Completion(outcome or "unusable", garbage, status, body)
    value = value if isinstance(value, dict) else {}
    usage = _usage(value.get("usage"), kinds=not early)
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


def _assembled(text: str) -> dict[str, Any]:
    """Return the chat completion that an event stream sends in pieces."""
    said: dict[str, list[str]] = {"content": [], "refusal": []}
    calls: dict[object, dict[str, list[str]]] = {}
    reason, usage = None, None
    for chunk in _chunks(text):
        usage = chunk.get("usage") or usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            continue
        reason = choice.get("finish_reason") or reason
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        _add(said, delta)
        pieces = delta.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict) and isinstance(function := piece.get("function"), dict):
                place = repr(piece.get("index"))
                _add(calls.setdefault(place, {"name": [], "arguments": []}), function)
    message: dict[str, Any] = {key: "".join(texts) for key, texts in said.items() if texts}
    if calls:
        joined = [{key: "".join(texts) for key, texts in call.items()} for call in calls.values()]
        message["tool_calls"] = [{"function": function} for function in joined]
    choice = {"message": message, "finish_reason": reason}
    return {"choices": [choice] if message else [], "usage": usage}


def _add(texts: dict[str, list[str]], piece: Mapping[str, Any]) -> None:
    for key, found in texts.items():
        if isinstance(text := piece.get(key), str):
            found.append(text)


def _chunks(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            chunk = read_strict(data)
            if isinstance(chunk, dict):
                yield chunk


def _usage(value: object, *, kinds: bool) -> dict[str, int | None] | None:
    if not isinstance(value, dict):
        return None
    found = {name: value.get(name) for name in TOKENS}
    for name, (details, kind) in TOKEN_KINDS.items() if kinds else ():
        part = value.get(details)
        if isinstance(part, dict) and kind in part:
            found[name] = part[kind]
    return {
        name: count if type(count) is int and 0 <= count <= _MAX_TOKENS else None
        for name, count in found.items()
    }
