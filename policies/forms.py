"""The forms of answers: their JSON schemas, as endpoints take them, and the check of what came.

Strict in the sense of the endpoints: every property is required, and none may be added.
Trust: the value is whatever a model wrote.  I/O: none.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from policies.errors import AnswerError

T = TypeVar("T")


def strict_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def list_of(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def read_form(kind: type[T], value: object, *, where: str = "the answer") -> T:
    """Return `value` in its declared form; raises AnswerError naming the place and the remedy."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise AnswerError(f"{where} is not of the form that is asked for: {error}") from None
