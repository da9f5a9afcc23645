"""What makes attempts comparable: the campaign's own audits, over data that stays as it was."""

import random
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from uuid import UUID

import pytest
from chat_server import ChatServer, Reply, act_on_first, decide
from frontdoor import answer, call, call_here, with_settings
from PIL import Image
from synthetic import synthetic_run

from aggregates.campaign import Campaign
from monitor.loop import prepare
from proctor.home import Home
from proctor.runs import jobs
from proctor.runs.campaign_replay import read_records, redo_campaign
from proctor.runs.campaign_run import Harness, Task
from proctor.runs.executors import Here
from proctor.runs.policies import PolicyChoice
from proctor.runs.progress import watching
from proctor.runs.run_settings import read_config
from proctor.runs.training import Told

TASK = [
    *("train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"),
    *("epochs=4", "threads=1", "lr=3.0", "warm_up_epochs=0"),
]
PLAYBOOK = ["run", *TASK, "--policy", "playbook", "--attempts", "1", "--json"]


@pytest.fixture(autouse=True)
def _remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_STATE", "off")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-no-use")


@pytest.fixture(scope="module")
def unjudged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose campaign was interrupted when its attempt had been trained."""
    return _train_only(tmp_path_factory.mktemp("unjudged") / "home", TASK, attempts=1)


def _train_only(path: Path, settings: list[str], *, attempts: int) -> Path:
    home = Home(path)
    config, choice = read_config(None, settings), PolicyChoice("playbook")
    task = Task(config, choice.to_dict(), attempts=attempts, feedback=True)

    def interrupt(_: UUID) -> Any:
        raise KeyboardInterrupt

    with home.open_log() as log:
        harness = Harness(
            home,
            log,
            task.open(log),
            executor=Here(log, watching()),
            choice=choice,
            judge_run=interrupt,
            splits=prepare(config),
            watching=watching(),
        )
        with pytest.raises(KeyboardInterrupt):
            harness.carry_on()
    return home.path


@pytest.fixture
def home(unjudged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unjudged, tmp_path / "home"))


def _spoil(home: Path) -> str:
    """Judge the latest run by other files than its own, and return the audit."""
    other = home / "other"
    other.mkdir(exist_ok=True)
    (other / "model.py").write_text("0")
    done = call_here(["judge", "latest", "--submission", other, "--json"], home=home)
    assert done.returncode == 1
    return str(answer(done)["audit_id"])


def _campaign(home: Path) -> Any:
    (row,) = answer(call_here(["sql", "FROM campaign_starts", "--json"], home=home))
    return read_records(Home(home), row["campaign_id"]).campaign


def _forge(home: Path, audit: str) -> str:
    """End the campaign by another audit than its own."""
    with Home(home).open_log() as log:
        campaign: Campaign = log.repository.get(_campaign(home).id)
        (run,) = campaign.runs
        campaign.judge_attempt(run, audit)
        campaign.end("completed", ranking=[run])
        log.save(campaign)
    return str(campaign.id)


@pytest.mark.slow
def test_judging_an_attempt_that_goes_on_is_rejected_and_spoils_nothing(tmp_path: Path) -> None:
    act = decide(act_on_first)
    judged: list[CompletedProcess[str]] = []

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        if not judged and "Due rules" in str(request):
            judged.append(call(["judge", "latest"], home=tmp_path))
        return act(request, headers)

    command = ["run", "--policy", "openai", *TASK, "--set", "model=m", "--attempts", "1", "--json"]
    with ChatServer(behave) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        done = call_here(command, home=tmp_path)
    (early,) = judged
    assert (early.returncode, "has no run.ended event" in early.stderr) == (2, True)
    (attempt,) = answer(done)["attempts"]
    assert not attempt["hard_fail"]
    names = [entry["event"] for entry in answer(call_here(["log", "--json"], home=tmp_path))]
    assert names.count("audit.started") == names.count("campaign.attempt_judged") == 1
    _spoil(tmp_path)  # who asks now is given a verdict, on whatever is handed in


def test_audit_of_another_submission_is_not_shown_as_one_of_the_run(home: Path) -> None:
    audit = _spoil(home)
    told = " ".join(call_here(["show"], home=home).stdout.split())
    assert "not judged yet: nobody has shown that it is repeatable" in told
    why = f"audit {audit[:8]} does not count: it judged other files than the run submitted"
    assert f"{why}: run_config.json" in told
    assert "verdict:" not in told
    (shown,) = answer(call_here(["show", "--json"], home=home))["other_audits"]
    assert (shown["audit_id"], "run_config.json" in shown["other_files"]) == (audit, True)


@pytest.mark.slow
def test_attempt_is_judged_by_the_campaign_when_others_have_judged_it(home: Path) -> None:
    foreign = {_spoil(home)}
    told = answer(call_here(PLAYBOOK, home=home))
    foreign.add(_spoil(home))
    assert answer(call_here(PLAYBOOK, home=home)) == told
    (attempt,) = told["attempts"]
    assert (attempt["hard_fail"], attempt["process_score"] > 0) == (False, True)
    assert not foreign & set(_campaign(home).audits.values())
    again = call_here(["replay", told["campaign"], "--execute"], home=home)
    assert again.returncode == 0, again.stdout


@pytest.mark.slow
def test_verdict_on_another_submission_is_told_when_the_campaign_is_replayed(home: Path) -> None:
    campaign = _forge(home, _spoil(home))
    done = call_here(["replay", campaign, "--execute", "--json"], home=home)
    places = [difference["place"] for difference in answer(done)["differences"]]
    assert (done.returncode, "attempt 1 verdict.scores.hard_fail" in places) == (1, True)


def test_audit_of_another_run_is_told_when_the_campaign_is_replayed(home: Path) -> None:
    other = ["run", *with_settings(TASK, "epochs=1"), "--policy", "playbook"]
    assert call_here(other, home=home).returncode == 0
    campaign = _forge(home, _spoil(home))
    done = call_here(["replay", campaign, "--execute", "--json"], home=home)
    found = [(row["place"], row["found"]) for row in answer(done)["differences"]]
    assert done.returncode == 1
    assert ("attempt 1 verdict", "there is no whole audit of the run after its end") in found


@pytest.mark.slow
def test_feedback_where_none_is_due_is_told_when_the_campaign_is_replayed(home: Path) -> None:
    told = answer(call_here(PLAYBOOK, home=home))
    records = read_records(Home(home), told["campaign"])
    forged = {told["ranking"][0]: Told({"attempts": []})}
    unjudged = replace(records, verdicts={})  # which saves judging it again
    for given, places in ((forged, ["attempt 1 feedback"]), (records.told, [])):
        again = redo_campaign(
            Home(home),
            replace(unjudged, told=given),
            on_epoch=lambda *_: None,
            say=lambda _: None,
        )
        found = [difference.place for difference in again.differences]
        assert found == [*places, "attempt 1 verdict", "ranking.length"]


@pytest.mark.slow
def test_attempt_that_was_cut_off_is_told_beside_the_ranking(tmp_path: Path) -> None:
    with Home(tmp_path).open_log() as log:
        task = Task(read_config(None, TASK), {"name": "playbook"}, attempts=1, feedback=True)
        campaign = task.open(log)
        campaign.start_attempt(str((run := synthetic_run(log, epochs=3, end="crashed")).id))
        log.save(campaign)
    told = answer(call_here(PLAYBOOK, home=tmp_path))
    (row,) = answer(
        call_here(
            ["sql", "FROM campaign_progress WHERE abandoned AND epochs > 0", "--json"],
            home=tmp_path,
        )
    )
    assert told["abandoned"] == [
        {
            "run": str(run.id),
            "state": "crashed",
            "epochs": 3,
            "best_validation_accuracy": row["best_val_accuracy"],
        }
    ]
    text = call_here(PLAYBOOK[:-1], home=tmp_path).stdout
    assert "cut off and made again" in text
    done = call_here(["replay", told["campaign"], "--execute", "--json"], home=tmp_path)
    assert (done.returncode, answer(done)["abandoned"]) == (0, told["abandoned"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [PLAYBOOK, ["run", *TASK], ["run", *TASK, "edits=restart"]])
def test_training_into_a_ledger_that_does_not_hold_is_rejected(
    home: Path, command: list[str]
) -> None:
    with closing(sqlite3.connect(home / "ledger" / "ledger.sqlite")) as database:
        triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE entries SET entry = CAST(entry || ' ' AS BLOB) WHERE idx = 1")
        database.commit()
        size = database.execute("SELECT count(*) FROM entries").fetchone()
        done = call_here(command, home=home)
        assert (done.returncode, "error" in done.stderr) == (1, True)
        assert database.execute("SELECT count(*) FROM entries").fetchone() == size


def _paint(folder: Path, *, seed: int) -> None:
    """Fill a folder with noise in two classes."""
    draw = random.Random(seed)
    for number in range(40):
        path = folder / ("a", "b")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (8, 8), draw.randbytes(192)).save(path)


@pytest.mark.slow
def test_data_that_has_changed_between_attempts_is_rejected(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _paint(data, seed=1)
    settings = [f"dataset=imagefolder:{data}", "epochs=2", "threads=1", "batch_size=8"]
    home = _train_only(tmp_path / "home", settings, attempts=2)
    command = ["run", *settings, "--policy", "playbook", "--attempts", "2", "--json"]
    few = call_here(command, home=home)
    assert (few.returncode, "the validation set has 4 examples, too few to rank" in few.stderr) == (
        2,
        True,
    )
    command += ["--limit", "min_validation_examples=4"]
    _paint(data, seed=2)
    jobs._prepare.cache_clear()  # each command is a process of its own
    size = len(answer(call_here(["log", "--json"], home=home)))
    done = call_here(command, home=home)
    assert (done.returncode, "the data has changed since run" in done.stderr) == (2, True)
    assert len(answer(call_here(["log", "--json"], home=home))) == size
    _paint(data, seed=1)
    jobs._prepare.cache_clear()
    assert len(answer(call_here(command, home=home))["attempts"]) == 2
