"""Strict JSON, for every text that somebody else wrote.

Python's reader accepts NaN and infinities, keeps the last of two equal keys and passes half a
surrogate pair. All of that is an error here, and so are texts that are too large or too deep.

Trust: the text is hostile.  I/O: none.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypeVar

MAX_DEPTH = 32
MAX_VALUES = 200_000  # a bound on memory: a byte of JSON can cost a hundred in Python
Problem = Literal["syntax", "key", "large", "number", "surrogate", "depth", "values", "object"]
T = TypeVar("T")
_SPACE = " \t\n\r"
_PROBLEMS: dict[Problem, str] = {
    "syntax": "it is not JSON in UTF-8",
    "key": "a key is repeated in one object",
    "large": "a number is too large for a float",
    "number": "NaN and infinity are not allowed",
    "surrogate": "it is not JSON in UTF-8: it contains a lone surrogate",
    "depth": f"it is nested deeper than {MAX_DEPTH} levels",
    "values": "it holds more than {} values",
    "object": "it is not an object",
}


class JSONError(ValueError):
    """A text that is not strict JSON; the message never quotes the text, `detail` may."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(_PROBLEMS[problem].format(detail))
        self.problem, self.detail = problem, detail


def read_json(
    data: str | bytes, *, most: int = MAX_VALUES, decoder: json.JSONDecoder | None = None
) -> Any:
    """Return the one value in a text, which may be UTF-8 bytes; raise JSONError.

    With a `decoder`, keys and numbers are as that takes them.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise JSONError("syntax", str(error)) from None
    if sum(map(text.count, "[{,")) > most:
        raise JSONError("values", str(most))
    value = _guard((decoder or _DECODER).decode, text.strip(_SPACE))
    _check(value, MAX_DEPTH)
    return value


def read_json_at(text: str, start: int) -> tuple[Any, int]:
    """Return the value that begins at `start` and where it ends; raise JSONError."""
    value, end = _guard(_DECODER.raw_decode, text, start)
    _check(value, MAX_DEPTH)
    return value, end


def read_object(data: str | bytes) -> dict[str, Any]:
    """Return the one object in a text; raise JSONError for anything else."""
    value = read_json(data)
    if not isinstance(value, dict):
        raise JSONError("object")
    return value


def _guard(read: Callable[..., T], *arguments: object) -> T:
    try:
        return read(*arguments)
    except JSONError:
        raise
    except RecursionError:
        raise JSONError("depth") from None
    except ValueError as error:  # a whole number of thousands of digits is one, too
        raise JSONError("syntax", str(error)) from None


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise JSONError("depth")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise JSONError("surrogate") from None
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth)
            _check(item, depth - 1)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JSONError("key")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JSONError("large", text[:40])
    return number


def _constant(text: str) -> NoReturn:
    raise JSONError("number", text)


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_constant)
