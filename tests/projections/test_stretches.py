"""Tables made of stretches, in other processes too, beside the same made entry by entry."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_digests import table_digests

from ledger.bodies import decode_body, encode_body
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from projections import bulk
from projections.bulk import write_stretch
from projections.projector import project
from projections.source import open_source
from projections.stretches import stretch_of, unpacked

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
        pipe = bulk._started(stack, ledger, start=0, end=size, step=bulk.STRETCH)
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
def test_stretch_with_an_odd_entry_sets_it_aside_as_the_projector_does(
    entries: list[VerifiedEntry],
    page: Page,
    empty: Empty,
    name: str,
    changes: dict[str, object],
) -> None:
    odd = next(entry for entry in entries if entry.name == name)
    index, honest = page[odd.index]
    body = encode_body({**decode_body(odd.body), **changes})
    data = honest[: -len(odd.body) - 2] + len(body).to_bytes(2, "big") + body
    spoilt = [*page[:index], (index, data), *page[index + 1 : index + 4]]
    together, singly = empty(), empty()
    stretch = stretch_of([spoilt], start=0)
    assert stretch is not None
    write_stretch(together, stretch, start=0)
    for at, each in spoilt:
        project(singly, [parse_entry(each, index=at)], quarantine=True)
    [(found,)] = together.execute("SELECT idx FROM unreadable").fetchall()
    assert found == index
    assert table_digests(together) == table_digests(singly)


def test_entry_out_of_its_place_is_left_to_the_projector(page: Page) -> None:
    assert stretch_of([page[3:5]], start=3) is not None
    assert stretch_of([page[3:5]], start=2) is None
    assert stretch_of([[page[3], page[5]]], start=3) is None
    assert stretch_of([[page[3], (4, page[4][1][:80])]], start=3) is None


def test_writer_of_a_few_entries_loads_no_arrow() -> None:
    code = "import sys, projections.cache; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
