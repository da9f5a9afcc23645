"""The fields of many events of one kind as Arrow arrays: by the ledger's own decoder, or compiled.

A field's path has keys, divided by dots; `*` is each element of a list, `**` each value of a map,
and `**key` its key. A key with `?` behind it may be missing, and is NULL then.

Trust: bodies may be malformed. What does not fit is odd: the projector knows what is wrong with it.
I/O: none.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from projections.mapping import TYPES, Body, json_text

if TYPE_CHECKING:
    from projections.body_columns import Columns

__all__ = ["ARROW", "CompiledFields", "DecodedFields", "Fields", "OddError", "array_of"]

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
_VALUE, _MISSED, _WHOLE = 1, 2, 3  # of body_columns' codes
_decode = msgspec.msgpack.Decoder().decode


class OddError(Exception):
    """Something does not fit; the projector knows what."""


class Fields(Protocol):
    """Fields of some events."""

    def column(self, path: str, kind: str, nullable: bool) -> pa.Array:
        """Return a field's values; with elements, those of all events one after the other."""

    def floats(self, path: str) -> pa.Array:
        """Return the values of a field that holds no integers."""

    def missing(self, path: str) -> npt.NDArray[np.bool_]:
        """Return which values of a field are missing."""

    def lengths(self, path: str) -> npt.NDArray[np.int64]:
        """Return how many elements there are in each list or map; -1 where it is missing."""


class DecodedFields:
    """Fields of bodies that the ledger's decoder has read."""

    def __init__(self, bodies: Sequence[Body]) -> None:
        self._found: dict[str, Sequence[Any]] = {"": bodies}

    def column(self, path: str, kind: str, nullable: bool) -> pa.Array:
        """Return a field's values."""
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
        """Return how many elements there are in each list or map."""
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


class CompiledFields:
    """Fields of bodies that the compiled module has read; its plan has their types."""

    def __init__(self, columns: "Columns") -> None:
        self._columns = columns

    def column(self, path: str, kind: str, nullable: bool) -> pa.Array:
        """Return a field's values."""
        columns, codes = self._columns, self._columns.codes(path)
        if not nullable and not ((codes == _VALUE) | (codes == _WHOLE)).all():
            raise OddError
        if kind == "JSON":
            parts = columns.parts(path)
            texts = [None if part is None else json_text(_decode(part)) for part in parts]
            return pa.array(texts, pa.string())
        valid = codes == _VALUE
        data: list[npt.NDArray[Any]]
        if kind == "VARCHAR":
            data = list(columns.texts(path))
        else:
            numbers: npt.NDArray[Any] = columns.numbers(path)
            if kind == "DOUBLE":
                whole = codes == _WHOLE
                numbers = numbers.view(np.float64)
                if whole.any():
                    numbers = np.where(whole, columns.numbers(path).astype(np.float64), numbers)
                    valid |= whole
            elif kind == "INTEGER":
                numbers = numbers.astype(np.int32)
            elif kind == "BOOLEAN":
                numbers = _bits(numbers == 1)
            data = [numbers]
        mask = None if valid.all() else pa.py_buffer(_bits(valid))
        buffers = [mask, *map(pa.py_buffer, data)]
        return pa.Array.from_buffers(ARROW[kind], len(codes), buffers)

    def floats(self, path: str) -> pa.Array:
        """Return the values of a field that holds no integers."""
        if (self._columns.codes(path) == _WHOLE).any():
            raise OddError
        return self.column(path, "DOUBLE", nullable=True)

    def missing(self, path: str) -> npt.NDArray[np.bool_]:
        """Return which values of a field are missing."""
        found: npt.NDArray[np.bool_] = self._columns.codes(path) == _MISSED
        return found

    def lengths(self, path: str) -> npt.NDArray[np.int64]:
        """Return how many elements there are in each list or map."""
        return self._columns.lengths(path)


def _bits(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")
