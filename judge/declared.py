"""Reads plain values of JSON or TOML into declared structures, and says where they do not fit.

Trust: the values are hostile; ValueError names the field and never the whole value.
I/O: none.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def read_declared(value: Any, kind: type[T]) -> T:
    """Return a value as the structure that `kind` declares; raise ValueError naming the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        raise ValueError(f"{field}: {problem}" if field else problem) from error
