"""Weights as bytes: safetensors in one canonical form, never pickles.

The canonical form is what the library writes: tensors sorted by type and name, one behind the other
without a gap, a header without a repeated key or a needless blank. So equal weights have one hash,
and nothing can hide between them.

Source: https://github.com/huggingface/safetensors, "Format" and `prepare` in tensor.rs.
Trust: bytes are hostile until verify_canonical() or read_tensors() returns.
I/O: none.
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

from aggregates.errors import WeightsError
from ledger.strict_json import JSONError, read_object

MAX_HEADER = 2**20  # bytes; the largest model that is allowed needs some 50,000
# In the order in which the library writes them, with the size of one value in bytes.
_TYPES = {"U64": 8, "I64": 8, "F64": 8, "F32": 4, "U32": 4, "I32": 4} | {
    "BF16": 2,
    "F16": 2,
    "U16": 2,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True)
class Tensor:
    """One tensor of 32-bit floats, row by row."""

    shape: tuple[int, ...]
    values: tuple[float, ...]


def verify_canonical(data: bytes) -> None:
    """Raise WeightsError unless the bytes are safetensors in the canonical form."""
    layout(data, size=len(data))


def describe_tensors(data: bytes) -> list[str]:
    """Return a line for each tensor, with its type and shape; raises WeightsError.

    A name that is not printable is written as JSON: it could forge other lines.
    """
    return [
        f"{name if name.isprintable() else json.dumps(name)}: {kind} {shape}"
        for name, kind, shape, _ in layout(data, size=len(data))
    ]


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of canonical weights by name; raises WeightsError, also for other types.

    This needs neither PyTorch nor NumPy, and is meant for small models.
    """
    found = {}
    for name, kind, shape, start in layout(data, size=len(data)):
        if kind != "F32":
            raise WeightsError(f"{name} is {kind} in the weights; F32 is expected")
        count = math.prod(shape)
        values = struct.unpack_from(f"<{count}f", data, start)
        if not all(map(math.isfinite, values)):
            raise WeightsError(f"{name} has a value that is not finite")
        found[name] = Tensor(tuple(shape), values)
    return found


def layout(data: bytes, *, size: int) -> list[tuple[str, str, list[int], int]]:
    """Return each tensor's name, type, shape and place in `size` bytes; raises WeightsError.

    `data` is what they begin with: all of them, or 8 + MAX_HEADER bytes.
    """
    length = int.from_bytes(data[:8], "little")
    if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
        raise WeightsError(
            f"not a safetensors file: its header must have 2 to {MAX_HEADER:,} bytes"
        )
    header = data[8 : 8 + length]
    try:
        tensors = {name: _shape(value) for name, value in read_object(header).items()}
    except (JSONError, ValueError) as error:
        raise WeightsError(f"not a safetensors file: {error}") from error
    end, listed, found = 0, {}, list[tuple[str, str, list[int], int]]()
    order = list(_TYPES)
    for name, (kind, shape) in sorted(tensors.items(), key=lambda t: (order.index(t[1][0]), t[0])):
        start, end = end, end + _TYPES[kind] * math.prod(shape)
        found.append((name, kind, shape, 8 + length + start))
        listed[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
    if header != text.ljust(-(-len(text) // 8) * 8):
        raise WeightsError(
            "not a safetensors file in the canonical form: its header must list the tensors by "
            "type and name, without gaps, further keys or blanks; save the weights with "
            "safetensors.torch.save"
        )
    if size != 8 + length + end:
        raise WeightsError(
            f"not a safetensors file: it has {size - 8 - length:,} bytes of tensors, and its "
            f"header lists {end:,}"
        )
    return found


def _shape(value: Any) -> tuple[str, list[int]]:
    """Return a tensor's type and shape; raises ValueError."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ValueError("each tensor needs dtype, shape and data_offsets, and nothing else")
    kind, shape = value["dtype"], value["shape"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError("a tensor has an unknown type")
    if not isinstance(shape, list) or len(shape) > 8:
        raise ValueError("a tensor's shape must be a list of at most 8 numbers")
    if any(type(size) is not int or not 0 <= size < 2**31 for size in shape):
        raise ValueError("a tensor's shape must have whole numbers")
    return kind, shape
