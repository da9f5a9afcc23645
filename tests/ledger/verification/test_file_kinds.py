"""What is no regular file, or has no end, is refused at once, whatever it stands in for."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from threat_scene import Scene, make_scene
from threats_files import lay_out_journal

from ledger.blobs import BlobStore
from ledger.database import Database
from ledger.errors import LedgerError, StorageError
from ledger.files import create_exclusively, read_bounded, read_text, write_durably
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import check_bundle
from ledger.keys import load_key
from ledger.paths import LedgerPaths
from ledger.recording.opening import open_ledger
from ledger.verification import snapshots
from ledger.verification.reader import check_ledger
from ledger.witnessing.witness import Witness
from proctor.errors import ProctorError
from proctor.inputs import read_text as read_command_text


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def circle(path: Path) -> None:
    path.symlink_to(path)


KINDS = [pipe, device, folder, circle]
SAYS = "is not a regular file|Too many levels of symbolic links"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("kinds") / "scene")


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    """End a test that waits."""

    def stop(*_: object) -> None:
        raise TimeoutError("it was not refused at once")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["ledger.vkey", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"]
)
def test_ledger_with_another_kind_of_file_is_rejected(
    tmp_path: Path, scene: Scene, name: str, kind: Callable[[Path], None]
) -> None:
    directory = tmp_path / "ledger"
    shutil.copytree(scene.ledger, directory)
    assert check_ledger(directory).ok
    (directory / name).unlink(missing_ok=True)
    kind(directory / name)
    with pytest.raises(StorageError, match=SAYS):
        check_ledger(directory)
    with pytest.raises(StorageError, match=f"{SAYS}|ledger not found"):
        open_ledger(LedgerPaths(directory), passphrase=None)


@pytest.mark.parametrize("kind", KINDS)
def test_journal_of_another_kind_is_rejected(
    tmp_path: Path, scene: Scene, kind: Callable[[Path], None]
) -> None:
    directory = tmp_path / "ledger"
    shutil.copytree(scene.ledger, directory)
    kind(directory / "ledger.sqlite-journal")
    with pytest.raises(StorageError, match=SAYS):
        Database(LedgerPaths(directory).database)


def test_journal_beside_a_ledger_deletes_no_file(tmp_path: Path, scene: Scene) -> None:
    directory = tmp_path / "ledger"
    shutil.copytree(scene.ledger, directory)
    paths, victim = LedgerPaths(directory), tmp_path / "precious"
    lay_out_journal(paths.database, victim)
    for refused in (check_ledger, lambda each: Database(LedgerPaths(each).database)):
        with pytest.raises(StorageError, match="a rollback journal does not belong here"):
            refused(directory)
    assert victim.read_text() == "precious"


def test_journal_beside_a_witness_deletes_no_file(tmp_path: Path) -> None:
    Witness.create(tmp_path, name="witness.example", passphrase=None)
    victim = tmp_path / "precious"
    lay_out_journal(tmp_path / "witness.sqlite", victim)
    with (
        pytest.raises(StorageError, match="a rollback journal does not belong here"),
        Witness.open(tmp_path, passphrase=None),
    ):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_link_beside_a_ledger_is_rejected(tmp_path: Path, scene: Scene, suffix: str) -> None:
    """SQLite would read, and a copy would hold, what lies where it points."""
    directory = tmp_path / "ledger"
    shutil.copytree(scene.ledger, directory)
    beside = directory / f"ledger.sqlite{suffix}"
    beside.unlink(missing_ok=True)
    (tmp_path / "other").write_bytes(b"")
    beside.symlink_to(tmp_path / "other")
    with pytest.raises(StorageError, match="is not a regular file"):
        check_ledger(directory)


def test_copy_without_room_is_rejected(tmp_path: Path) -> None:
    sparse, folder = tmp_path / "ledger.sqlite", tmp_path / "copy"
    folder.mkdir()
    sparse.touch()
    os.truncate(sparse, 2**43)  # 8 TiB, which take nothing of the disk
    with pytest.raises(StorageError, match="set TMPDIR"):
        snapshots._is_copied(sparse, folder)
    assert list(folder.iterdir()) == []


def test_database_that_is_a_link_to_a_ledger_is_read(tmp_path: Path, scene: Scene) -> None:
    paths = LedgerPaths(tmp_path)
    paths.database.symlink_to(LedgerPaths(scene.ledger).database)
    assert check_ledger(tmp_path, vkey=scene.vkey).ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["witness.vkey", "witness.sqlite", "witness.pem"])
def test_witness_with_another_kind_of_file_is_rejected(
    tmp_path: Path, name: str, kind: Callable[[Path], None]
) -> None:
    Witness.create(tmp_path, name="witness.example", passphrase=None)
    (tmp_path / name).unlink()
    kind(tmp_path / name)
    with (
        pytest.raises(LedgerError, match=f"{SAYS}|not found"),
        Witness.open(tmp_path, passphrase=None),
    ):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_blob_of_another_kind_is_rejected(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    store = BlobStore(tmp_path / "blobs")
    digest = store.put(b"weights")
    store.path(digest).unlink()
    kind(store.path(digest))
    for read in (
        lambda: store.get(digest),
        lambda: store.piece(digest, offset=0, limit=1),
        lambda: store.put_file(store.path(digest)),
    ):
        with pytest.raises(StorageError, match=SAYS):
            read()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ledger.vkey", "checkpoint"])
def test_bundle_with_another_kind_of_file_is_rejected(
    tmp_path: Path, scene: Scene, name: str, kind: Callable[[Path], None]
) -> None:
    bundle = tmp_path / "bundle"
    export_bundle(scene.ledger, bundle)
    assert check_bundle(bundle, vkey=scene.vkey).ok
    (bundle / name).unlink()
    kind(bundle / name)
    try:
        assert not check_bundle(bundle, vkey=scene.vkey).ok
    except StorageError as error:
        assert "bundle not found" in str(error)  # noqa: PT017  (either way of refusing will do)


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_another_kind_is_rejected(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    kind(tmp_path / "note")
    with pytest.raises((StorageError, OSError), match=SAYS):
        read_text(tmp_path / "note", most=100)


def test_file_is_read_up_to_its_bound_and_rejected_beyond(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_durably(path, b"x" * 100)
    assert read_bounded(path, most=100) == b"x" * 100
    with pytest.raises(StorageError, match="longer than 99 bytes"):
        read_bounded(path, most=99)
    os.truncate(path, 10**12)
    with pytest.raises(StorageError, match="longer than 99 bytes"):
        read_bounded(path, most=99)
    (tmp_path / "empty").write_bytes(b"")
    assert read_bounded(tmp_path / "empty", most=0) == b""


def test_file_is_replaced_or_left_whole_and_nothing_lies_beside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"first")
    write_durably(path, b"second")
    assert not create_exclusively(path, b"third", mode=0o600)
    assert path.read_bytes() == b"second"
    assert create_exclusively(tmp_path / "other", b"x", mode=0o600)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "other"]


def test_key_of_another_kind_is_rejected(tmp_path: Path) -> None:
    pipe(tmp_path / "key")
    with pytest.raises(StorageError, match=SAYS):
        load_key(tmp_path / "key", passphrase=None)


@pytest.mark.parametrize("kind", KINDS)
def test_text_for_a_command_of_another_kind_is_rejected(
    tmp_path: Path, kind: Callable[[Path], None]
) -> None:
    kind(tmp_path / "note")
    with pytest.raises((ProctorError, StorageError), match=SAYS):
        read_command_text(tmp_path / "note")
    (tmp_path / "long").write_bytes(b"x" * (4 << 20))
    assert len(read_command_text(tmp_path / "long") or "") == 4 << 20
    os.truncate(tmp_path / "long", 10**12)
    with pytest.raises(StorageError, match="longer than 4,194,304 bytes"):
        read_command_text(tmp_path / "long")
