"""The entries of a run come back from the file as they were, and hardly take memory."""

import tracemalloc
from uuid import UUID

import pytest

from judge.auditing.spooled import SpooledEntries
from ledger.entries import Author
from ledger.verification.verified_entries import VerifiedEntry

AUTHOR = Author("judge", bytes(32), bytes(64))


def entry(index: int) -> VerifiedEntry:
    return VerifiedEntry(
        index=index,
        time_ns=2**62 + index,
        stream_id=UUID(int=index % 3),
        stream_version=index + 1,
        name="run.epoch_measured",
        body=index.to_bytes(8, "big") * 200,
        author=AUTHOR if index % 5 == 0 else None,
        previous=bytes(32),
        entry_hash=index.to_bytes(32, "big"),
    )


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1_500])
def test_entries_come_back_as_they_were(count: int) -> None:
    entries, spooled = [entry(index) for index in range(count)], SpooledEntries()
    for each in entries:
        spooled.append(each)
    assert list(spooled) == entries
    assert list(reversed(spooled)) == entries[::-1]
    assert len(spooled) == count
    for part in (slice(0, 0), slice(60, 70), slice(None, None, 7), slice(-3, None)):
        assert spooled[part] == entries[part]
    if count:
        assert (spooled[-1], spooled[count // 2]) == (entries[-1], entries[count // 2])
    with pytest.raises(IndexError):
        spooled[count]


def test_many_entries_take_little_memory() -> None:
    spooled = SpooledEntries()
    tracemalloc.start()
    try:
        for index in range(3_000):  # of 1.6 kB each
            spooled.append(entry(index))
        assert tracemalloc.get_traced_memory()[0] < 1.5e6
    finally:
        tracemalloc.stop()
