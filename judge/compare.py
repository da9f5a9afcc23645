"""Plain values compared to the last bit, NaN with NaN.

I/O: none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Difference:
    """One place at which two values are not the same."""

    place: str
    recorded: Any
    found: Any

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def differences(recorded: Any, found: Any, *, place: str = "") -> Iterator[Difference]:
    """Yield the places at which `found` is not what was recorded.

    Lists and tuples are alike, as in stored events; whole numbers and floats of equal value too.
    """
    if recorded is found or (not place and _same_bytes(recorded, found)):  # as nearly always
        return
    if isinstance(recorded, Mapping) and isinstance(found, Mapping):
        for key in sorted({*recorded, *found}, key=str):
            inside = f"{place}.{key}" if place else str(key)
            if key in recorded and key in found:
                yield from differences(recorded[key], found[key], place=inside)
            else:
                yield Difference(inside, recorded.get(key), found.get(key))
    elif isinstance(recorded, list | tuple) and isinstance(found, list | tuple):
        if len(recorded) != len(found):
            yield Difference(f"{place}.length", len(recorded), len(found))
        for number, (old, new) in enumerate(zip(recorded, found, strict=False)):
            yield from differences(old, new, place=f"{place}[{number}]")
    elif not _same(recorded, found):
        yield Difference(place, recorded, found)


def _same_bytes(recorded: Any, found: Any) -> bool:
    """Return whether plain values are the same by their encoding: types, order and NaN too."""
    try:
        return _encode(recorded) == _encode(found)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return False


def _same(recorded: Any, found: Any) -> bool:
    if isinstance(recorded, bool) or isinstance(found, bool):
        return recorded is found
    if recorded != recorded and found != found:  # noqa: PLR0124 - NaN, and nothing else
        return True
    return bool(recorded == found)
