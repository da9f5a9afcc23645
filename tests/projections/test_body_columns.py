"""The compiled module beside the ledger's decoder: the same values, and nothing that it refuses.

Without the module (`make speedups` builds it) there is nothing to compare.
"""

import hashlib
import random
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bodies import decode_body, encode_body
from ledger.verification.verified_entries import VerifiedEntry
from projections import columns, speedups
from projections.fields import ARROW, CompiledFields, DecodedFields, OddError
from projections.mapping import TABLES, TYPES, json_text
from projections.rows import ROWS, rows_of
from projections.speedups import compiled

pytest_plugins = ("projection_fixtures",)
module = compiled()
pytestmark = pytest.mark.skipif(module is None, reason="the compiled module is not built")

STREAM = "00000000-0000-0000-0000-000000000007"
FIELDS = [
    ("flag", "BOOLEAN", True),
    ("big", "BIGINT", False),
    ("small?", "INTEGER", True),
    ("number", "DOUBLE", True),
    ("text", "VARCHAR", False),
    ("any", "JSON", True),
    ("any.inner?", "VARCHAR", True),
    ("list.*.number", "DOUBLE", True),
    ("list.*.name", "VARCHAR", False),
    ("words?.*", "VARCHAR", False),
    ("map.**", "BIGINT", False),
    ("map.**key", "VARCHAR", False),
]
BODY: dict[str, Any] = {
    "v": 1,
    "flag": None,
    "big": 2**63 - 1,
    "number": 3,
    "text": "\u00e9",
    "any": {"inner": "x", "other": [None, {}]},
    "list": [{"number": 0.5, "name": "a"}, {"name": "", "more": True, "number": None}],
    "map": {"a": 1, "b": -(2**63)},
}


def taken(data: bytes, *, version: int = 1) -> CompiledFields | None:
    """Return the fields of a body, None if it is odd."""
    assert module is not None
    found = module.Columns(module.Plan(FIELDS, version), [data])
    assert found.odd in ([], [0])
    return None if found.odd else CompiledFields(found)


def compare(data: bytes) -> bool:
    """Compare what both say of a body; tell whether the module took it."""
    found = taken(data)
    if found is None:
        return False
    decoded = DecodedFields([decode_body(data)])
    for path, kind, nullable in FIELDS:
        wanted = decoded.column(path, kind, nullable)
        assert repr(found.column(path, kind, nullable).to_pylist()) == repr(wanted.to_pylist())
        assert found.column(path, kind, nullable).type == ARROW[kind] == wanted.type
        assert found.missing(path).tolist() == decoded.missing(path).tolist()
    for path in ("list.*", "words?.*", "map.**"):
        assert found.lengths(path).tolist() == decoded.lengths(path).tolist()
    return True


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
numbers = st.none() | st.floats() | st.integers(-9, 300)
fitting = st.fixed_dictionaries(
    {
        "v": st.just(1),
        "flag": st.none() | st.booleans(),
        "big": st.integers(-(2**63), 2**63 - 1),
        "number": numbers | st.integers(-(2**54), 2**54),
        "text": st.text(),
        "any": values.filter(lambda value: isinstance(value, dict)),
        "list": st.lists(
            st.fixed_dictionaries({"number": numbers, "name": st.text(max_size=5)}), max_size=20
        ),
        "map": st.dictionaries(st.text(max_size=4), st.integers(-(2**20), 2**40), max_size=20),
    },
    optional={
        "small": st.none() | st.integers(-(2**32), 2**32),
        "words": st.lists(st.text(max_size=50)),
        "more": values,
    },
)


def test_module_takes_an_ordinary_body() -> None:
    assert compare(encode_body(BODY))
    assert compare(encode_body({"more": {}, **dict(reversed(BODY.items())), "small": 2**31 - 1}))


@settings(max_examples=60, deadline=None)
@given(fitting, st.data())
def test_module_and_decoder_say_the_same_of_random_bodies(
    body: dict[str, Any], data: st.DataObject
) -> None:
    compare(encode_body(body))
    key = data.draw(st.sampled_from([*body]))
    compare(encode_body({**body, key: data.draw(values)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"flag": 1},
        {"big": True},
        {"big": 2**63},
        {"big": 1.0},
        {"small": 2**31},
        {"number": "1"},
        {"number": 2**53 + 1},
        {"text": None},
        {"text": b"x"},
        {"any": []},
        {"list": {}},
        {"list": None},
        {"list": [{"number": 1.0}]},
        {"list": [7]},
        {"map": []},
        {"map": {"a": None}},
        {"words": None},
        {"words": [None]},
        {"v": 2},
        {"v": True},
        {"more": b"bytes"},
        {"more": [[[[[[[[[]]]]]]]]]},
        {"more": {str(number): 0 for number in range(40)}},
    ],
)
def test_value_that_does_not_fit_is_odd(changes: dict[str, Any]) -> None:
    assert taken(encode_body({**BODY, **changes})) is None


@pytest.mark.parametrize("key", list(BODY))
def test_body_without_a_field_is_odd(key: str) -> None:
    assert taken(encode_body({k: value for k, value in BODY.items() if k != key})) is None


@pytest.mark.parametrize(
    ("said", "otherwise"),
    [
        (b"\xa4text\xa2\xc3\xa9", b"\xa4text\xd9\x02\xc3\xa9"),  # a longer length
        (b"\xa4text\xa2\xc3\xa9", b"\xa4text\xa2\xc3\x28"),  # no UTF-8
        (b"\xa4text\xa2\xc3\xa9", b"\xa4text\xa3\xed\xa0\x80"),  # half a character
        (b"\xa4text\xa2\xc3\xa9", b"\xd9\x04text\xa2\xc3\xa9"),
        (b"\xa6number\x03", b"\xa6number\xcc\x03"),
        (b"\xa6number\x03", b"\xa6number\xd0\x03"),
        (b"\xa6number\x03", b"\xa6number\xca\x3f\x80\x00\x00"),  # 32 bits
        (b"\xa6number\x03", b"\xa6number\xd1\xff\xff"),
        (b"\xa6number\x03", b"\xa6number\xd4\x01\x01"),  # an extension
        (b"\xa6number\x03", b"\xa6number\xc1"),
        (b"\xa4flag\xc0", b"\xa4text\xa0"),  # twice
        (b"\xa1a\x01\xa1b", b"\xa1b\x01\xa1b"),
        (b"\xa4list\x92", b"\xa4list\xdc\x00\x02"),
        (b"\xa4list\x92", b"\xa4list\xdd\xff\xff\xff\xff"),
        (b"\xa3map\x82", b"\xa3map\xde\x00\x02"),
        (b"\xa4flag\xc0", b"\xa4flag"),
    ],
)
def test_other_encoding_is_odd(said: bytes, otherwise: bytes) -> None:
    data = encode_body(BODY)
    assert data.count(said) == 1
    changed = data.replace(said, otherwise)
    assert changed != data
    assert taken(changed) is None
    assert taken(data + b"\xc0") is None
    assert taken(b"") is None


@pytest.mark.parametrize(
    "number",
    [
        n
        for bits in (5, 7, 8, 15, 16, 31, 32, 63)
        for n in (2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1)
    ],
)
def test_integers_at_the_ends_of_their_forms(number: int) -> None:
    if number >= -(2**63):
        assert compare(encode_body({**BODY, "number": None, "more": number}))
        assert compare(encode_body({**BODY, "big": number})) == (number < 2**63)


# Mutations of what was recorded.


@pytest.fixture(scope="module")
def recorded(entries: list[VerifiedEntry]) -> dict[str, list[bytes]]:
    """Bodies of the kinds of events that the module reads."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for entry in entries:
        if entry.name in ROWS and columns._plan(entry.name) is not None:
            found[entry.name].append(entry.body)
    return found


def expected(name: str, body: dict[str, Any], index: int) -> dict[str, list[Any]]:
    """Return what the projector makes of a body, by tables."""
    found: dict[str, list[Any]] = defaultdict(list)
    for table, row in rows_of(name, body, stream=STREAM, idx=index):
        values = {}
        for column, (kind, nullable) in TABLES[table].items():
            value = row[column]
            if kind == "JSON" and value is not None:
                value = json_text(value)
            elif value is None:
                assert nullable
            else:
                assert type(value) in TYPES[kind]
                value = float(value) if kind == "DOUBLE" else value
            values[column] = value
        found[table].append(repr(values))
    return dict(found)


def of_module(name: str, bodies: list[bytes]) -> dict[str, list[Any]] | None:
    """Return what the module makes of bodies that are not odd, by tables."""
    plan = columns._plan(name)
    assert plan is not None
    read = plan[0](plan[1], bodies)
    assert not read.odd
    kind = columns._Kind(
        bodies, [STREAM] * len(bodies), [*range(len(bodies))], [None] * len(bodies)
    )
    try:
        tables = list(columns._tables_from(name, kind, CompiledFields(read), None))
    except OddError:
        return None
    return {table: [repr(row) for row in rows.to_pylist()] for table, rows in tables}


def mutated(body: bytes, chance: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                data[at] = chance.choice(
                    b"\x00\x7f\x80\x90\xa0\xc0\xc2\xca\xcb\xcc\xcf\xd3\xd9\xe0"
                )
            case 3:
                del data[at : at + chance.randrange(1, 10)]
            case _:
                other = chance.randrange(len(data))
                data[at:at] = data[other : other + chance.randrange(1, 20)]
        if not data:
            return body
    return bytes(data)


def compare_mutations(recorded: dict[str, list[bytes]], *, many: int, seed: int) -> int:
    """Compare so many mutations, some of a kind at a time; return how many were taken."""
    chance, whole = random.Random(seed), 0
    for done in count(step=40):
        if done >= many:
            return whole
        name = chance.choice([*recorded])
        plan = columns._plan(name)
        assert plan is not None
        tried = [mutated(chance.choice(recorded[name]), chance) for _ in range(40)]
        odd = set(plan[0](plan[1], tried).odd)
        bodies = [body for place, body in enumerate(tried) if place not in odd]
        whole += len(bodies)
        every = [bodies]
        while every:
            some = every.pop()
            made = of_module(name, some) if some else None
            if made is None:
                for body in some:
                    decode_body(body)
                every += [[body] for body in some] if len(some) > 1 else []
                continue
            wanted: dict[str, list[Any]] = defaultdict(list)
            for index, body in enumerate(some):
                for table, rows in expected(name, decode_body(body), index).items():
                    wanted[table] += rows
            assert made == dict(wanted)
    return whole


def test_module_takes_all_that_was_recorded(recorded: dict[str, list[bytes]]) -> None:
    assert {"run.epoch_measured", "run.rules_evaluated", "run.decision_made"} < {*recorded}
    for name, bodies in recorded.items():
        made = of_module(name, bodies)
        assert made is not None
        wanted: dict[str, list[Any]] = defaultdict(list)
        for index, body in enumerate(bodies):
            for table, rows in expected(name, decode_body(body), index).items():
                wanted[table] += rows
        assert made == dict(wanted)


def test_module_and_projector_say_the_same_of_mutations(recorded: dict[str, list[bytes]]) -> None:
    assert compare_mutations(recorded, many=4_000, seed=1) > 400


@pytest.mark.slow
def test_module_and_projector_say_the_same_of_a_million_mutations(
    recorded: dict[str, list[bytes]],
) -> None:
    assert compare_mutations(recorded, many=1_000_000, seed=2) > 100_000


def test_module_of_another_source_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "body_columns.pyx"
    monkeypatch.setattr(speedups, "_SOURCE", source)
    source.write_text("one")
    assert compiled.__wrapped__() is None
    told = hashlib.sha256(b"one").hexdigest() + "  body_columns.pyx\n"
    source.with_suffix(".built").write_text(told)
    assert compiled.__wrapped__() is module
    source.write_text("another")
    assert compiled.__wrapped__() is None


def test_setting_turns_the_module_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_COMPILED", "off")
    assert compiled.__wrapped__() is None
