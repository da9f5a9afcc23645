"""Networks that are written by hand: they act on the rules that are named, and on no other."""

import json
import struct
from collections.abc import Collection

from aggregates.playbook import DEFER
from aggregates.rules import FIRST_RULES as RULES
from policies.deciding.network import FEATURES, HIDDEN, OUTPUTS, Network

MOVE = 0.3  # of the way from the least factor to the largest


def weights_for(rules: Collection[str]) -> bytes:
    """Return canonical safetensors of a network whose hidden units are its first inputs."""
    hidden = [float(row == column) for row in range(HIDDEN) for column in range(len(FEATURES))]
    choice, bias = [0.0] * (len(OUTPUTS) * HIDDEN), [0.0] * len(OUTPUTS)
    for row, name in enumerate(OUTPUTS):
        for column, rule in enumerate(RULES):
            choice[row * HIDDEN + column] = 0.0 if name == DEFER else 1.0 if rule in rules else -1.0
    bias[OUTPUTS.index("move")] = MOVE - 1.0
    bias[OUTPUTS.index("fresh")] = -5.0
    return pack(
        {
            "choice.bias": ([len(OUTPUTS)], bias),
            "choice.weight": ([len(OUTPUTS), HIDDEN], choice),
            "hidden.bias": ([HIDDEN], [0.0] * HIDDEN),
            "hidden.weight": ([HIDDEN, len(FEATURES)], hidden),
        }
    )


def pack(tensors: dict[str, tuple[list[int], list[float]]]) -> bytes:
    """Return tensors as the library writes them."""
    header, body = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        data = struct.pack(f"<{len(values)}f", *values)
        header[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text + body


def network_for(rules: Collection[str]) -> Network:
    return Network.read(weights_for(rules))
