"""Disks without room, and a lock that another process holds."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.errors import StorageError
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.verification.reader import check_ledger

# Appends one event and says its id.
WRITER = """
import sys
from pathlib import Path
from uuid import uuid4
from eventsourcing.persistence import StoredEvent
from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry
with LedgerApplication.open(Path(sys.argv[1]), EventRegistry()) as app:
    print(*app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")]))
"""

# Appends until the limit on file sizes stops it; lifts the limit and appends again.
FULL_DISK = """
import resource, sys
from pathlib import Path
from uuid import uuid4
from eventsourcing.persistence import StoredEvent
from ledger.application import LedgerApplication
from ledger.errors import StorageError
from ledger.mapper import EventRegistry
def append(app):
    app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", bytes(4_000))])
with LedgerApplication.open(Path(sys.argv[1]), EventRegistry()) as app:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    appended = 0
    try:
        while True:
            append(app)
            appended += 1
    except StorageError as e:
        print(e)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append(app)
    print(appended + 1)
"""


def test_full_disk_is_explained_and_survived(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    message, appended = child.stdout.splitlines()
    assert str(LedgerPaths(tmp_path).database) in message
    assert "disk" in message
    assert int(appended) > 10
    report = check_ledger(tmp_path)
    assert (report.ok, report.size) == (True, int(appended)), report


def test_full_database_is_explained_and_survived(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, EventRegistry()) as app:
        event = StoredEvent(uuid4(), 1, "test.event", bytes(60_000))
        # The largest size is a setting of the connection, so reach for the recorder's own.
        connection = app.recorder._store._connection  # type: ignore[attr-defined]
        connection.execute("PRAGMA max_page_count = 10")
        with pytest.raises(StorageError, match=r"ledger\.sqlite: .*full.* free some space"):
            app.recorder.insert_events([event])
        assert app.recorder.max_notification_id() is None
        connection.execute("PRAGMA max_page_count = 1000000")
        assert app.recorder.insert_events([event]) == [1]
    assert check_ledger(tmp_path).ok


def test_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, EventRegistry()) as app:
        app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])
        with closing(
            sqlite3.connect(LedgerPaths(tmp_path).database, isolation_level=None)
        ) as other:
            other.execute("BEGIN IMMEDIATE")
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
            )
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(timeout=2)
            assert app.recorder.max_notification_id() == 1  # readers are not kept out
            other.execute("ROLLBACK")
        assert writer.communicate(timeout=120)[0].split() == ["2"]
