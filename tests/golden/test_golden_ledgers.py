"""Ledgers that earlier versions made: they still verify, and are still shown, replayed and judged.

What is copied is never changed; see README.md beside this file.
"""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import torch
from frontdoor import call_here

from aggregates.firing import evaluate_rules
from aggregates.rules import CALIBRATED_1, VERSIONS
from aggregates.run import Run
from judge.auditing.audit import audit_run
from judge.auditing.events import decode_events
from judge.auditing.gates import Gates
from judge.auditing.record import read_record
from judge.auditing.report import AuditReport
from judge.config import JudgeConfig
from judge.errors import JudgeError
from proctor.home import Home
from proctor.runs.training import following_attempt

HERE = Path(__file__).parent
PROVOKED = "0f7ebcb3-f62c-4e1e-9969-b64d2c724475"  # R7 and R1 fire, and their remedies are applied
RESTARTED = "369b86f2-8b55-4351-a87a-ec9545ff7d06"  # R5 fires, and the run restarts
FOLLOWING = "bd34ad53-84da-49e2-8552-937f7c6338ec"
RUNS = (PROVOKED, RESTARTED, FOLLOWING)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy, since opening a ledger leaves files beside it."""
    path = tmp_path_factory.mktemp("golden") / "home"
    shutil.copytree(HERE / "calibrated_1", path)
    assert not list(path.rglob("*.pem"))
    return path


def events_of(home: Path, run: str) -> list[Any]:
    return decode_events(read_record(Home(home).ledger, UUID(run)).entries)


def folded(home: Path, run: str) -> Any:
    state: Any = None
    for event in events_of(home, run):
        state = event.mutate(state)
    return state


def audit(home: Path, run: str) -> AuditReport:
    """Judge a run without recording anything and without training it again."""
    place = Home(home)
    return audit_run(run, ledger_dir=place.ledger, submission_dir=place.submission(run))


def test_old_ledger_is_small_and_holds_no_private_key() -> None:
    files = [path for path in (HERE / "calibrated_1").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in files)


def test_old_ledger_verifies(home: Path) -> None:
    done = call_here(["verify"], home=home)
    assert (done.returncode, "79 entries" in done.stdout) == (0, True), done.stderr


def test_old_ledger_is_queried(home: Path) -> None:
    fired = "SELECT run_id, epoch, rule FROM rule_evaluations WHERE fired ORDER BY ALL"
    found = call_here(["sql", "--json", fired], home=home)
    assert found.returncode == 0, found.stderr
    rows = [
        list(row.values()) if isinstance(row, dict) else row for row in json.loads(found.stdout)
    ]
    assert rows == [
        [PROVOKED, 2, "R1"],
        [PROVOKED, 2, "R7"],
        [PROVOKED, 3, "R1"],
        [RESTARTED, 2, "R5"],
    ]


@pytest.mark.parametrize("run", RUNS)
def test_old_run_is_shown_and_replayed(home: Path, run: str) -> None:
    for command in ("show", "replay"):
        done = call_here([command, run], home=home)
        assert done.returncode == 0, done.stderr
        assert "epoch" in done.stdout


@pytest.mark.parametrize("run", RUNS)
def test_old_run_has_no_hard_fail_and_the_verdict_names_the_version_of_its_rules(
    home: Path, run: str
) -> None:
    with pytest.raises(JudgeError, match="made by another version of Proctor"):
        audit(home, run)  # the images that the run was trained on cannot be drawn again
    place, config = Home(home), JudgeConfig()
    record = read_record(place.ledger, UUID(run))
    gates = Gates(UUID(run), config, record=record, directory=place.submission(run), redo=None)
    ledger = gates.ledger()
    for step in (gates.deliverables, gates.load_model, gates.weights, gates.run_config):
        assert step().status == "passed"
    assert gates.architecture().status == "passed"
    newest = len(VERSIONS["calibrated"])
    assert ledger.evidence["rules"] == {
        "profile": "calibrated",
        "version": 1,
        "newest": newest,
        "hash": CALIBRATED_1.hash,
    }
    assert f"version 1 of the profile calibrated, the newest is {newest}" in ledger.summary


@pytest.mark.parametrize("command", ["judge", "replay --execute"])
def test_old_run_that_cannot_be_trained_again_is_refused_in_one_sentence(
    command: str, home: Path
) -> None:
    done = call_here([*command.split(), "--json"], home=home)
    assert done.returncode == 2
    assert "made by another version of Proctor" in done.stdout
    assert "Traceback" not in done.stderr


def test_old_run_is_evaluated_with_the_rules_that_it_recorded(home: Path) -> None:
    run = folded(home, PROVOKED)
    assert run.rules == CALIBRATED_1
    again = evaluate_rules(run.history[:3], [], CALIBRATED_1)
    assert again == run.evaluations[2]
    newest = evaluate_rules(run.history[:3], [], VERSIONS["calibrated"][-1])
    assert (again["R7"].fired, newest["R7"].fired) == (True, False)  # on the average alone


def test_old_restart_follows_in_the_words_of_its_time(home: Path) -> None:
    (started, *_), parent = events_of(home, FOLLOWING), folded(home, RESTARTED)
    assert type(started) is Run.Started
    following = following_attempt(parent)
    assert following is not None
    assert started.config["activation"] == "relu"  # the model's fields were the parent's
    assert following.config.to_dict() == {**started.config, "activation": "leaky_relu"}
