"""The fields of many events of one kind as Arrow arrays.

A field's path has keys, divided by dots; `*` is each element of a list, `**` each value of a map,
and `**key` its key. A key with `?` behind it may be missing, and is NULL then.

Trust: bodies may be malformed. What does not fit is odd: the projector knows what is wrong with it.
I/O: none.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from projections.mapping import TYPES, Body, json_text

__all__ = ["ARROW", "Fields", "OddError", "array_of"]

ARROW = {
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "INTEGER": pa.int32(),
    "JSON": pa.string(),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR": pa.string(),
}
_NONE = type(None)
_MISSING = ()


class OddError(Exception):
    """Something does not fit; the projector knows what."""


class Fields:
    """Fields of bodies that the ledger's decoder has read."""

    def __init__(self, bodies: Sequence[Body]) -> None:
        self._found: dict[str, Sequence[Any]] = {"": bodies}

    def column(self, path: str, kind: str, nullable: bool) -> pa.Array:
        """Return a field's values; with elements, those of all events one after the other."""
        values = self._values(path)
        if path.endswith("?"):
            values = [None if value is _MISSING else value for value in values]
        return array_of(values, kind, nullable)

    def floats(self, path: str) -> pa.Array:
        """Return the values of a field that holds no integers."""
        if int in set(map(type, self._values(path))):
            raise OddError
        return self.column(path, "DOUBLE", nullable=True)

    def missing(self, path: str) -> npt.NDArray[np.bool_]:
        """Return which values of a field are missing."""
        return np.array([value is _MISSING for value in self._values(path)], np.bool_)

    def lengths(self, path: str) -> npt.NDArray[np.int64]:
        """Return how many elements there are in each list or map; -1 where it is missing."""
        self._values(path)  # which finds out whether these are what they should be
        outer = self._values(path.rpartition(".")[0])
        lengths = np.fromiter(map(len, outer), np.int64, len(outer))
        lengths[[value is _MISSING for value in outer]] = -1
        return lengths

    def _values(self, path: str) -> Sequence[Any]:
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._inner(path)
        return found

    def _inner(self, path: str) -> Sequence[Any]:
        above, _, key = path.rpartition(".")
        outer = self._values(above)
        if key == "*":
            _all_are(list, outer)
            return list(chain.from_iterable(outer))
        _all_are(dict, outer)
        if key.startswith("**"):
            each = [value.values() if key == "**" else value.keys() for value in outer]
            return list(chain.from_iterable(each))
        if key.endswith("?"):
            key = key[:-1]
            return [value.get(key, _MISSING) if value else _MISSING for value in outer]
        return [value[key] for value in outer]


def _all_are(kind: type, values: Iterable[Any]) -> None:
    if not {kind, tuple}.issuperset(
        map(type, values)
    ):  # no body holds a tuple, but what is missing
        raise OddError


def array_of(values: Sequence[Any], kind: str, nullable: bool) -> pa.Array:
    """Return values as a column takes them."""
    found = set(map(type, values))
    if _NONE in found:
        if not nullable:
            raise OddError
        found.discard(_NONE)
    if kind == "JSON":
        values = [None if value is None else json_text(value) for value in values]
    elif not found.issubset(TYPES[kind]):
        raise OddError
    return pa.array(values, ARROW[kind], from_pandas=False)
