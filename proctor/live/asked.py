"""What a request asks for; a wrong form of it raises HTTPException, which says what is wrong."""

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

_MOST_TEXT = 200  # characters that are searched for
_ID = re.compile(r"[0-9a-f-]{36}")
Asked = Mapping[str, Sequence[str]]


def parameters(
    request: Request, *names: str, several: str = "", most: int = _MOST_TEXT
) -> dict[str, list[str]]:
    """Return the parameters of an address; raises HTTPException for one that is not known."""
    found: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if name not in names:
            raise HTTPException(400, f"This page has no parameter {name[:40]!r}.")
        if name in found and name != several:
            raise HTTPException(400, f"The parameter {name!r} is given twice.")
        if len(value) > most:
            raise HTTPException(400, f"{name} is longer than {most:,} characters.")
        if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
            raise HTTPException(400, f"{name} is not text.")
        found.setdefault(name, []).append(value)
    return found


def one(asked: Asked, name: str) -> str:
    """Return a parameter without the blanks around it, empty if it is not given."""
    return next(iter(asked.get(name, ())), "").strip()


def one_of(asked: Asked, name: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed values, the first if none is given."""
    value = one(asked, name) or allowed[0]
    if value not in allowed:
        named = ", ".join(each for each in allowed if each)
        raise HTTPException(400, f"{name} is one of {named}.")
    return value


def number(asked: Asked, name: str, *, least: int, most: int, default: int) -> int:
    """Return a whole number within its bounds."""
    value = one(asked, name)
    if not value:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", value) or not least <= int(value) <= most:
        raise HTTPException(400, f"{name} is a whole number from {least} to {most}.")
    return int(value)


def whole_id(text: str) -> str:
    """Return the id of a run or of another subject."""
    if not _ID.fullmatch(text):
        raise HTTPException(400, "The address has no whole id.")
    return text


def addresses(asked: Asked) -> Callable[..., str]:
    """Return the function that makes the address of this page with other parameters."""
    given = {name: values[0] for name, values in asked.items()}
    return lambda **other: "?" + urlencode({**given, **other})
