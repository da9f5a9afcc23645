"""The library's own contract for application recorders, run on the ledger's.

Its contract for factories is not run: half of it constructs recorders for snapshots, tracking
and processes, which a ledger refuses on purpose; the other half is about the library's mapper.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import TestCase
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.tests import persistence

from ledger.application import LedgerApplication
from ledger.errors import ConflictError, EncodingError, StorageError, UnsupportedError
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified

if TYPE_CHECKING:
    _Contract = persistence.ApplicationRecorderTestCase[SignedRecorder]
else:
    _Contract = persistence.ApplicationRecorderTestCase


class TestSignedRecorder(_Contract, TestCase):
    """Unmodified but for the way in which a recorder is made."""

    def create_recorder(self) -> SignedRecorder:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        database, signer = open_ledger(LedgerPaths(Path(folder.name)), passphrase=None)
        self.addCleanup(database.close)
        return SignedRecorder(database, signer=signer)


def open_recorder(directory: Path) -> SignedRecorder:
    store, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    return SignedRecorder(store, signer=signer)


def test_what_would_live_outside_of_the_links_is_refused(tmp_path: Path) -> None:
    app = LedgerApplication.open(tmp_path, EventRegistry())
    recorder = app.recorder
    event = StoredEvent(uuid4(), 1, "test.event", b"")
    uses: list[Callable[[], object]] = [
        recorder.subscribe,
        lambda: recorder.insert_events([event], tracking=Tracking("projection", 1)),
    ]
    for use in uses:
        with pytest.raises(UnsupportedError):
            use()
    assert recorder.max_notification_id() is None
    app.close()


def test_clock_that_runs_backwards_repeats_the_last_time(tmp_path: Path) -> None:
    times = iter([100, 50, 200])
    database, signer = open_ledger(LedgerPaths(tmp_path), passphrase=None)
    recorder = SignedRecorder(database, signer=signer, clock=lambda: next(times))
    for _ in range(3):
        recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])
    database.close()
    with open_verified(tmp_path) as ledger:
        assert [entry.time_ns for entry in ledger.entries()] == [100, 100, 200]


@pytest.mark.parametrize("versions", [[2], [1, 3], [1, 1], [-1]])
def test_version_out_of_step_is_refused_and_nothing_is_written(
    tmp_path: Path, versions: list[int]
) -> None:
    stream = uuid4()
    recorder = open_recorder(tmp_path)
    with pytest.raises(ConflictError, match="cannot follow"):
        recorder.insert_events([StoredEvent(stream, v, "test.event", b"") for v in versions])
    with pytest.raises(EncodingError, match="Store the large part as a blob"):
        recorder.insert_events(
            [StoredEvent(stream, v, "test.event", bytes(v * 40_000)) for v in (1, 2)]
        )
    with pytest.raises(EncodingError, match="is not a UUID"):
        recorder.insert_events([StoredEvent("text", 1, "test.event", b"")])
    assert recorder.max_notification_id() is None
    assert recorder.insert_events([StoredEvent(stream, 1, "test.event", b"")]) == [1]
    recorder.close()


def test_closed_ledger_is_explained(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    recorder.close()
    recorder.close()
    with pytest.raises(StorageError, match="closed"):
        recorder.max_notification_id()
