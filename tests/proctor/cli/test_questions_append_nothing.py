"""A command that only reads appends nothing, and closes no run of anybody."""

from pathlib import Path

import pytest
from frontdoor import call_here
from synthetic import synthetic_audit, synthetic_run, synthetic_transcript

from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from proctor.home import Home

READING = (
    ["show"],
    ["log"],
    ["sql", "SELECT 1"],
    ["sql", "SELECT 1", "--unverified"],
    ["replay"],
    ["show", "--transcript"],
    ["keys", "list"],
    ["keys", "accept"],
    ["data", "list"],
    ["data", "why"],
    ["line", "show", "--list", "checkpoints"],
    ["report", "--out", "report.html"],
    ["export", "bundle", "--out", "bundle"],
    ["export", "proof", "0"],
    ["verify"],
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Home(tmp_path / "home").open_log() as log:
        run = synthetic_run(log, epochs=2)
        synthetic_audit(log, run)
        synthetic_transcript(log, run)
    return tmp_path / "home"


def size_of(home: Path) -> int:
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        return log.recorder.max_notification_id() or 0


def test_questions_append_nothing_beside_open_runs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of these runs one is by a program that takes no lock, and one by a process that is gone."""
    monkeypatch.chdir(tmp_path)
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        streamed, killed = (synthetic_run(log, epochs=2, end=None) for _ in range(2))
        lock = home / "runs" / str(killed.id) / "running.lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
        before = log.recorder.max_notification_id()
        for arguments in READING:
            done = call_here(arguments, home=home)
            assert done.returncode in (0, 1, 2), (arguments, done.stderr)
            assert log.recorder.max_notification_id() == before, arguments
        with Home(home).open_log() as other:  # a command that appends
            runs = [other.readable(run.id, Run) for run in (streamed, killed)]
            assert [run and run.end_reason for run in runs] == [None, "crashed"]
            assert not lock.exists()
        streamed.end("completed")
        log.save(streamed)  # its program was not disturbed
    assert size_of(home) == (before or 0) + 2
