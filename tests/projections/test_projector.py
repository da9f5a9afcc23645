"""Entries into tables: order, batches, transactions, and what a body may hold."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from table_digests import table_digests

from aggregates.registry import REGISTRY
from ledger.bodies import decode_body, encode_body
from ledger.verification.verified_entries import VerifiedEntry
from projections.errors import ProjectionError
from projections.identity import read_position
from projections.mapping import TABLES
from projections.projector import project
from projections.rows import ROWS

pytest_plugins = ("projection_fixtures",)

Entries = list[VerifiedEntry]
Empty = Callable[[], duckdb.DuckDBPyConnection]


def digests(empty: Empty, entries: Entries) -> dict[str, str]:
    connection = empty()
    project(connection, entries)
    return table_digests(connection)


def forged(entry: VerifiedEntry, **changes: Any) -> VerifiedEntry:
    return replace(entry, body=encode_body({**decode_body(entry.body), **changes}))


def first_of(entries: Entries, name: str) -> VerifiedEntry:
    return next(entry for entry in entries if entry.name == name)


def up_to(entries: Entries, last: VerifiedEntry) -> Entries:
    """Return the entries with `last` in the place of the one with its index."""
    return [*entries[: last.index], last]


@pytest.fixture(scope="module")
def whole(entries: Entries, empty: Empty) -> dict[str, str]:
    """Digests after all entries at once."""
    return digests(empty, entries)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_tables_are_the_same_when_entries_come_in_any_batches(
    data: st.DataObject, entries: Entries, empty: Empty, whole: dict[str, str]
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(entries) - 1), max_size=8)))
    batch_bytes = data.draw(st.sampled_from([2_000, 15_000, 1 << 20]))
    connection = empty()
    bounds = [0, *cuts, len(entries)]
    for start, end in pairwise(bounds):
        assert project(connection, entries[start:end], batch_bytes=batch_bytes) == end - start
    assert table_digests(connection) == whole


def test_digests_differ_when_one_value_differs(
    entries: Entries, empty: Empty, whole: dict[str, str]
) -> None:
    connection = empty()
    project(connection, entries)
    connection.execute("UPDATE log.epochs SET lr = 0.2 WHERE idx = (SELECT MIN(idx) FROM epochs)")
    changed = {t for t, digest in table_digests(connection).items() if digest != whole[t]}
    assert changed == {"epochs"}


def test_every_registered_event_has_rows_defined() -> None:
    assert {event_type.name for event_type in REGISTRY} == ROWS.keys()


# Fields that are no column, as their parts are rows or columns of their own.
IN_PARTS = {
    "run.epoch_measured": {"measured"},
    "run.rules_evaluated": {"evaluations"},
    "run.decision_made": {"cites"},
    "credit.measured": {"accuracy", "loss"},
    "audit.scored": {"further", "violations"},
    "transcript.call_made": {"usage"},
    "checkpoint.promoted": {"proposals"},
    "checkpoint.evaluated": {"code"},
    "advice.answered": {"base", "candidate"},
    "advice.round_ended": {"measured"},
}
# The table has the checkpoints of every origin; whoever adopts one has checked the envelope.
UNSEEN = {"checkpoint.adopted": {"envelope"}}


def test_every_field_of_an_event_is_a_column() -> None:
    missing = {
        event.name: lacking
        for event in REGISTRY
        if (
            lacking := set(event.names or ())
            - {
                rows.keys.get(column, column).removesuffix(end)
                for rows in ROWS[event.name]
                for column in TABLES[rows.table]
                for end in ("", "_id")
            }
        )
    }
    assert missing == IN_PARTS | UNSEEN


def test_entry_after_any_end_of_a_stream_is_misplaced(entries: Entries, empty: Empty) -> None:
    """Where honest programs wrote every event, there is none."""
    ends = [each.name for each in REGISTRY if getattr(each.event_class, "ENDS", "")]
    assert {"run.ended", "audit.scored", "proposal.concluded"} <= {*ends}
    later = [
        replace(entry, index=index, stream_version=1_000)
        for index, entry in enumerate((first_of(entries, name) for name in ends), len(entries))
    ]
    connection = empty()
    project(connection, entries)
    ask = "SELECT name, why FROM misplaced_entries ORDER BY idx"
    assert connection.execute(ask).fetchall() == []
    project(connection, later)
    assert connection.execute(ask).fetchall() == [(name, "after the end") for name in ends]


def test_every_table_has_rows_when_the_ledger_has_every_event(
    entries: Entries, empty: Empty
) -> None:
    assert {entry.name for entry in entries} == ROWS.keys() | {"key.granted"}
    connection = empty()
    project(connection, entries)
    counts = {
        table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
        for table in table_digests(connection)
    }
    assert [table for table, count in counts.items() if count == (0,)] == ["unreadable"]
    assert counts["events"] == (len(entries),)


def test_numbers_that_are_not_finite_survive(entries: Entries, empty: Empty) -> None:
    connection = empty()
    project(connection, entries)
    rows = connection.execute(
        "SELECT train_loss, max_layer_grad_norm, (reported ->> '$.note')::DOUBLE, clip_norm "
        "FROM epochs WHERE ISNAN(train_loss)"
    ).fetchall()
    loss, norm, note, clip_norm = rows[0]
    assert math.isnan(loss)
    assert norm == math.inf
    assert math.isnan(note)
    assert clip_norm is None  # and what is missing stays missing


def test_tables_are_those_of_the_database(empty: Empty) -> None:
    found = empty().execute(
        "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
        "WHERE schema_name = 'log' ORDER BY table_oid, column_index"
    )
    tables: dict[str, dict[str, tuple[str, bool]]] = {}
    for table, column, kind, nullable in found.fetchall():
        tables.setdefault(table, {})[column] = (kind, nullable)
    assert tables == TABLES
    assert all(list(tables[table]) == list(TABLES[table]) for table in tables)


def test_position_is_behind_the_last_entry_with_its_hash(entries: Entries, empty: Empty) -> None:
    connection = empty()
    assert read_position(connection)[:2] == (0, None)
    project(connection, entries[:10])
    assert read_position(connection)[:2] == (10, entries[9].entry_hash.hex())


def test_whole_batches_stay_with_their_position_when_the_source_fails(
    entries: Entries, empty: Empty
) -> None:
    def failing() -> Iterator[VerifiedEntry]:
        yield from entries[:12]
        raise RuntimeError("the disk is gone")

    connection = empty()
    with pytest.raises(RuntimeError, match="the disk is gone"):
        project(connection, failing(), batch_bytes=4_000)
    applied = read_position(connection)[0]
    assert 0 < applied < 12
    assert table_digests(connection) == digests(empty, entries[:applied])


def test_nothing_of_a_batch_stays_when_a_value_overflows(entries: Entries, empty: Empty) -> None:
    connection = empty()
    project(connection, entries[:2])
    before = table_digests(connection)
    ended = forged(first_of(entries, "run.weights_saved"), epoch=2**40)
    with pytest.raises(ProjectionError, match=r"epoch must be a INTEGER, not 1099511627776"):
        project(connection, up_to(entries, ended)[2:])
    assert table_digests(connection) == before
    project(connection, entries[2:])  # and the honest ones still fit
    assert table_digests(connection) == digests(empty, entries)


@pytest.mark.parametrize("missing", [0, 5])
def test_entry_behind_a_gap_is_rejected(entries: Entries, empty: Empty, missing: int) -> None:
    connection = empty()
    with pytest.raises(ProjectionError, match=f"expected entry {missing}, not"):
        project(connection, [*entries[:missing], *entries[missing + 1 :]])


def test_entry_of_an_unknown_kind_is_rejected(entries: Entries, empty: Empty) -> None:
    newer = replace(entries[3], name="run.teleported")
    with pytest.raises(ProjectionError, match=r"entry 3.*newer program"):
        project(empty(), up_to(entries, newer))


def test_entry_of_a_newer_version_is_rejected(entries: Entries, empty: Empty) -> None:
    with pytest.raises(ProjectionError, match=r"entry 3.*supports up to 1"):
        project(empty(), up_to(entries, forged(entries[3], v=2)))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("run.ended", {"reason": 7}, r"run_ends\.reason must be a VARCHAR, not 7"),
        ("run.ended", {"reason": None}, r"run_ends\.reason is missing"),
        ("run.weights_saved", {"epoch": True}, r"weights\.epoch must be a INTEGER, not True"),
        ("run.weights_saved", {"epoch": 1.0}, r"weights\.epoch must be a INTEGER, not 1\.0"),
        ("run.decision_made", {"cites": [["R1"]]}, r"citations\.rule must be a VARCHAR"),
        ("run.decision_made", {"cites": None}, "not iterable"),
        ("run.epoch_measured", {"measured": {}}, "has no 'layers'"),
        ("run.epoch_measured", {"measured": []}, "has no"),
        ("run.rules_evaluated", {"evaluations": {"R9": {}}}, "has no field 'fired'"),
        ("audit.scored", {"violations": [{"rule": "R1"}]}, "has no field 'kind'"),
        ("audit.scored", {"violations": ["R1"]}, "not a mapping"),
        ("audit.scored", {"further": 7}, "not iterable"),
        ("audit.scored", {"further": [{"kind": "x"}]}, "has no field 'rule'"),
    ],
)
def test_body_that_does_not_fit_is_rejected(
    entries: Entries, empty: Empty, name: str, changes: dict[str, Any], message: str
) -> None:
    honest = first_of(entries, name)
    project(empty(), up_to(entries, forged(honest)))
    with pytest.raises(ProjectionError, match=rf"entry {honest.index}\b.*{message}"):
        project(empty(), up_to(entries, forged(honest, **changes)))


def test_odd_event_is_set_aside_and_hides_no_other_when_asked_for(
    entries: Entries, empty: Empty
) -> None:
    honest = first_of(entries, "run.ended")
    odd = forged(honest, reason=7)
    connection = empty()
    tail = [forged(entry) for entry in entries[honest.index + 1 : honest.index + 4]]
    project(connection, [*up_to(entries, odd), *tail], quarantine=True)
    (idx, reason, _) = connection.execute("FROM unreadable").fetchall()[0]
    assert (idx, "run_ends.reason" in reason) == (honest.index, True)
    counted = connection.execute("SELECT COUNT(*) FROM events").fetchone()
    assert counted == (honest.index + 4,)
    newer = empty()
    project(newer, up_to(entries, forged(honest, v=2)), quarantine=True)
    [(found,)] = newer.execute("SELECT reason FROM unreadable").fetchall()
    assert "supports up to 1" in found


def test_body_that_lacks_a_field_is_rejected(entries: Entries, empty: Empty) -> None:
    honest = first_of(entries, "run.ended")
    body = decode_body(honest.body)
    del body["detail"]
    with pytest.raises(ProjectionError, match=r"\(run.ended\) has no field 'detail'"):
        project(empty(), up_to(entries, replace(honest, body=encode_body(body))))


def test_bytes_and_nested_values_are_kept_in_json(entries: Entries, empty: Empty) -> None:
    started = forged(entries[0], environment={"key": b"\x00\xff", "deep": [{"a": -math.inf}]})
    connection = empty()
    project(connection, [started])
    row = connection.execute(
        "SELECT environment ->> '$.key', environment ->> '$.deep[0].a' FROM run_starts"
    ).fetchone()
    assert row == ("00ff", "-Infinity")
