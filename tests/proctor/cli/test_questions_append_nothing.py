"""A command that only reads appends nothing, and closes no run of anybody."""

from pathlib import Path

import pytest
import typer
from frontdoor import call_here
from synthetic import synthetic_audit, synthetic_run, synthetic_transcript

from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from proctor.cli.lazy import leaves
from proctor.cli.main import app
from proctor.home import Home

READING = {  # each way to ask, by command
    "data lineage": ["x/1"],
    "data list": [],
    "data why": [],
    "export bundle": ["--out", "bundle"],
    "export curves": ["--out", "curves"],
    "export proof": ["0", "--out", "proof"],
    "export verdict": ["head", "--out", "verdict"],
    "import": ["bundle"],
    "keys accept": [],
    "keys list": [],
    "keys new": ["operator", "key"],
    "line show": ["--list", "checkpoints"],
    "line sign": ["resume", "--key", "key/operator.pem"],
    "line task new": ["task"],
    "log": [],
    "replay": [],
    "report": ["--out", "report.html"],
    "runs": [],
    "show": [],
    "sql": ["SELECT 1"],
    "tune show": ["model"],
    "verify": [],
    "witness sign": ["request", "--state", "state"],
    "witness trust": ["vkey", "--name", "example.org/witness", "--state", "state"],
}
FURTHER = (["sql", "SELECT 1", "--unverified"], ["show", "--transcript"])
SERVING = {"notary", "serve", "witness serve"}  # until they are stopped
APPENDING = {
    "annotate",
    "compare",
    "data admit",
    "data review",
    "data withdraw",
    "demo",
    "export data",
    "export model",
    "fork",
    "judge",
    "keys grant",
    "keys revoke",
    "keys rotate",
    "line bisect",
    "line evolve",
    "line init",
    "line propose",
    "line rollback",
    "line run",
    "line task admit",
    "line watch",
    "run",
    "tune round",
    "tune use",
    "witness ask",
}


def test_every_command_is_said_to_append_or_not() -> None:
    commands = [path for path, _ in leaves(typer.main.get_command(app))]
    assert sorted(commands) == sorted([*READING, *SERVING, *APPENDING])


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
        for arguments in (*([*path.split(), *rest] for path, rest in READING.items()), *FURTHER):
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
