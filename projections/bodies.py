"""Event bodies, read as `decode_body` of the ledger reads them and in a third of its time.

What is plainly good is told by the same two means, from within C: encoded again it is the same
bytes, and it holds nothing but what a body may hold. Whatever else it is, decode_body() decides.

Trust: bytes are hostile; MalformedError only.
I/O: none.
"""

from typing import Any

import msgpack

from ledger.bodies import MAX_DEPTH, decode_body

__all__ = ["read_body"]

_KEYS = frozenset({str})
_PARTS = frozenset({dict, list})
_KINDS = frozenset({type(None), bool, int, float, str, bytes}) | _PARTS


def read_body(data: bytes) -> dict[str, Any]:
    """Return the map that these bytes hold; raises MalformedError as decode_body() does."""
    try:
        body = msgpack.unpackb(data, raw=False, strict_map_key=True, timestamp=0)
        if _is_plain(body) and msgpack.packb(body, use_bin_type=True) == data:
            return dict(body)
    except Exception:  # noqa: S110 - the C parser's half a dozen types; told below
        pass
    return decode_body(data)


def _is_plain(body: object) -> bool:
    """Tell whether this is a map of what bodies hold, no deeper than they may be."""
    if type(body) is not dict:
        return False
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        parts: list[Any] = []
        for outer in level:
            if type(outer) is dict:
                if not _KEYS.issuperset(map(type, outer)):
                    return False
                parts += outer.values()
            else:
                parts += outer
        if not _KINDS.issuperset(map(type, parts)):
            return False
        level = [part for part in parts if type(part) in _PARTS]
        if not level:
            return True
    return False
