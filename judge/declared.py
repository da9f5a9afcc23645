"""Reads plain values of JSON or TOML into declared structures, and says where they do not fit.

Trust: the values are hostile; ValueError names the field and never the whole value.
I/O: none.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def _build(kind: type[T], value: object) -> T:
    """Make a value of a type of ours that is a text with a form of its own."""
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")  # noqa: TRY004 - see above
    return kind(value)  # type: ignore[call-arg]  # each takes the text


def read_declared(value: Any, kind: type[T]) -> T:
    """Return a value as the structure that `kind` declares; raise ValueError naming the field."""
    try:
        return msgspec.convert(value, kind, dec_hook=_build)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        raise ValueError(f"{field}: {problem}" if field else problem) from error
