"""Many writers, killed writers, and disks without room."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.errors import StorageError
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.reader import check_ledger, open_verified

WRITERS = 8
EVENTS_EACH = 2_000
BATCH = 10

# Appends batches to a stream of its own, and says each time what has been acknowledged.
WRITER = """
import sys
from pathlib import Path
from uuid import UUID
from eventsourcing.persistence import StoredEvent
from ledger.application import LedgerApplication
from ledger.mapper import EventRegistry
directory, stream, events, batch = Path(sys.argv[1]), UUID(sys.argv[2]), *map(int, sys.argv[3:5])
with LedgerApplication.open(directory, EventRegistry()) as app:
    for first in range(1, events + 1, batch):
        ids = app.recorder.insert_events([
            StoredEvent(stream, version, "test.event", b"%d" % version)
            for version in range(first, first + batch)
        ])
        print(ids[-1], first + batch - 1, flush=True)
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


def start_writer(
    directory: Path, stream: UUID, *, events: int, batch: int
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(stream), str(events), str(batch)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_lose_no_event_and_repeat_no_index(tmp_path: Path) -> None:
    streams = [uuid4() for _ in range(WRITERS)]
    writers = [
        start_writer(tmp_path, stream, events=EVENTS_EACH, batch=BATCH) for stream in streams
    ]
    ids = []
    for writer in writers:
        out, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0
        ids += [int(line.split()[0]) for line in out.splitlines()]
    assert len(set(ids)) == len(ids) == WRITERS * EVENTS_EACH // BATCH
    versions: dict[UUID, list[int]] = {stream: [] for stream in streams}
    with open_verified(tmp_path) as ledger:
        assert ledger.size == WRITERS * EVENTS_EACH
        for index, entry in enumerate(ledger.entries()):
            assert entry.index == index
            versions[entry.stream_id].append(entry.stream_version)
    expected = list(range(1, EVENTS_EACH + 1))
    assert all(found == expected for found in versions.values())


def test_every_acknowledged_event_is_there_when_the_writer_is_killed(tmp_path: Path) -> None:
    rng = random.Random("kill")
    expected = 0
    for _ in range(20):
        stream = uuid4()
        writer = start_writer(tmp_path, stream, events=100_000, batch=3)
        assert writer.stdout is not None
        writer.stdout.readline()  # it is under way
        time.sleep(rng.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        acknowledged = [line.split() for line in writer.communicate()[0].splitlines()]
        report = check_ledger(tmp_path)
        assert report.ok, report
        if acknowledged:
            last_id, last_version = map(int, acknowledged[-1])
            assert report.size >= last_id
            with LedgerApplication.open(tmp_path, EventRegistry()) as app:
                assert len(app.recorder.select_events(stream)) >= last_version
        assert report.size > expected
        expected = report.size


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
    assert "Nothing of this batch was written" in message
    assert int(appended) > 10
    report = check_ledger(tmp_path)
    assert (report.ok, report.size) == (True, int(appended)), report


def test_full_database_is_explained_and_survived(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, EventRegistry()) as app:
        event = StoredEvent(uuid4(), 1, "test.event", bytes(60_000))
        # The largest size is a setting of the connection, so reach for the recorder's own.
        connection = app.recorder._database._connection  # type: ignore[attr-defined]
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
            writer = start_writer(tmp_path, uuid4(), events=1, batch=1)
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(timeout=2)
            assert app.recorder.max_notification_id() == 1  # readers are not kept out
            other.execute("ROLLBACK")
        assert writer.communicate(timeout=30)[0].split() == ["2", "1"]
