"""Temporary folders of a killed process go with the next start; those in use stay."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from judge.confinement.held_folder import HeldFolder
from judge.gauntlet.repository.git import Repository

HOLD = """
import sys, tempfile, time
from judge.confinement.held_folder import HeldFolder
held = HeldFolder("held-test-")
(held.path / "deep").mkdir()
print(held.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_folder_of_a_killed_process_is_removed_by_the_next_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with HeldFolder("held-test-") as mine:
            assert left.exists(), "a folder in use was removed"
            other.send_signal(signal.SIGKILL)
            other.wait()
            assert left.exists()
            with HeldFolder("held-test-") as next_one:
                assert sorted(tmp_path.iterdir()) == sorted((mine.path, next_one.path))
    assert not list(tmp_path.iterdir())


def test_what_is_not_a_held_folder_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "held.lock").touch()
    (tmp_path / "held-test-link").symlink_to(kept)
    (tmp_path / "held-test-no-lock").mkdir()
    (tmp_path / "held-test-file").touch()
    before = sorted(tmp_path.iterdir())
    with HeldFolder("held-test-"):
        pass
    assert sorted(tmp_path.iterdir()) == before
    assert (kept / "held.lock").exists()


def test_git_folder_of_a_killed_process_is_removed_by_the_next_start(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", repository], check=True)
    code = (
        "import os, pathlib\nfrom judge.gauntlet.repository.git import Repository\n"
        f"kept = Repository(pathlib.Path({str(repository)!r}))\nos.kill(os.getpid(), 9)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ})
    assert len(list(tmp_path.glob("gauntlet-git-*"))) == 1  # the second removed the first's
    opened = Repository(repository)
    assert len(list(tmp_path.glob("gauntlet-git-*"))) == 1
    del opened
    assert not list(tmp_path.glob("gauntlet-git-*"))
