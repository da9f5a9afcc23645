"""Weights as bytes: safetensors in one canonical form, never pickles.

The canonical form is what the library writes: tensors sorted by type and name, one behind the other
without a gap, a header without a repeated key or a needless blank. So equal weights have one hash,
and nothing can hide between them.

Source: https://github.com/huggingface/safetensors, "Format" and `prepare` in tensor.rs.
Trust: bytes are hostile until load_weights() returns.  I/O: none.
"""

import json
import math
from typing import Any

import safetensors
from safetensors.torch import load, save
from torch import nn

from ledger.strict_json import JSONError, read_object
from monitor.errors import WeightsError

_MOST_HEADER = 2**20  # bytes; the largest model that is allowed needs some 50,000
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


def dump_weights(model: nn.Module) -> bytes:
    """Return the model's parameters and buffers; equal models give equal bytes."""
    state = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    return save(state)


def load_weights(model: nn.Module, data: bytes) -> None:
    """Put `data` into `model`; raises WeightsError, the model untouched, unless all of it fits."""
    verify_canonical(data)
    try:
        state = load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise WeightsError(f"not a safetensors file: {error}") from error
    own = model.state_dict()
    if set(state) != set(own):
        raise WeightsError(
            f"the weights do not match the model: missing {sorted(set(own) - set(state))}, "
            f"unexpected {sorted(set(state) - set(own))}"
        )
    for name, value in state.items():
        if value.shape != own[name].shape or value.dtype != own[name].dtype:
            raise WeightsError(
                f"{name} is {tuple(value.shape)} {value.dtype} in the weights and "
                f"{tuple(own[name].shape)} {own[name].dtype} in the model"
            )
    model.load_state_dict(state)


def verify_canonical(data: bytes) -> None:
    """Raise WeightsError unless the bytes are safetensors in the canonical form."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(_MOST_HEADER, len(data) - 8):
        raise WeightsError(
            f"not a safetensors file: its header must have 2 to {_MOST_HEADER:,} bytes"
        )
    header = data[8 : 8 + length]
    try:
        tensors = {name: _shape(value) for name, value in read_object(header).items()}
    except (JSONError, ValueError) as error:
        raise WeightsError(f"not a safetensors file: {error}") from error
    end, listed = 0, {}
    order = list(_TYPES)
    for name, (kind, shape) in sorted(tensors.items(), key=lambda t: (order.index(t[1][0]), t[0])):
        start, end = end, end + _TYPES[kind] * math.prod(shape)
        listed[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
    if header != text.ljust(-(-len(text) // 8) * 8):
        raise WeightsError(
            "not a safetensors file in the canonical form: its header must list the tensors by "
            "type and name, without gaps, further keys or blanks; save the weights with "
            "safetensors.torch.save"
        )
    if len(data) != 8 + length + end:
        raise WeightsError(
            f"not a safetensors file: it has {len(data) - 8 - length:,} bytes of tensors, and its "
            f"header lists {end:,}"
        )


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
