"""What is not a ledger, or no longer a whole one, gets one clear error."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent

from ledger.application import LedgerApplication
from ledger.errors import KeyFileError, LedgerError, StorageError
from ledger.mapper import EventRegistry
from ledger.paths import LedgerPaths
from ledger.verification.reader import check_ledger, open_verified, read_tree_head


def copied(source: Path, target: Path) -> LedgerPaths:
    shutil.copytree(source, target)
    return LedgerPaths(target)


def not_sqlite(path: Path) -> None:
    path.write_bytes(b"not a database, by any means\n" * 1_000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_within_its_header(path: Path) -> None:
    os.truncate(path, 60)


def foreign_sqlite(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as c:
        c.execute("CREATE TABLE entries (idx INTEGER PRIMARY KEY)")


def of_a_later_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as c:
        c.execute("PRAGMA user_version = 2")


def with_a_trigger(path: Path) -> None:
    with closing(sqlite3.connect(path)) as c:
        c.execute("CREATE TRIGGER spoil AFTER INSERT ON entries BEGIN DELETE FROM tree_heads; END")


def without_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as c:
        c.execute("DROP TABLE tree_heads")


def overwritten_inside(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 16_384)


DAMAGES = [
    not_sqlite,
    empty,
    truncated,
    cut_within_its_header,
    foreign_sqlite,
    of_a_later_version,
    with_a_trigger,
    without_a_table,
    overwritten_inside,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_damaged_database_is_rejected(
    damage: Callable[[Path], None], ledger_directory: Path, tmp_path: Path
) -> None:
    paths = copied(ledger_directory, tmp_path / "ledger")
    assert check_ledger(paths.directory).ok
    damage(paths.database)
    for use in (check_ledger, read_tree_head, read_everything):
        try:
            use(paths.directory)
        except LedgerError as e:
            assert str(paths.database) in str(e)  # noqa: PT017  (read_tree_head may yet succeed)
        else:
            assert use is read_tree_head
            assert damage is overwritten_inside


def read_everything(directory: Path) -> None:
    with LedgerApplication.open(directory, EventRegistry()) as app:
        app.recorder.select_notifications(start=1, limit=1_000_000)


def test_directory_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.write_text("a file")
    with pytest.raises(StorageError, match="home: "):
        LedgerApplication.open(path, EventRegistry())
    with pytest.raises(LedgerError, match="home"):
        check_ledger(path)


def test_missing_ledger_is_rejected_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="public key not found"):
        check_ledger(tmp_path)
    with pytest.raises(StorageError, match="there is no ledger"):
        check_ledger(tmp_path, vkey="a+f5c6a8a9+" + "A" * 44)
    assert not list(tmp_path.iterdir())


def test_oversized_value_in_the_file_is_rejected(ledger_directory: Path, tmp_path: Path) -> None:
    paths = copied(ledger_directory, tmp_path / "ledger")
    with closing(sqlite3.connect(paths.database)) as c, c:
        c.execute("UPDATE entries SET entry = zeroblob(20000000) WHERE idx = 300")
    report = check_ledger(paths.directory)
    assert (report.error_type, report.index) == ("MalformedError", 300)


def test_text_that_is_not_utf8_in_the_file_is_rejected(
    ledger_directory: Path, tmp_path: Path
) -> None:
    paths = copied(ledger_directory, tmp_path / "ledger")
    with closing(sqlite3.connect(paths.database)) as c, c:
        c.execute("UPDATE entries SET name = CAST(X'FF' AS TEXT) WHERE idx = 10")
    report = check_ledger(paths.directory)
    assert (report.error_type, report.index) == ("ConsistencyError", 10)
    with closing(sqlite3.connect(paths.database)) as c, c:
        c.execute("UPDATE entries SET name = (SELECT name FROM entries WHERE idx = 11)")
        c.execute("UPDATE tree_heads SET note = CAST(X'FF' AS TEXT)")
    assert not check_ledger(paths.directory).ok


def test_verification_leaves_the_database_as_it_was(ledger_directory: Path) -> None:
    path = LedgerPaths(ledger_directory).database
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert check_ledger(ledger_directory).ok
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_ledger_in_a_read_only_folder_verifies(ledger_directory: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = copied(ledger_directory, Path(folder) / "ledger")
        shutil.rmtree(paths.key.parent)  # an auditor is given no private key
        for suffix in ("-wal", "-shm"):
            paths.database.with_name(paths.database.name + suffix).unlink(missing_ok=True)
        Path(folder).chmod(0o755)
        paths.directory.chmod(0o555)
        paths.database.chmod(0o444)
        own = os.geteuid()
        if own == 0:
            os.seteuid(65_534)  # permissions do not stop root
        try:
            report = check_ledger(paths.directory)
            files = sorted(p.name for p in paths.directory.iterdir())
        finally:
            os.seteuid(own)
            paths.directory.chmod(0o755)
    assert report.ok
    assert files == ["ledger.sqlite", "ledger.vkey"]


def test_verified_entries_are_those_of_one_moment(ledger_directory: Path, tmp_path: Path) -> None:
    paths = copied(ledger_directory, tmp_path / "ledger")
    with open_verified(paths.directory) as ledger:
        with closing(sqlite3.connect(paths.database)) as c, c:  # in between check and use
            c.execute("DELETE FROM entries WHERE idx > 100")
            c.execute("UPDATE entries SET entry = X'00' WHERE idx = 0")
        entries = list(ledger.entries())
        assert [e.index for e in entries] == list(range(ledger.size))
        assert [e.index for e in ledger.entries(start=597)] == [597, 598, 599]
    assert check_ledger(paths.directory).index == 0


def test_errors_of_the_reader_of_a_ledger_stay_their_own(ledger_directory: Path) -> None:
    with open_verified(ledger_directory) as ledger, pytest.raises(FileNotFoundError):
        Path(f"/does/not/exist/{next(ledger.entries())}").read_text()


def test_writer_refuses_a_ledger_that_was_cut_or_changed(
    ledger_directory: Path, tmp_path: Path
) -> None:
    for trial, damage in enumerate(
        (
            "DELETE FROM entries WHERE idx = (SELECT MAX(idx) FROM entries)",
            "DELETE FROM tree_heads WHERE size = (SELECT MAX(size) FROM tree_heads)",
            "UPDATE tree_heads SET edge = zeroblob(length(edge))",
            "UPDATE tree_heads SET edge = X''",
            "UPDATE tree_heads SET note = ''",
        )
    ):
        paths = copied(ledger_directory, tmp_path / f"ledger-{trial}")
        with closing(sqlite3.connect(paths.database)) as c, c:
            c.execute(damage)
        with (
            LedgerApplication.open(paths.directory, EventRegistry()) as app,
            pytest.raises(LedgerError, match="do not match at size"),
        ):
            app.recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])
