"""The bulk verifier accepts just what the one-by-one verifier accepts, however it is divided."""

import base64
import hashlib
import random
import shutil
import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest
from circular_pages import repeat_first_row
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from edge_trees import Tree
from hypothesis import given
from hypothesis import strategies as st
from loose_entries import Entry, encode_entry
from signed_notes import sign_rotation, sign_tree_head

from ledger.database import create_database
from ledger.entries import AuthorKey, entry_hash
from ledger.errors import StorageError, VerificationError
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.verification import parallel, states, verify
from ledger.verification.authority import authority_stream
from ledger.verification.parallel import verify_divided
from ledger.verification.reader import check_ledger, open_verified
from ledger.verification.snapshots import snapshot
from ledger.verification.states import Signatures, State, Versions
from ledger.verification.vectorized import Chunk, EntryRow
from ledger.verification.verified_entries import parse_entry
from ledger.verification.verify import HeadRow, Verification, Verified

ORIGIN = "proctor.local/bulk"
OLD, NEW, OPERATOR = (
    Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"bulk %d" % n).digest()) for n in range(3)
)
VKEY = vkey(ORIGIN, public_bytes(OLD))
AUTHORITY = authority_stream(ORIGIN)
ROTATION_AT = 30  # index
SIZE = 60  # entries

Rows = tuple[list[EntryRow], list[HeadRow]]


def honest_entries(size: int = SIZE) -> list[bytes]:
    """Return entries of several streams, with authors, a grant, a rotation and names in Greek."""
    rng = random.Random("bulk")
    operator = AuthorKey("operator", OPERATOR)
    versions: dict[UUID, int] = {}
    entries = []
    for index in range(size):
        stream, name = UUID(int=rng.randrange(5)), f"test.event_{index % 3}"
        author: AuthorKey | None = None
        body = rng.randbytes(rng.randrange(40))
        if index in (3, ROTATION_AT):
            stream = AUTHORITY
            fields: dict[str, Any] = {"note": sign_rotation(origin=ORIGIN, old=OLD, new=NEW)}
            name = "key.rotated"
            if index == 3:
                name, author = "key.granted", AuthorKey("ledger", OLD)
                fields = {"role": "operator", "vkey": vkey(ORIGIN, public_bytes(OPERATOR))}
            body = msgpack.packb({"v": 1, **fields})
        elif index > 3 and index % 7 == 0:
            name, author = "\u03ba\u03c1\u03af\u03c3\u03b9\u03c2", operator
        version = versions[stream] = versions.get(stream, rng.randrange(2) - 1) + 1
        entries.append(
            encode_entry(
                Entry(
                    index=index,
                    stream_id=stream,
                    stream_version=version,
                    time_ns=index // 2,
                    previous=bytes(32),
                    name=name,
                    body=body,
                    author=None
                    if author is None
                    else author.author(
                        origin=ORIGIN,
                        stream_id=stream,
                        stream_version=version,
                        name=name,
                        body=body,
                    ),
                )
            )
        )
    return entries


def sealed(entries: Sequence[bytes], *, batch: int = 4, unlinked: int | None = None) -> Rows:
    """Return the rows of a ledger with these entries, linked and signed by who holds the keys."""
    rows: list[EntryRow] = []
    heads: list[HeadRow] = []
    tree = Tree()
    previous = bytes(32)
    for index, raw in enumerate(entries):
        data = raw[:41] + (bytes(31) + b"x" if index == unlinked else previous) + raw[73:]
        previous = entry_hash(data)
        tree.append(previous)
        try:
            entry = parse_entry(data, index=index)
            columns = (entry.stream_id.bytes, entry.stream_version, entry.name)
        except VerificationError:
            columns = (data[9:25], int.from_bytes(data[26:33], "big"), f"test.event_{index % 3}")
        rows.append((index, *columns, data))
        if tree.size % batch == 0 or tree.size == len(entries):
            key = NEW if tree.size > ROTATION_AT else OLD
            note = sign_tree_head(origin=ORIGIN, size=tree.size, root=tree.root(), key=key)
            heads.append((tree.size, note, b"".join(tree.edge)))
    return rows, heads


class RefusedError(Exception):
    """Something that does not fit was to be looked at once more."""


def in_bulk(
    rows: Rows,
    *,
    bare: bool = False,
    take: Callable[[Chunk], None] = lambda _: None,
    **options: Any,
) -> Verified:
    """Verify in columns, and never one by one."""

    def refuse(*_: object) -> Chunk:
        raise RefusedError

    entries: Any = [entry for *_, entry in rows[0]] if bare else rows[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Verification, "_one", refuse)
        verification = Verification(vkey=VKEY, edges=not bare, **options)
        return verification.run(iter(entries), iter(rows[1]), take=take)


@contextmanager
def without_columns() -> Iterator[None]:
    """Let each entry be looked at by itself."""

    def refuse(*_: object, **__: object) -> Chunk:
        raise ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "in_columns", refuse)
        yield


def one_by_one(rows: Rows, **options: Any) -> Verified:
    with without_columns():
        return Verification(vkey=VKEY, **options).run(*rows)


def bulk_holds(rows: Rows, **options: Any) -> bool:
    try:
        in_bulk(rows, **options)
    except (RefusedError, VerificationError, ValueError):  # the last by a start that is no state
        return False
    return True


def all_hold(rows: Rows, **options: Any) -> bool:
    """Ask the one-by-one verifier; with columns, the same has to be told of the same place."""
    told: list[tuple[object, ...]] = []
    for gear in (without_columns, nullcontext):
        verification = Verification(vkey=VKEY, **options)
        try:
            with gear():
                verification.run(*rows)
        except VerificationError as error:
            kind, head = type(error).__name__, verification.head
            told.append((kind, str(error), error.index, verification.size, head))
        else:
            told.append(())
    assert told[0] == told[1]
    return not told[0]


HONEST = honest_entries()


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "_CHUNK", 16)
        yield


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 16, 1000])
@pytest.mark.parametrize("signatures", ["all", "newest"])
def test_both_verifiers_come_to_the_same_state(
    chunk: int, signatures: Signatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_CHUNK", chunk)
    for size in (0, 1, 2, 5, 29, 30, 31, 32, 59, 60):
        rows = sealed(HONEST[:size])
        segment = in_bulk(rows, signatures=signatures)
        expected = one_by_one(rows, signatures=signatures)
        assert replace(segment, entry_marks=[]) == replace(expected, entry_marks=[])
        assert segment.authority.keys == expected.authority.keys
        assert in_bulk(rows, signatures=signatures, bare=True) == segment
        assert all_hold(rows)


@pytest.mark.parametrize("chunk", [1, 7, 16])
@pytest.mark.parametrize("cut", [0, 5, 32])
def test_each_node_of_the_tree_is_completed_once(
    chunk: int, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_CHUNK", chunk)
    rows = sealed(HONEST)
    found: dict[int, list[bytes]] = {level: [] for level in range(8)}

    def take(chunk: Chunk) -> None:
        for level in found:
            found[level] += chunk.growth.completed(level)

    for part, whole in ((rows[0][:cut], False), (rows[0][cut:], True)):
        start = in_bulk((rows[0][:cut], rows[1]), whole=False).state if whole else State()
        heads = [head for head in rows[1] if head[0] > start.size]
        in_bulk((part, heads), start=start, whole=whole, take=take)
    nodes = [entry_hash(entry) for *_, entry in rows[0]]
    for level in range(8):
        assert found[level] == nodes
        nodes = [
            hashlib.sha256(b"\x01" + left + right).digest()
            for left, right in zip(nodes[::2], nodes[1::2], strict=False)
        ]


def test_ledger_divided_at_any_tree_head_comes_to_the_same_state() -> None:
    entries, heads = sealed(HONEST)
    expected = one_by_one((entries, heads)).state
    for cut, (size, _, _) in enumerate(heads[:-1], start=1):
        first = in_bulk((entries[:size], heads), whole=False)
        assert (first.heads, first.state.size) == (cut, size)
        second = in_bulk((entries[size:], heads[cut:]), start=first.state)
        assert second.state == expected
        for part in (versions := Versions(), first.versions, second.versions):
            part.follow(versions)


values = st.none() | st.integers(-2, 2**63 - 1) | st.binary(max_size=20) | st.text(max_size=9)
places = st.integers(0, SIZE - 1)


@given(places, st.integers(0, 99), st.binary(max_size=3), st.integers(0, 3), st.booleans())
def test_bulk_agrees_on_a_ledger_with_damaged_bytes_signed_by_its_owner(
    place: int, at: int, put: bytes, cut: int, fit: bool
) -> None:
    entries = list(HONEST)
    data = entries[place]
    cut = len(put) if fit else cut
    entries[place] = data[: at % len(data)] + put + data[at % len(data) + cut :]
    rows = sealed(entries)
    assert bulk_holds(rows) == bulk_holds(rows, bare=True) == all_hold(rows)


@pytest.mark.parametrize("place", range(SIZE))
def test_broken_link_is_rejected_though_its_owner_signs_it(place: int) -> None:
    assert not bulk_holds(sealed(HONEST, unlinked=place))
    assert not all_hold(sealed(HONEST, unlinked=place))


@pytest.mark.parametrize("place", range(1, SIZE))
def test_time_that_runs_backwards_is_rejected_though_its_owner_signs_it(place: int) -> None:
    entries = [
        data[:33] + (index + 9).to_bytes(8, "big") + data[41:] for index, data in enumerate(HONEST)
    ]
    assert bulk_holds(sealed(entries))
    entries[place] = entries[place][:33] + (place + 7).to_bytes(8, "big") + entries[place][41:]
    assert not bulk_holds(sealed(entries))
    assert not all_hold(sealed(entries))


def test_last_entry_cut_anywhere_is_rejected() -> None:
    for size in range(len(HONEST[SIZE - 1])):
        rows = sealed([*HONEST[:-1], HONEST[-1][:size]])
        with pytest.raises(RefusedError):
            in_bulk(rows)


@pytest.mark.parametrize("place", [20, SIZE - 1])
@pytest.mark.parametrize("at", [73, 74])  # where the lengths of author and name are
def test_length_that_leads_beyond_the_end_is_rejected(at: int, place: int) -> None:
    entries = list(HONEST)
    data = unsigned(entries[place])
    entries[place] = data[:at] + b"\xff" + data[at + 1 :]
    with pytest.raises(RefusedError):
        in_bulk(sealed(entries))


def test_empty_name_is_rejected_though_its_column_is_empty_too() -> None:
    entries = list(HONEST)
    data = unsigned(entries[20])
    entries[20] = data[:74] + b"\0" + data[75 + data[74] :]
    rows, heads = sealed(entries)
    rows[20] = (20, data[9:25], int.from_bytes(data[25:33], "big"), "", rows[20][4])
    assert not bulk_holds((rows, heads))
    assert not all_hold((rows, heads))


def test_entry_beyond_the_limit_is_rejected() -> None:
    for size, right in ((65_535, True), (65_536, False)):
        data = HONEST[0]
        name_end = 75 + data[74]
        body = bytes(size - name_end - 2)
        rows = sealed([data[:name_end] + len(body).to_bytes(2, "big") + body])
        assert bulk_holds(rows) == bulk_holds(rows, bare=True) == all_hold(rows) == right


@pytest.mark.parametrize(
    "start",
    [
        replace(State(), size=1),
        replace(State(), edge=(bytes(32),)),
        replace(State(), last_hash=b""),
        replace(State(), last_hash=bytes(31) + b"x"),
        replace(State(), time_ns=1),
        replace(State(), authority=(b"",)),
    ],
)
def test_wrong_start_is_rejected(start: State) -> None:
    rows = sealed(HONEST)
    assert bulk_holds(rows, start=State())
    assert not bulk_holds(rows, start=start)


@given(places, st.integers(0, 72), st.integers(0, 255))
def test_bulk_agrees_on_a_ledger_with_a_damaged_fixed_field_signed_by_its_owner(
    place: int, at: int, value: int
) -> None:
    entries = list(HONEST)
    entries[place] = entries[place][:at] + bytes([value]) + entries[place][at + 1 :]
    rows = sealed(entries)
    assert bulk_holds(rows) == bulk_holds(rows, bare=True) == all_hold(rows)


@given(places, st.integers(0, 4), values)
def test_bulk_agrees_on_a_column_that_says_something_else(
    place: int, column: int, value: Any
) -> None:
    entries, heads = sealed(HONEST)
    row: list[Any] = list(entries[place])
    row[column] = value
    entries[place] = tuple(row)
    assert bulk_holds((entries, heads)) == all_hold((entries, heads))


def of_new_streams() -> list[bytes]:
    """Return two entries more, the first and only ones of their streams."""
    return [
        encode_entry(
            Entry(
                index=SIZE + n,
                stream_id=UUID(int=100 + n),
                stream_version=n,
                time_ns=SIZE,
                previous=bytes(32),
                name="test.new",
                body=b"",
            )
        )
        for n in (0, 1)
    ]


@pytest.mark.parametrize("column", [1, 3])
def test_columns_that_repeat_the_entries_only_when_joined_are_rejected(column: int) -> None:
    entries, heads = sealed([*HONEST, *of_new_streams()])
    assert bulk_holds((entries, heads))
    one: list[Any] = list(entries[SIZE])
    other: list[Any] = list(entries[SIZE + 1])
    one[column], other[column] = one[column] + other[column][:1], other[column][1:]
    entries[SIZE:] = [tuple(one), tuple(other)]
    assert not bulk_holds((entries, heads))


@pytest.mark.parametrize(("column", "value"), [(1, bytes([9] * 16)), (2, 1), (3, "test.old")])
def test_column_is_rejected_though_it_could_begin_a_stream(column: int, value: Any) -> None:
    entries, heads = sealed([*HONEST, *of_new_streams()])
    row: list[Any] = list(entries[SIZE])
    row[column] = value
    entries[SIZE] = tuple(row)
    assert not bulk_holds((entries, heads))


def test_version_that_only_the_column_has_right_is_rejected() -> None:
    honest, _ = sealed(HONEST)
    entries = list(HONEST)
    entries[50] = unsigned(entries[50])[:25] + (99).to_bytes(8, "big") + entries[50][33:]
    rows, heads = sealed(entries)
    rows[50] = (*honest[50][:4], rows[50][4])
    assert not bulk_holds((rows, heads))
    assert not all_hold((rows, heads))


def test_tree_heads_that_repeat_or_change_places_are_rejected() -> None:
    entries, heads = sealed(HONEST)
    beyond = (SIZE + 4, *heads[-1][1:])
    for spoilt in (
        [heads[0], *heads],
        [*heads, heads[-1]],
        [heads[1], heads[0], *heads[2:]],
        [*heads, beyond],
        heads[:-1],
        [],
    ):
        assert not bulk_holds((entries, spoilt))
        assert not all_hold((entries, spoilt))


def test_kept_heads_are_checked_in_bulk() -> None:
    rows = sealed(HONEST)
    other = sealed([unsigned(data) for data in HONEST])[1]
    longer = sealed([*HONEST, *of_new_streams()])[1]
    for notes, right in ((rows[1], True), (other[2:], False), (longer[-1:], False)):
        for _, note, _ in notes:
            assert bulk_holds(rows, kept_heads=[note]) == right
            assert all_hold(rows, kept_heads=[note]) == right


def test_tree_head_about_another_size_is_rejected_though_its_owner_signs_it() -> None:
    entries, heads = sealed(HONEST)
    size, note, edge = heads[2]
    root = base64.b64decode(note.split("\n")[2])
    other = sign_tree_head(origin=ORIGIN, size=size - 1, root=root, key=OLD)
    rows = entries, [*heads[:2], (size, other, edge), *heads[3:]]
    assert not bulk_holds(rows)
    assert not all_hold(rows)


@given(st.integers(0, 14), st.integers(0, 2), values)
def test_bulk_agrees_on_a_tree_head_that_says_something_else(
    place: int, column: int, value: Any
) -> None:
    entries, heads = sealed(HONEST)
    row: list[Any] = list(heads[place])
    row[column] = value
    heads[place] = tuple(row)
    assert bulk_holds((entries, heads)) == all_hold((entries, heads))


@given(st.lists(places, max_size=3), st.sampled_from(["delete", "repeat", "swap", "seal"]))
def test_bulk_agrees_on_rows_in_another_order(chosen: list[int], how: str) -> None:
    entries = list(HONEST)
    for place in chosen:
        if how == "delete" and place < len(entries):
            del entries[place]
        if how == "repeat":
            entries.insert(place, HONEST[place])
        if how == "swap":
            entries[place - 1], entries[place] = entries[place], entries[place - 1]
    renumbered = [
        data[:1] + index.to_bytes(8, "big") + data[9:] for index, data in enumerate(entries)
    ]
    for each in (entries, renumbered):
        rows = sealed(each)
        assert bulk_holds(rows) == bulk_holds(rows, bare=True) == all_hold(rows)


@pytest.mark.parametrize("signatures", ["all", "newest"])
@pytest.mark.parametrize("key", [OLD, NEW, OPERATOR])
def test_tree_heads_by_a_key_that_is_not_in_force_are_rejected(
    key: Ed25519PrivateKey, signatures: Signatures
) -> None:
    entries, heads = sealed(HONEST)
    for place, (size, note, edge) in enumerate(heads):
        tree = Tree()
        for row in entries[:size]:
            tree.append(entry_hash(row[4]))
        forged = sign_tree_head(origin=ORIGIN, size=size, root=tree.root(), key=key)
        rows = entries, [*heads[:place], (size, forged, edge), *heads[place + 1 :]]
        right = forged == note or (signatures == "newest" and size != SIZE)
        assert bulk_holds(rows, signatures=signatures) == right
        assert all_hold(rows, signatures=signatures) == right


def test_text_of_an_inner_head_is_checked_though_its_signature_is_not() -> None:
    entries, heads = sealed(HONEST)
    for other in ("elsewhere", ORIGIN):
        size, _, edge = heads[2]
        note = sign_tree_head(origin=other, size=size, root=bytes(32), key=OLD)
        rows = entries, [*heads[:2], (size, note, edge), *heads[3:]]
        assert not bulk_holds(rows, signatures="newest")
        assert not all_hold(rows, signatures="newest")


def test_memory_does_not_grow_with_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_CHUNK", 256)

    def peak(size: int) -> int:
        verified = Verification(vkey=VKEY, whole=False).run(long_ledger(size), [])
        assert verified.state.size == size
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        small = peak(2_000)
        tracemalloc.reset_peak()
        assert peak(8_000) < 1.1 * small
    finally:
        tracemalloc.stop()


def long_ledger(size: int) -> Iterator[EntryRow]:
    previous = bytes(32)
    for index in range(size):
        data = encode_entry(
            Entry(
                index=index,
                stream_id=UUID(int=index % 100),
                stream_version=index // 100,
                time_ns=0,
                previous=previous,
                name="test.event",
                body=bytes(400),
            )
        )
        yield index, UUID(int=index % 100).bytes, index // 100, "test.event", data
        previous = entry_hash(data)


def written(directory: Path, rows: Rows) -> Path:
    paths = LedgerPaths(directory)
    directory.mkdir()
    paths.vkey.write_text(VKEY)
    create_database(paths.database, meta={"origin": ORIGIN, "vkey": VKEY})
    with closing(sqlite3.connect(paths.database)) as c, c:
        c.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows[0])
        c.executemany("INSERT INTO tree_heads VALUES (?, ?, ?)", rows[1])
    return directory


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide even the smallest ledger."""
    monkeypatch.setattr(parallel, "_WORTH_A_PROCESS", 1)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("signatures", ["all", "newest"])
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.sampled(3)
def test_ledger_is_divided_among_processes(
    processes: int, signatures: Signatures, tmp_path: Path
) -> None:
    directory = written(tmp_path / "ledger", sealed(HONEST))
    kept = sealed(HONEST, batch=5)[1]
    expected = one_by_one(sealed(HONEST)).state
    with snapshot(LedgerPaths(directory)) as connection:
        verification = Verification(vkey=VKEY, signatures=signatures)
        last = verify_divided(connection, verification, processes=processes)
    assert (last is not None) == (processes > 1)
    assert last is None or (last.start.size > 0 and last.state == expected)
    for _, note, _ in kept[::4]:
        assert check_ledger(directory, kept_head=note, processes=processes).ok


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that several processes have seen to hold; what is changed is a copy."""
    directory = written(tmp_path_factory.mktemp("held") / "ledger", sealed(HONEST))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "_WORTH_A_PROCESS", 1)
        assert check_ledger(directory, processes=2).ok
    return directory


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET entry = substr(entry, 1) WHERE idx = {at}",
        "UPDATE entries SET entry = zeroblob(100) WHERE idx = {at}",
        "UPDATE entries SET name = name || '_' WHERE idx = {at}",
        "UPDATE entries SET stream_version = 99 WHERE idx = {at}",
        "DELETE FROM entries WHERE idx = {at}",
        "DELETE FROM tree_heads WHERE size > {at}",
        "UPDATE tree_heads SET edge = zeroblob(64) WHERE size = 4 * ({at} / 4 + 1)",
        "UPDATE tree_heads SET edge = x'' WHERE size = 4 * ({at} / 4 + 1)",
        "INSERT INTO entries SELECT -1, x'', 0, '', entry FROM entries WHERE idx = {at}",
        "INSERT INTO entries SELECT 60, x'', 0, '', entry FROM entries WHERE idx = {at}",
        "INSERT INTO tree_heads SELECT 70, note, edge FROM tree_heads WHERE size = 8 + {at} % 1",
    ],
)
@pytest.mark.parametrize(
    "at",
    [1, pytest.param(28, marks=pytest.mark.slow), pytest.param(31, marks=pytest.mark.slow), 55],
)
@pytest.mark.sampled(4)
def test_tampering_is_rejected_alike_by_several_processes(
    statement: str, at: int, held: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(held, tmp_path / "ledger"))
    with closing(sqlite3.connect(LedgerPaths(directory).database)) as c, c:
        c.execute(statement.format(at=at).replace("substr(entry, 1)", "CAST(name AS BLOB)"))
    report = check_ledger(directory, processes=2)
    assert not report.ok
    assert report == check_ledger(directory)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("table", ["sqlite_schema", "meta", "entries", "tree_heads"])
def test_pages_that_lead_in_circles_are_rejected_in_time(table: str, tmp_path: Path) -> None:
    rows = sealed(HONEST[:6])
    directory = written(tmp_path / "ledger", rows)
    assert check_ledger(directory, processes=2).ok
    repeat_first_row(LedgerPaths(directory).database, table)
    begin = time.monotonic()
    if table == "sqlite_schema":
        with pytest.raises(StorageError):
            check_ledger(directory, processes=2)
    else:
        assert not check_ledger(directory, processes=2).ok
    assert time.monotonic() - begin < 30  # s; walking over all rows would take for ever


@pytest.mark.usefixtures("eager")
def test_versions_are_followed_from_one_process_to_the_next(tmp_path: Path) -> None:
    for skipped in (10, 40):
        entries = list(HONEST)
        stream = entries[skipped][9:25]
        for place in range(skipped, SIZE):
            if (data := entries[place])[9:25] == stream:
                version = int.from_bytes(data[25:33], "big") + 1
                entries[place] = data[:25] + version.to_bytes(8, "big") + data[33:]
        entries = [unsigned(data) for data in entries]
        directory = written(tmp_path / str(skipped), sealed(entries))
        report = check_ledger(directory, processes=2)
        assert (report.ok, report.index) == (False, skipped), report
        assert "is not the next version of its stream" in str(report.error)


def unsigned(data: bytes) -> bytes:
    """Return the entry with an author's block taken out, where it is not about keys."""
    length = data[73]
    return data if data[9:25] == AUTHORITY.bytes else data[:73] + b"\0" + data[74 + length :]


def test_versions_of_more_streams_than_fit_are_asked_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_MAX_STREAMS", 2)
    directory = written(tmp_path / "honest", sealed(HONEST))
    with snapshot(LedgerPaths(directory)) as connection:
        found = connection.entries_from_top(), connection.heads_from_top()
        assert Verification(vkey=VKEY).run(*found).versions.overflowed
    assert check_ledger(directory).ok
    entries = [unsigned(data) for data in HONEST]
    entries[50] = entries[50][:25] + (99).to_bytes(8, "big") + entries[50][33:]
    report = check_ledger(written(tmp_path / "skips", sealed(entries)))
    assert (report.ok, report.index) == (False, 50)
    entries = [*HONEST, *of_new_streams()]
    entries[SIZE] = entries[SIZE][:25] + (2**63).to_bytes(8, "big") + entries[SIZE][33:]
    rows, heads = sealed(entries)
    rows[SIZE] = (SIZE, UUID(int=100).bytes, -(2**63), "test.new", entries[SIZE])
    rows[SIZE] = (*rows[SIZE][:4], sealed(entries)[0][SIZE][4])
    report = check_ledger(written(tmp_path / "too large", (rows, heads)))
    assert (report.ok, report.error_type, report.index) == (False, "MalformedError", SIZE)


def test_opened_ledger_gives_what_was_verified_and_its_keys(tmp_path: Path) -> None:
    rows = sealed(HONEST)
    with open_verified(written(tmp_path / "ledger", rows)) as ledger:
        assert [entry.index for entry in ledger.entries()] == list(range(SIZE))
        assert list(ledger.head_notes()) == [note for _, note, _ in rows[1]]
        assert [key.role for key in ledger.authority.keys] == ["ledger", "operator", "ledger"]
        assert all(one.index < other.index for one, other in pairwise(ledger.entries(start=7)))
