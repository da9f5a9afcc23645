"""A ledger's file that is changed between its verification and its use, past SQLite's locks."""

import mmap
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent

from ledger.database import Database
from ledger.errors import ConsistencyError
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified

SIZES = (1, 30, 3_000, 6_000, 60_000)  # up to 3,000, SQLite has every page in its own memory
SEEN = 60_000  # from where it has not


@contextmanager
def written(directory: Path, size: int) -> Iterator[SignedRecorder]:
    """Write a ledger, and hold it open: its newest entries are in the write-ahead log."""
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    rng = random.Random(size)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        for first in range(0, size, 500):
            recorder.insert_events(
                [
                    StoredEvent(
                        originator_id=UUID(int=7),
                        originator_version=version + 1,
                        topic="test.event",
                        state=b"BODY" + rng.randbytes(100),
                    )
                    for version in range(first, min(first + 500, size))
                ]
            )
        yield recorder


def by_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        place = -1
        while (place := content.find(b"BODY", place + 1)) >= 0:
            content[place : place + 4] = b"LIES"


def by_writing(path: Path) -> None:
    content = path.read_bytes().replace(b"BODY", b"LIES")
    with path.open("r+b") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@pytest.mark.parametrize("change", [by_mapping, by_writing])
@pytest.mark.parametrize("closed", [True, False], ids=["main file", "write-ahead log"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.sampled(3)
def test_entry_that_is_changed_after_it_was_verified_is_rejected(
    tmp_path: Path, size: int, closed: bool, change: Callable[[Path], None]
) -> None:
    directory = tmp_path / "ledger"
    paths = LedgerPaths(directory)
    log = paths.database.with_name(f"{paths.database.name}-wal")
    with written(directory, size) as recorder:
        if closed:
            recorder._store.close()
        with open_verified(directory) as ledger:
            for path in (paths.database, log):
                if path.exists() and path.stat().st_size:
                    change(path)
            found = []
            try:
                found += [entry.body[:4] for entry in ledger.entries()]
            except ConsistencyError as error:
                assert error.index is not None  # noqa: PT017
                assert "changed after they had been verified" in str(error)  # noqa: PT017
                assert len(found) == error.index  # noqa: PT017
            else:
                assert size < SEEN
                assert len(found) == size
        assert set(found) <= {b"BODY"}


def test_entries_are_the_same_wherever_reading_begins(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    with written(directory, 2_000), open_verified(directory) as ledger:
        entries = list(ledger.entries())
        assert [entry.index for entry in entries] == list(range(2_000))
        for start in (0, 1, 511, 512, 513, 1_024, 1_999, 2_000, 3_000):
            assert list(ledger.entries(start=start)) == entries[start:]
        assert len(list(ledger.head_notes())) == 4


def test_tree_head_that_is_changed_after_it_was_verified_is_rejected(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    with written(directory, 1):
        pass
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    with closing(database):
        assert isinstance(database, Database)
        database._connection.execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        recorder = SignedRecorder(database, signer=signer)
        for version in range(2, 12_000):
            recorder.insert_events(
                [
                    StoredEvent(
                        originator_id=UUID(int=7),
                        originator_version=version,
                        topic="test.event",
                        state=b"",
                    )
                ]
            )
    path = LedgerPaths(directory).database
    with open_verified(directory) as ledger:
        honest = next(ledger.head_notes())
        name = ledger.vkey.partition("+")[0].encode()
        content = path.read_bytes().replace(name, name[::-1])
        with path.open("r+b") as file:
            file.write(content)
        with pytest.raises(ConsistencyError, match="tree heads were changed after"):
            list(ledger.head_notes())
    assert name.decode() in honest
