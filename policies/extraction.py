"""From a completion's message to the JSON value in it, on each rung of the ladder.

Where the server was asked for JSON and nothing else, that is what is read, or what stands in the
one fence, behind reasoning. Where it was asked in words, the one object is looked for that the text
holds, between fences or anywhere.

Trust: messages are hostile until extract() returns; what it returns is JSON and no more.
I/O: none.
"""

import re
from collections.abc import Mapping
from typing import Any

from ledger.strict_json import JSONError, Problem, read_json, read_json_at
from policies.errors import AnswerError

ANSWER = "answer"  # the name of the schema and of the tool
MAX_TEXT = 262_144  # characters of JSON in an answer
MAX_VALUES = 50_000  # in an answer or in a completion
_STARTS = 64  # braces at which JSON is looked for
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_THOUGHT = "</think>"  # local models end their reasoning with it
# The request that asks again quotes these words, and a replay compares it: they never change.
_PROBLEMS: dict[Problem, str] = {
    "syntax": "it is no JSON: {}",
    "key": "it is no JSON: a key stands twice in one object",
    "large": "it is no JSON: {} is beyond every float",
    "number": "it is no JSON: {} is no number",
    "surrogate": "it has half of a surrogate pair, which is no character",
    "values": "more than {} values are no answer to anything",
}


def extract(rung: str, message: Mapping[str, Any], *, early: bool = False) -> Any:
    """Return the JSON value in a completion's message; raises AnswerError saying what is wrong.

    `early` reads as version 1 of asking did: no text in parts, and on a JSON rung nothing but JSON.
    """
    if rung == "tool":
        return read_strict(_bounded(_tool_arguments(message)))
    content = message.get("content")
    text = _bounded(content if early else _joined(content))
    if rung == "prompt":
        return _search(text)
    try:
        return read_strict(text)
    except AnswerError:
        found = _FENCE.findall(said := text.rpartition(_THOUGHT)[2])
        inner = found[0] if len(found) == 1 else said
        if early or inner == text:
            raise
        return read_strict(_bounded(inner))


def read_strict(text: str) -> Any:
    """Return the one JSON value in a text; raises AnswerError in the words that are recorded."""
    try:
        return read_json(text, most=MAX_VALUES)
    except JSONError as error:
        words = _PROBLEMS.get(error.problem)
        raise AnswerError(words.format(error.detail) if words else str(error)) from None


def _joined(content: object) -> object:
    """Return the text of a list of parts, without parts of other types, such as reasoning."""
    if not isinstance(content, list):
        return content
    parts = [part for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _bounded(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise AnswerError("the message holds no text")
    if len(text) > MAX_TEXT:
        raise AnswerError(f"{len(text)} characters are more than the {MAX_TEXT} that are read")
    return text


def _tool_arguments(message: Mapping[str, Any]) -> object:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or len(calls) != 1 or not isinstance(calls[0], Mapping):
        raise AnswerError(f"the tool {ANSWER!r} must be called once")
    function = calls[0].get("function")
    if not isinstance(function, Mapping) or function.get("name") != ANSWER:
        raise AnswerError(f"the tool that is called must be {ANSWER!r}")
    return function.get("arguments")


def _search(text: str) -> Any:
    """Return the one JSON object in a text: between fences, or anywhere."""
    text = text.rpartition(_THOUGHT)[2]
    fenced = _FENCE.findall(text)
    found = _objects(fenced[0] if len(fenced) == 1 else text)
    if len(found) != 1:
        raise AnswerError(f"the text must hold one JSON object, and holds {len(found) or 'none'}")
    return found[0]


def _objects(text: str) -> list[Any]:
    found: list[Any] = []
    start = -1
    for _ in range(_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            return found
        try:
            value, end = read_json_at(text, start)
        except JSONError:
            continue
        found.append(value)
        start = end - 1
    raise AnswerError(f"the text has more than {_STARTS} braces and is not looked through")
