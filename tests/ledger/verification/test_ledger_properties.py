"""Whatever comes in: entries and bodies survive the round trip, parsers leak one error."""

import hashlib
import math
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loose_entries import Entry, decode_entry, encode_entry

from ledger.bodies import decode_body, encode_body
from ledger.entries import MAX_ENTRY_SIZE, Author, entry_hash
from ledger.errors import EncodingError, LedgerError, MalformedError, VerificationError
from ledger.verification.states import State
from ledger.verification.verified_entries import parse_entry
from ledger.verification.verified_notes import open_tree_head
from ledger.verification.verify import Verification

small = st.integers(0, 2**63 - 1)
authors = st.builds(
    Author,
    role=st.text(min_size=1, max_size=16),
    key_id=st.binary(min_size=32, max_size=32),
    signature=st.binary(min_size=64, max_size=64),
)
entries = st.builds(
    Entry,
    index=small,
    stream_id=st.uuids(),
    stream_version=small,
    time_ns=small,
    previous=st.binary(min_size=32, max_size=32),
    name=st.text(min_size=1, max_size=63),
    body=st.binary(max_size=300),
    author=st.none() | authors,
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=40)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)
bodies = st.dictionaries(st.text(max_size=9), values, max_size=8)


@given(entries)
def test_entry_survives_the_round_trip(entry: Entry) -> None:
    data = encode_entry(entry)
    assert decode_entry(data) == entry
    parsed = parse_entry(data, index=entry.index)
    for field in ("index", "stream_id", "stream_version", "time_ns", "previous", "name", "body"):
        assert getattr(parsed, field) == getattr(entry, field)
    assert parsed.entry_hash == entry_hash(data)
    assert (parsed.author is None) == (entry.author is None)


@given(entries, st.data())
def test_both_parsers_agree_on_damaged_entries(entry: Entry, data: st.DataObject) -> None:
    damaged = bytearray(encode_entry(entry))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    damaged += data.draw(st.binary(max_size=3))
    both_agree(bytes(damaged))


@given(st.binary(max_size=400))
def test_both_parsers_agree_on_any_bytes(data: bytes) -> None:
    both_agree(b"\x01" + data)


def both_agree(data: bytes) -> None:
    try:
        decoded = decode_entry(data)
    except MalformedError:
        with pytest.raises(MalformedError):
            parse_entry(data, index=0)
    else:
        assert encode_entry(decoded) == data
        parsed = parse_entry(data, index=0)
        assert (parsed.name, parsed.body) == (decoded.name, decoded.body)


@given(st.integers(0, 300))
def test_tree_has_the_recursive_root_of_rfc6962(size: int) -> None:
    leaves = [entry_hash(bytes([n % 256])) for n in range(size)]
    tree = State()
    for at in range(0, size, 7):
        tree = tree.grown(leaves[at : at + 7])
    assert tree.root == recursive_root(leaves)
    assert len(tree.edge) == size.bit_count()
    assert State().grown(leaves) == tree


def recursive_root(leaves: list[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    left, right = recursive_root(leaves[:split]), recursive_root(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@given(bodies)
def test_body_survives_the_round_trip(body: dict[str, Any]) -> None:
    data = encode_body(body)
    assert same(decode_body(data), body)
    assert encode_body(decode_body(data)) == data


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@given(bodies, st.data())
def test_body_decoder_leaks_one_error_on_damaged_bytes(
    body: dict[str, Any], data: st.DataObject
) -> None:
    damaged = bytearray(encode_body(body))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    decodes_or_is_malformed(bytes(damaged))


@given(st.binary(max_size=200))
def test_body_decoder_leaks_one_error_on_any_bytes(data: bytes) -> None:
    decodes_or_is_malformed(data)


def decodes_or_is_malformed(data: bytes) -> None:
    try:
        body = decode_body(data)
    except MalformedError:
        return
    assert encode_body(body) == data


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth - 1):
        value = [value]
    return {"x": value}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "nothing"),
        (b"\x90", "an array"),
        (b"\x80\x80", "trailing bytes"),
        (b"\x82\xa1a\x01\xa1a\x02", "a repeated key"),
        (b"\x81\x01\x01", "an integer key"),
        (b"\x81\xc4\x01a\x01", "a binary key"),
        (b"\x81\xc0\x01", "a nil key"),
        (b"\x81\xa1a\xca\x3f\x80\x00\x00", "float 32"),
        (b"\x81\xa1a\xcc\x01", "an integer longer than need be"),
        (b"\x81\xd9\x01a\x01", "a text longer than need be"),
        (b"\xde\x00\x01\xa1a\x01", "a map longer than need be"),
        (b"\x81\xa1a\xc7\x00\x05", "an extension"),
        (b"\x81\xa1a\xd6\xff\x00\x00\x00\x00", "a timestamp"),
        (b"\x81\xa1a\xa1\xff", "text that is not UTF-8"),
        (b"\x81\xa1a\xa3\xed\xa0\x80", "a surrogate"),
        (b"\x81\xa1a\xc1", "the unused byte"),
        (b"\x81\xa1a\xc6\xff\xff\xff\xff", "a length beyond the end"),
        (b"\x81\xa1a" + b"\x91" * 5_000 + b"\x01", "nesting of 5,000"),
        (bytes(msgpack.packb(nested(33))), "nesting of 33"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_body_in_a_forbidden_encoding_is_rejected(data: bytes, what: str) -> None:
    assert decode_body(b"\x81\xa1a\x01") == {"a": 1}
    assert decode_body(encode_body(nested(32))) == nested(32)
    with pytest.raises(MalformedError, match="body"):
        decode_body(data)


class Loud(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"a": {"b": [0, 1j]}}, r"body\.a\.b\[1\] is of type complex"),
        ({"a": {1: 2}}, r"body\.a has the key 1; keys are text"),
        ({"a": 2**64}, r"body\.a is 18446744073709551616, which does not fit"),
        ({"a": -(2**63) - 1}, r"body\.a is -9223372036854775809, which"),
        ({"a": {1, 2}}, r"body\.a is of type set"),
        ({"a": UUID(int=1)}, r"body\.a is of type UUID"),
        ({"a": Loud("x")}, r"body\.a is of type Loud"),
        ({"a": bytearray(b"x")}, r"body\.a is of type bytearray"),
        ({"a": "\ud800"}, r"body\.a is not valid text"),
        (nested(33), "is nested deeper than 32 levels"),
    ],
)
def test_value_without_an_encoding_is_refused_by_its_path(
    body: dict[str, Any], message: str
) -> None:
    with pytest.raises(EncodingError, match=message):
        encode_body(body)


def test_entry_at_the_limit_is_taken_and_one_byte_more_is_refused() -> None:
    def entry(size: int) -> Entry:
        return Entry(
            index=0,
            stream_id=UUID(int=0),
            stream_version=1,
            time_ns=0,
            previous=bytes(32),
            name="n",
            body=bytes(size),
        )

    overhead = 73 + 1 + 2 + 2
    data = encode_entry(entry(MAX_ENTRY_SIZE - overhead))
    assert len(data) == MAX_ENTRY_SIZE
    assert parse_entry(data, index=0).body == decode_entry(data).body
    with pytest.raises(EncodingError, match=r"65,536 bytes; the limit is 65,535. Store .* a blob"):
        encode_entry(entry(MAX_ENTRY_SIZE - overhead + 1))


@given(st.text(max_size=300))
def test_note_parser_leaks_one_error(note: str) -> None:
    vkey = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
    with pytest.raises(VerificationError):
        open_tree_head(f"example.com/foo\n1\n\n\u2014 {note}\n", vkey=vkey)
    with pytest.raises(VerificationError):
        open_tree_head(note, vkey=vkey)


@given(st.text(max_size=100))
def test_vkey_parser_leaks_one_error(vkey: str) -> None:
    with pytest.raises(MalformedError, match="check the key file"):
        open_tree_head("", vkey=vkey)


hostile = st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=90)


@given(
    st.lists(st.tuples(hostile, hostile, hostile, hostile, hostile), max_size=3),
    st.lists(st.tuples(hostile, hostile, hostile), max_size=2),
)
def test_verifier_leaks_one_error_on_rows_of_any_types(entries: Any, heads: Any) -> None:
    vkey = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
    try:
        Verification(vkey=vkey).run(entries, heads)
    except LedgerError as e:
        assert isinstance(e, VerificationError)  # noqa: PT017  (both ends are allowed)
    else:
        assert not entries
        assert not heads
