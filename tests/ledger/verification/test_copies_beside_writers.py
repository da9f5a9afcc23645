"""A reader who may not write the ledger's folder works on a copy, which is one moment of it."""

import multiprocessing
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent

from ledger.database import Database
from ledger.errors import LedgerError
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified

_STRANGER = 20_006
_FORK = multiprocessing.get_context("fork")  # what is loaded need not be read by another user

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def ledger(pytestconfig: pytest.Config) -> Iterator[Path]:
    """A ledger that others may read, and not write."""
    if pytestconfig.getoption("--store") != "sqlite":
        pytest.skip("a server's ledger is not copied")
    folder = Path(tempfile.mkdtemp(prefix="proctor-copies-"))
    folder.chmod(0o755)
    append(folder / "ledger", batches=3)
    yield folder / "ledger"
    shutil.rmtree(folder)


def append(directory: Path, *, batches: int) -> None:
    database, signer = open_ledger(LedgerPaths(directory), passphrase=None)
    assert isinstance(database, Database)
    with closing(database):
        recorder = SignedRecorder(database, signer=signer)
        for _ in range(batches):
            events = [StoredEvent(uuid4(), 1, "test.event", os.urandom(2_000)) for _ in range(20)]
            recorder.insert_events(events)
        os.sync()


def as_stranger(work: Callable[[Any], None]) -> list[Any]:
    """Do some work in a process of another user; return what it sent."""
    got, sent = _FORK.Pipe(duplex=False)

    def child() -> None:
        os.setgroups([])
        os.setgid(_STRANGER)
        os.setuid(_STRANGER)
        tempfile.tempdir = None
        try:
            work(sent.send)
        except LedgerError as error:
            sent.send(f"{type(error).__name__}: {error}")

    process = _FORK.Process(target=child)
    process.start()
    sent.close()
    found = []
    while True:
        try:
            found.append(got.recv())
        except EOFError:
            break
    process.join()
    return found


def size_of(directory: Path) -> int:
    with open_verified(directory) as ledger:
        return ledger.size


def test_log_that_begins_anew_while_it_is_copied_is_copied_again(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LedgerPaths(ledger).database
    kept = ledger.parent / "kept"
    with closing(sqlite3.connect(path)) as stays:  # so that the log stays
        stays.execute("SELECT * FROM meta").fetchall()
        append(ledger, batches=2)
        shutil.copytree(ledger, kept)
    (kept / "ledger.sqlite-shm").unlink()  # without it SQLite cannot open the file in its place
    size = size_of(ledger)
    copyfile = shutil.copyfile
    changed: list[Path] = []

    def copy_late(source: Path, target: Path, **options: Any) -> Any:
        if Path(source).name.endswith("-wal") and not changed:
            changed.append(Path(source))
            os.write(go, b"x")  # root appends, and empties the log
            os.read(done, 1)
        return copyfile(source, target, **options)

    asked, go = os.pipe()
    done, tell = os.pipe()

    def writes() -> None:
        os.read(asked, 1)
        with closing(sqlite3.connect(LedgerPaths(kept).database)) as stays:
            stays.execute("SELECT * FROM meta").fetchall()  # so that the log stays, begun anew
            append(kept, batches=40)
            os.write(tell, b"x")
            os.read(asked, 1)

    writer_process = _FORK.Process(target=writes)
    writer_process.start()
    monkeypatch.setattr(shutil, "copyfile", copy_late)
    found = as_stranger(lambda send: send(size_of(kept)))
    os.write(go, b"x")
    writer_process.join()
    assert found == [size + 800]


@pytest.mark.parametrize("reads", [15, pytest.param(150, marks=pytest.mark.slow)])
def test_copies_beside_a_writer_are_all_valid(ledger: Path, reads: int) -> None:
    stop, was_read, was_written = _FORK.Event(), _FORK.Event(), _FORK.Event()

    def writes() -> None:
        was_read.wait(60)
        for _ in range(reads):  # a slow reader's copies do not grow without end
            if not stop.is_set():
                append(ledger, batches=5)
                was_written.set()

    def reads_all(send: Any) -> None:
        for number in range(reads):
            if number == reads - 1:
                was_written.wait(60)  # on a busy machine the writer may come late
            send(size_of(ledger))
            was_read.set()

    writer = _FORK.Process(target=writes)
    writer.start()
    try:
        sizes = as_stranger(reads_all)
    finally:
        stop.set()
        writer.join()
    assert len(sizes) == reads
    assert all(isinstance(size, int) for size in sizes), sizes
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
