"""Runs under version 3 of the rules `relative`, which went back: shown, replayed, the same."""

import json
import tarfile
from pathlib import Path

import pytest
from frontdoor import call, call_here
from judge_cases import events_of

from aggregates.firing import evaluate_epochs
from aggregates.rules import VERSIONS
from proctor.home import Home
from proctor.runs.replay import folded

HERE = Path(__file__).parent
EXPLODED = "d2db9ad8-c499-4b88-aaef-8aec0dc90b70"  # R7 in epoch 1: back to epoch 0, bounded
TOO_HIGH = "d99fb4ff-0e94-4226-9619-8d7ecfe021e2"  # R1 in epoch 0, and guessing in epoch 4
VERSION_3 = VERSIONS["relative"][2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a copy; the private key was left out of it."""
    with tarfile.open(HERE / "relative_3.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "relative_3"


@pytest.mark.parametrize("run", [EXPLODED, TOO_HIGH])
def test_old_run_is_verified_shown_and_replayed(home: Path, run: str) -> None:
    done = call_here(["verify"], home=home)
    assert (done.returncode, "69 entries" in done.stdout) == (0, True), done.stdout + done.stderr
    for command in ("show", "replay"):
        done = call_here([command, run], home=home)
        assert (done.returncode, "epoch" in done.stdout) == (0, True), done.stderr
        assert "go_back" in done.stdout


def test_old_runs_are_evaluated_with_the_rules_that_they_recorded(home: Path) -> None:
    for run in (EXPLODED, TOO_HIGH):
        state = folded(events_of(Home(home).ledger, run))
        assert state.rules == VERSION_3
        again = list(evaluate_epochs(state.history, state.remedies, VERSION_3))
        assert again == [state.evaluations[epoch] for epoch in range(5)]


def test_old_verdicts_are_queried(home: Path) -> None:
    sql = "SELECT process_score, test_accuracy FROM audit_scores ORDER BY ALL"
    done = call_here(["sql", "--json", sql], home=home)
    assert done.returncode == 0, done.stderr
    scores = [list(row.values()) for row in json.loads(done.stdout)]
    assert scores == [[1.0, 0.1], [1.0, 0.14]]


@pytest.mark.slow
def test_old_run_that_went_back_is_trained_again_to_the_same_bits(home: Path) -> None:
    done = call(["replay", EXPLODED, "--execute"], home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same, bit for bit" in done.stdout
