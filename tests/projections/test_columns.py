"""Tables made by columns, beside the same made entry by entry; bodies read fast, and as ever."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import duckdb
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bodies import MAX_DEPTH, decode_body, encode_body
from ledger.errors import MalformedError
from ledger.verification.verified_entries import VerifiedEntry
from projections import bulk
from projections.bodies import read_body
from projections.columns import stretch_of, unpacked, write_stretch
from projections.projector import project, table_digests
from projections.source import open_source

pytest_plugins = ("projection_fixtures",)

Empty = Callable[[], duckdb.DuckDBPyConnection]
Page = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    """All entries, as they lie in the file."""
    with open_source(written) as ledger:
        return [row for part in ledger.pages(start=0) for row in part]


@pytest.fixture(scope="module")
def singly(entries: list[VerifiedEntry], empty: Empty) -> dict[str, str]:
    """Digests of the tables that are made entry by entry."""
    connection = empty()
    project(connection, entries)
    return table_digests(connection)


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_tables_are_the_same_when_made_by_columns(
    data: st.DataObject,
    page: Page,
    empty: Empty,
    singly: dict[str, str],
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(page) - 1), max_size=6)))
    connection = empty()
    for start, end in pairwise([0, *cuts, len(page)]):
        middle = data.draw(st.integers(start, end))
        pages = [part for part in (page[start:middle], page[middle:end]) if part]
        stretch = stretch_of(pages, start=start)
        assert stretch is not None
        write_stretch(connection, stretch, start=start)
    assert table_digests(connection) == singly


def test_tables_are_the_same_when_other_processes_make_them(
    written: Path, empty: Empty, singly: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "STRETCH", 100)
    connection = empty()
    with open_source(written) as ledger:
        assert bulk.apply_new(connection, ledger, start=0, processes=2) == ledger.size()
    assert table_digests(connection) == singly


def test_process_hands_over_all_of_its_stretches(written: Path) -> None:
    with ExitStack() as stack, open_source(written) as ledger:
        size = ledger.size()
        pipe = bulk._started(stack, written, start=0, end=size, step=bulk.STRETCH)
        assert unpacked(bulk._received(pipe)).count == size
        assert bulk._received(pipe) == b""


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("run.ended", {"reason": 7}),
        ("run.ended", {"reason": None}),
        ("run.weights_saved", {"epoch": True}),
        ("run.weights_saved", {"epoch": 1.0}),
        ("run.weights_saved", {"epoch": 2**40}),
        ("run.weights_saved", {"spec": None}),
        ("run.decision_made", {"cites": None}),
        ("audit.scored", {"violations": ["R1"]}),
        ("run.ended", {"v": 2}),
    ],
)
def test_stretch_with_an_odd_entry_is_left_to_the_projector(
    entries: list[VerifiedEntry],
    page: Page,
    name: str,
    changes: dict[str, object],
) -> None:
    odd = next(entry for entry in entries if entry.name == name)
    index, honest = page[odd.index]
    assert stretch_of([[(index, honest)]], start=index) is not None
    body = encode_body({**decode_body(odd.body), **changes})
    data = honest[: -len(odd.body) - 2] + len(body).to_bytes(2, "big") + body
    assert stretch_of([[(index, data)]], start=index) is None


def test_entry_out_of_its_place_is_left_to_the_projector(page: Page) -> None:
    assert stretch_of([page[3:5]], start=3) is not None
    assert stretch_of([page[3:5]], start=2) is None
    assert stretch_of([[page[3], page[5]]], start=3) is None
    assert stretch_of([[page[3], (4, page[4][1][:80])]], start=3) is None


def test_writer_of_a_few_entries_loads_no_arrow() -> None:
    code = "import sys, projections.cache; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
def test_body_is_read_as_the_ledger_reads_it(data: bytes, tail: bytes) -> None:
    def told(read: Callable[[bytes], object]) -> str:
        try:
            return repr(read(data + tail))
        except MalformedError as e:
            return f"refused: {e}"

    assert told(read_body) == told(decode_body)


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
    assert read_body(msgpack.packb({"v": 1, "honest": [{"key": 1}]})) == {
        "v": 1,
        "honest": [{"key": 1}],
    }
    with pytest.raises(MalformedError):
        read_body(msgpack.packb({"v": 1, "value": value}))


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
    assert read_body(b"\x81\xa1v" + honest) == decode_body(b"\x81\xa1v" + honest)
    with pytest.raises(MalformedError, match="only permitted encoding"):
        read_body(b"\x81\xa1v" + other)


def test_body_deeper_than_allowed_is_rejected() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert read_body(msgpack.packb({"value": value})) == {"value": value}
    with pytest.raises(MalformedError, match="deeper than"):
        read_body(msgpack.packb({"value": [value]}))
