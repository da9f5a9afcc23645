"""Two thousand random mutations of stored events, each told with its index."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from loose_entries import Entry, decode_entry, encode_entry
from stores import copy_ledger, tables_of

from ledger.entries import entry_hash
from ledger.errors import ConsistencyError, VerificationError
from ledger.verification import verify
from ledger.verification.reader import check_ledger
from ledger.verification.vectorized import EntryRow
from ledger.verification.verify import HeadRow, Verification

Rows = tuple[list[EntryRow], list[HeadRow], str]
Mutation = Callable[[list[EntryRow], random.Random], int]

MUTATIONS = 420  # in memory, over all kinds
MUTATIONS_ON_DISK = 30  # of each kind that a row store can express


def flip(rows: list[EntryRow], rng: random.Random) -> int:
    at = rng.randrange(len(rows))
    idx, stream_id, version, name, entry = rows[at]
    flipped = bytearray(entry)
    bit = rng.randrange(8 * len(entry))
    flipped[bit // 8] ^= 1 << bit % 8
    rows[at] = (idx, stream_id, version, name, bytes(flipped))
    return at


def delete(rows: list[EntryRow], rng: random.Random) -> int:
    at = rng.randrange(len(rows))
    del rows[at]
    return at


def delete_and_close_the_gap(rows: list[EntryRow], rng: random.Random) -> int:
    at = delete(rows, rng)
    _renumber(rows)
    return at


def insert_copy(rows: list[EntryRow], rng: random.Random) -> int:
    at = rng.randrange(len(rows) + 1)
    copied = rng.choice(rows)
    behind = at < len(rows) and rows[at] is copied  # of two equal entries, the second is the copy
    rows.insert(at, copied)
    _renumber(rows)
    return at + behind


def insert_forged(rows: list[EntryRow], rng: random.Random) -> int:
    at = rng.randrange(len(rows) + 1)
    near = decode_entry(rows[min(at, len(rows) - 1)][4])
    forged = encode_entry(
        Entry(
            index=at,
            stream_id=near.stream_id,
            stream_version=near.stream_version,
            time_ns=near.time_ns,
            previous=entry_hash(rows[at - 1][4]) if at else bytes(32),
            name=near.name,
            body=b"forged",
        )
    )
    rows.insert(at, (at, near.stream_id.bytes, near.stream_version, near.name, forged))
    _renumber(rows)
    return at


def swap(rows: list[EntryRow], rng: random.Random) -> int:
    one, other = rng.sample(range(len(rows)), 2)
    rows[one], rows[other] = rows[other], rows[one]
    _renumber(rows)
    return min(one, other)


def reorder(rows: list[EntryRow], rng: random.Random) -> int:
    first = rng.randrange(len(rows) - 2)
    last = rng.randint(first + 2, min(len(rows), first + 20))
    rows[first:last] = rows[first + 1 : last] + rows[first : first + 1]
    _renumber(rows)
    return first


def _renumber(rows: list[EntryRow]) -> None:
    rows[:] = [(at, *row[1:]) for at, row in enumerate(rows)]


def refused(*_: object, **__: object) -> None:
    raise ValueError


KINDS: list[Mutation] = [
    flip,
    delete,
    delete_and_close_the_gap,
    insert_copy,
    insert_forged,
    swap,
    reorder,
]


@pytest.mark.parametrize("mutate", KINDS, ids=lambda kind: str(kind.__name__))
@pytest.mark.sampled(2)
def test_mutation_of_stored_events_is_rejected(mutate: Mutation, ledger_rows: Rows) -> None:
    honest, heads, vkey = ledger_rows
    rng = random.Random(mutate.__name__)
    for trial in range(-(-MUTATIONS // len(KINDS))):
        if trial % 10 == 0:
            Verification(vkey=vkey).run(honest, heads)
        rows = list(honest)
        expected = mutate(rows, rng)
        with pytest.raises(VerificationError, match=r"entr|tree head") as caught:
            Verification(vkey=vkey).run(rows, heads)
        assert caught.value.index == expected, caught.value
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verify, "in_columns", refused)  # each entry is looked at by itself
            with pytest.raises(VerificationError) as again:
                Verification(vkey=vkey).run(rows, heads)
        assert (str(again.value), again.value.index) == (str(caught.value), expected)


@pytest.mark.parametrize("mutate", [flip, delete, swap], ids=lambda kind: str(kind.__name__))
def test_mutation_of_the_file_is_rejected(
    mutate: Mutation, ledger_directory: Path, tmp_path: Path
) -> None:
    honest = tmp_path / "honest"
    copy_ledger(ledger_directory, honest)
    rng = random.Random(mutate.__name__)
    for trial in range(MUTATIONS_ON_DISK):
        directory = tmp_path / f"mutated-{trial}"
        copy_ledger(ledger_directory, directory)
        with tables_of(directory) as c:
            rows = c.execute("SELECT * FROM entries ORDER BY idx").fetchall()
            expected = mutate(rows, rng)
            c.execute("DELETE FROM entries")
            c.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
        report = check_ledger(directory)
        assert (report.ok, report.index) == (False, expected), report
        assert check_ledger(honest).ok


def test_truncation_is_rejected_with_a_kept_head_only(ledger_rows: Rows) -> None:
    entries, heads, vkey = ledger_rows
    kept = heads[-1][1]
    Verification(vkey=vkey, kept_heads=[kept]).run(entries, heads)
    for cut, (size, _, _) in enumerate(heads[:-1], start=1):
        # Cut off at a tree head, a ledger looks like an earlier state of itself: it was one.
        Verification(vkey=vkey).run(entries[:size], heads[:cut])
        with pytest.raises(ConsistencyError, match="it was truncated") as caught:
            Verification(vkey=vkey, kept_heads=[kept]).run(entries[:size], heads[:cut])
        assert caught.value.index == size


def test_truncation_between_tree_heads_is_rejected(ledger_rows: Rows) -> None:
    entries, heads, vkey = ledger_rows
    sizes = {size for size, _, _ in heads}
    for size in sorted(set(range(1, len(entries))) - sizes)[::7]:
        kept_heads = [head for head in heads if head[0] <= size]
        with pytest.raises(ConsistencyError, match="no tree head covers entry"):
            Verification(vkey=vkey).run(entries[:size], kept_heads)


def test_earlier_heads_are_all_accepted_as_kept_heads(ledger_rows: Rows) -> None:
    entries, heads, vkey = ledger_rows
    for _, note, _ in heads:
        Verification(vkey=vkey, kept_heads=[note]).run(entries, heads)
