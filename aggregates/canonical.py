"""Values as JSON: one digest for configurations, and numbers that JSON does not have as text."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any


def digest(value: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of `value` as canonical JSON: sorted keys, no spaces, ASCII.

    NaN and infinities are refused, since a configuration has none.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def finite(value: Any) -> Any:
    """Return a value with numbers that are not finite written as NaN, Infinity or -Infinity."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
