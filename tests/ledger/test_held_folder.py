"""Temporary folders of a killed process go with the next start; those in use stay."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ledger.held_folder import HeldFolder

HOLD = """
import sys, tempfile, time
from ledger.held_folder import HeldFolder
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


def test_folder_stays_when_a_fork_of_its_process_ends(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from ledger.held_folder import HeldFolder\nheld = HeldFolder('held-test-')\n"
        "if os.fork() == 0:\n    sys.exit()\nos.wait()\nassert held.path.exists()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not list(tmp_path.iterdir())
