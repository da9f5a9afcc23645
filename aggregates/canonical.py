"""One digest for configurations: SHA-256 over canonical JSON.

Sorted keys, no spaces, ASCII; NaN and infinities are refused, since a configuration has none.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(value: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
