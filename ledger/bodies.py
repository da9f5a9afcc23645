"""Event bodies: strict MessagePack with exactly one byte string for each value.

Source: docs/reference/ledger-format.md, "Body"; the MessagePack specification.
Trust: decode_body() takes hostile bytes and raises MalformedError only.
I/O: none.
"""

from typing import Any

import msgpack
import msgspec

from ledger.errors import EncodingError, MalformedError

MAX_DEPTH = 32  # levels, the body's own map being the first
_SCALARS = frozenset({type(None), bool, float, bytes})
_LEVELS = 6  # of maps and lists that are checked in C; each makes the decoder twice as large
_Value: Any = None | bool | int | float | str
for _ in range(_LEVELS):
    _Value = None | bool | int | float | str | list[_Value] | dict[str, _Value]
_COMMON = msgspec.msgpack.Decoder(dict[str, _Value])  # a quarter of the time of _plain()
_ANY = msgspec.msgpack.Decoder()
_encode = msgspec.msgpack.Encoder().encode


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the body's bytes; raise EncodingError naming the field that has no encoding.

    Bodies are written by one implementation of MessagePack and read by another.
    """
    data: bytes = msgpack.packb(_plain(body, path="body", depth=1))
    return data


def decode_body(data: bytes) -> dict[str, Any]:
    """Return the map that these bytes hold; raise MalformedError unless encode_body() makes them.

    Encoding again and comparing refuses in one stroke what MessagePack can say in
    several ways: repeated keys, float 32, lengths that are longer than need be.
    """
    try:
        body: dict[str, Any] = _COMMON.decode(data)
        if _encode(body) == data:
            return body
    except (msgspec.MsgspecError, ValueError, RecursionError):  # told below
        pass
    try:
        found = _ANY.decode(data)
        canonical = isinstance(found, dict) and encode_body(found) == data
    except EncodingError as e:
        raise MalformedError(str(e)) from e
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as e:
        raise MalformedError(f"body is not msgpack: {type(e).__name__}: {e}") from e
    if not canonical:
        raise MalformedError("body is not one msgpack map in its only permitted encoding")
    return dict(found)


def _plain(value: object, *, path: str, depth: int) -> object:
    """Return the value with tuples made lists, having looked at every part of it."""
    kind = type(value)  # exact types: a subclass would come back as something else
    if kind in _SCALARS:
        return value
    if isinstance(value, str) and kind is str:
        return _text(value, path)
    if isinstance(value, int) and kind is int:
        if not -(2**63) <= value < 2**64:
            raise EncodingError(f"{path} is {value}, which does not fit into 64 bits")
        return value
    if depth > MAX_DEPTH:
        raise EncodingError(f"{path} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list | tuple) and kind in (list, tuple):
        return [_plain(v, path=f"{path}[{i}]", depth=depth + 1) for i, v in enumerate(value)]
    if isinstance(value, dict) and kind is dict:
        return {
            _key(k, path): _plain(v, path=f"{path}.{k}", depth=depth + 1) for k, v in value.items()
        }
    raise EncodingError(
        f"{path} is of type {kind.__name__}; a body holds None, bool, int, float, str, bytes, "
        "lists and dicts"
    )


def _key(key: object, path: str) -> str:
    if not isinstance(key, str) or type(key) is not str:
        raise EncodingError(f"{path} has the key {key!r}; keys are text")
    return _text(key, path)


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise EncodingError(f"{path} is not valid text: {e.reason}") from e
    return text
