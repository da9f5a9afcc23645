"""Strict JSON for untrusted input.

Python's reader takes NaN, keeps the last of two equal keys and lets half a surrogate pair through.
Here all of that is an error, and so is what is too large or too deep to be worth reading.

Trust: the text is hostile.  I/O: none.
"""

import json
import math
from typing import Any, NoReturn

from policies.errors import AnswerError

MAX_DEPTH = 32
MAX_VALUES = 50_000  # a bound on memory: a byte of JSON can cost a hundred in Python
_SPACE = " \t\n\r"


def read_json(text: str) -> Any:
    """Return the one value in `text`; raises AnswerError saying what is wrong."""
    _check_size(text)
    return _guard(_DECODER.decode, text.strip(_SPACE))


def read_json_at(text: str, start: int) -> tuple[Any, int]:
    """Return the value that begins at `start` and where it ends; raises AnswerError."""
    found, end = _guard(_DECODER.raw_decode, text, start)
    return found, int(end)


def _check_size(text: str) -> None:
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise AnswerError(f"more than {MAX_VALUES} values are no answer to anything")


def _guard(read: Any, *arguments: Any) -> Any:
    try:
        found = read(*arguments)
    except RecursionError:
        raise AnswerError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # a whole number of thousands of digits is one, too
        raise AnswerError(f"it is no JSON: {error}") from None
    value = found[0] if isinstance(found, tuple) else found
    _check_value(value, MAX_DEPTH)
    return found


def _check_value(value: Any, depth: int) -> None:
    if depth == 0:
        raise AnswerError(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise AnswerError("it has half of a surrogate pair, which is no character") from None
    elif isinstance(value, list):
        for item in value:
            _check_value(item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_value(key, depth)
            _check_value(item, depth - 1)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is beyond every float")
    return number


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_constant)
