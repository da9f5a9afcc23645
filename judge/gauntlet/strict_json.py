"""Strict JSON for untrusted input.

NaN, infinity, repeated keys, half a surrogate pair and too deep nesting raise a ValueError, which
never quotes the text.

Trust: the bytes are hostile.  I/O: none.
"""

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 32
MAX_VALUES = 200_000  # a byte of JSON can cost a hundred in Python


def read_value(data: bytes) -> Any:
    """Return the one value in UTF-8 bytes; raise ValueError saying what is wrong."""
    if sum(map(data.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ValueError(f"it holds more than {MAX_VALUES} values")
    try:
        value = _DECODER.decode(data.decode())
        _check(value, MAX_DEPTH)
    except _OddError:
        raise
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:  # its words quote the text, and a number of thousands of digits is one, too
        raise ValueError("it is not JSON in UTF-8") from None
    return value


def read_object(data: bytes) -> dict[str, Any]:
    """Return the object in UTF-8 bytes; raise ValueError for anything else."""
    value = read_value(data)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - callers catch one thing
    return value


class _OddError(ValueError):
    """JSON by the letter, and yet no value."""


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise _OddError(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        value.encode()
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
        raise _OddError("a key is repeated in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _OddError("a number is too large for a float")
    return number


def _constant(_: str) -> NoReturn:
    raise _OddError("NaN and infinity are not allowed")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_constant)
