"""Bodies are decoded as the format says, whatever else MessagePack would allow.

The product writes with one implementation (msgpack) and reads with another (msgspec).
"""

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bodies import MAX_DEPTH, decode_body, encode_body
from ledger.errors import EncodingError, MalformedError

_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
)
_ODD = st.dictionaries(st.text(max_size=3) | st.binary(max_size=3), _PLAIN, max_size=3)


@settings(max_examples=40, deadline=None)
@given(
    data=st.binary(max_size=20)
    | st.dictionaries(st.text(max_size=4), _PLAIN | _ODD, max_size=4).map(msgpack.packb)
    | _PLAIN.map(msgpack.packb),
    tail=st.sampled_from([b"", b"\xc0"]),
)
def test_body_is_accepted_exactly_if_another_implementation_encodes_it_so(
    data: bytes, tail: bytes
) -> None:
    data += tail
    try:
        found = msgpack.unpackb(data, strict_map_key=True, timestamp=0)
        encode_body(found)  # raises for what a body may not contain
        permitted = isinstance(found, dict) and msgpack.packb(found) == data
    except (EncodingError, AttributeError, TypeError, ValueError):
        permitted = False
    if permitted:
        assert repr(decode_body(data)) == repr(found)
        assert encode_body(found) == data
    else:
        with pytest.raises(MalformedError):
            decode_body(data)


@pytest.mark.parametrize(
    "value",
    [
        msgpack.Timestamp(1, 1),
        msgpack.ExtType(5, b"x"),
        {b"key": 1},
        {"deep": [{b"key": 1}]},
    ],
)
def test_body_that_msgpack_alone_would_pass_is_rejected(value: object) -> None:
    assert decode_body(msgpack.packb({"v": 1, "honest": [{"key": 1}]})) == {
        "v": 1,
        "honest": [{"key": 1}],
    }
    with pytest.raises(MalformedError):
        decode_body(msgpack.packb({"v": 1, "value": value}))


@pytest.mark.parametrize(
    ("honest", "other"),
    [
        (b"\x01", b"\xcc\x01"),
        (b"\x01", b"\xd0\x01"),
        (b"\xff", b"\xd0\xff"),
        (b"\xcf" + (2**40).to_bytes(8, "big"), b"\xd3" + (2**40).to_bytes(8, "big")),
        (b"\xcb" + bytes(8), b"\xca" + bytes(4)),
        (b"\xa1a", b"\xd9\x01a"),
        (b"\xd9\x20" + b"a" * 32, b"\xda\x00\x20" + b"a" * 32),
        (b"\xc4\x01a", b"\xc5\x00\x01a"),
        (b"\x91\x01", b"\xdc\x00\x01\x01"),
        (b"\x81\xa1k\x01", b"\xde\x00\x01\xa1k\x01"),
        (b"\x81\xa1k\x01", b"\x82\xa1k\x02\xa1k\x01"),
    ],
)
def test_body_in_another_encoding_is_rejected(honest: bytes, other: bytes) -> None:
    assert encode_body(decode_body(b"\x81\xa1v" + honest)) == b"\x81\xa1v" + honest
    with pytest.raises(MalformedError, match="only permitted encoding"):
        decode_body(b"\x81\xa1v" + other)


def test_body_deeper_than_allowed_is_rejected() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode_body(msgpack.packb({"value": value})) == {"value": value}
    with pytest.raises(MalformedError, match="deeper than"):
        decode_body(msgpack.packb({"value": [value]}))
