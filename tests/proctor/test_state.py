"""The folder of what is remembered, and what lies in it."""

import hashlib
import os
from pathlib import Path

import pytest
from frontdoor import call_here
from synthetic import synthetic_audit, synthetic_run

from ledger.blobs import BlobStore
from ledger.errors import MemoryFileError
from proctor.home import Home
from proctor.remembering import TrainedStates
from proctor.state import STATE, memory, state_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(STATE, str(folder))
    return folder


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_folder_that_others_can_write_is_refused(folder: Path, mode: int) -> None:
    assert state_folder() == folder
    folder.chmod(mode)
    for use in (state_folder, memory):
        with pytest.raises(MemoryFileError, match="other users can write this folder"):
            use()


def test_link_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder)
    monkeypatch.setenv(STATE, str(link))
    with pytest.raises(MemoryFileError, match="this is a link"):
        state_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 65534, -1)
    with pytest.raises(MemoryFileError, match="this folder is another user's"):
        state_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_key_of_another_user_is_refused(folder: Path, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    TrainedStates(blobs).add("shared", "0" * 64)
    os.chown(folder / "key", 65534, -1)
    with pytest.raises(MemoryFileError, match="another user's"):
        TrainedStates(blobs).add("shared", "0" * 64)


def test_commands_go_on_without_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log))
    report = ["report", "--out", str(tmp_path / "report.html")]
    for command in (["sql", "SELECT 1"], ["log"], ["show"], ["verify"], report):
        file = tmp_path / command[0]
        file.touch()
        done = call_here(command, home=home, state=file)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stderr.count("warning:") == 1
        assert f"{file}: it is not a folder; nothing is remembered" in done.stderr
        assert "PROCTOR_STATE=off" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
@pytest.mark.parametrize("name", [".", "new"])
def test_folder_that_cannot_be_written_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(STATE, str(folder / name))
    folder.chmod(0o500)
    assert state_folder() is None


def test_trained_state_counts_only_with_its_code(folder: Path, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    sha256 = hashlib.sha256(b"state").hexdigest()
    assert blobs.put(b"state") == sha256
    TrainedStates(blobs).add("shared", sha256)
    assert TrainedStates(blobs).find("shared", sha256) == b"state"
    assert TrainedStates(blobs).find("another", sha256) is None
    [marker] = (folder / "states").iterdir()
    assert (folder / "states").stat().st_mode & 0o077 == 0
    for forged in (b"", b"0" * 64):
        marker.write_bytes(forged)
        assert TrainedStates(blobs).find("shared", sha256) is None
