"""Whether the compiled module is in use; see body_columns.pyx.

I/O: reads the environment and the module's source, once.
"""

import hashlib
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = ["compiled"]

_SOURCE = Path(__file__).with_name("body_columns.pyx")
_OFF = ("0", "no", "off", "false")


@cache
def compiled() -> ModuleType | None:
    """Return the compiled module, None where it was not built, is old, or is turned off."""
    if os.environ.get("PROCTOR_COMPILED", "on").strip().lower() in _OFF:
        return None
    if find_spec("pyarrow") is None:  # then tables are made without columns
        return None
    try:
        from projections import body_columns  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return body_columns if _is_of_source() else None


def _is_of_source() -> bool:
    """Tell whether the module was built from the source beside it, as `make speedups` notes."""
    try:
        source, built = _SOURCE.read_bytes(), _SOURCE.with_suffix(".built").read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return False
    return built.split()[:1] == [hashlib.sha256(source).hexdigest()]
