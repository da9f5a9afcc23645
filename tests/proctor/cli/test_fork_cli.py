"""Runs that go on from a recorded epoch: forked, judged, measured; and what is refused."""

import html
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from frontdoor import TINY, call, call_here, with_settings
from live_pages import served_home

from ledger.blobs import BlobStore
from ledger.paths import LedgerPaths
from proctor.home import Home

# Rules that keep no states to go back to, so that snapshots shorten what is trained again.
SETTINGS = with_settings([*TINY, "lr=1e-5", "warm_up_epochs=0", "profile=calibrated"], "epochs=4")


def answer(*arguments: str | Path, home: Path, found: bool = False) -> Any:
    done = call_here([*arguments, "--json"], home=home)
    assert done.returncode == found, done.stderr
    return json.loads(done.stdout)


def refusal(*arguments: str | Path, home: Path) -> str:
    before = call_here(["log", "--json"], home=home).stdout
    done = call_here(arguments, home=home)
    assert done.returncode == 2, done.stdout
    assert call_here(["log", "--json"], home=home).stdout == before  # nothing is recorded
    return done.stderr.replace("\n", " ")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forks")
    answer("run", *SETTINGS, "snapshots=at:2", home=folder)
    return folder


@pytest.fixture(scope="module")
def forks(home: Path) -> Any:
    return answer("fork", "--at", "2", "--policy", "recorded", "--policy", "nothing", home=home)


def test_fork_goes_on_from_a_snapshot_and_shares_what_was_before(home: Path, forks: Any) -> None:
    assert (forks["since"], forks["epochs"]) == (2, 0)
    again, other = forks["forks"]
    parent = answer("replay", forks["parent"], home=home)
    repeated = answer("replay", again["run"], home=home)
    names = [each["event"] for each in repeated]
    assert names.pop(1) == "run.forked"
    assert names == [each["event"] for each in parent]
    assert other["end_reason"] == "completed"
    [row] = answer("sql", "SELECT epoch, size > 0 AS stored FROM snapshots LIMIT 1", home=home)
    assert row == {"epoch": 2, "stored": True}


@pytest.mark.slow
def test_judge_trains_what_a_fork_shares_only_once(home: Path, forks: Any, tmp_path: Path) -> None:
    first, second = (each["run"] for each in forks["forks"])
    executed = []
    for run in (first, second):
        done = call(["judge", run, "--json"], home=home, state=tmp_path)
        report = json.loads(done.stdout)
        assert not report["hard_fail"]
        (probe,) = (step for step in report["steps"] if step["name"] == "probe")
        executed.append(probe["evidence"]["executed"])
    assert "shared" not in executed[0]
    assert executed[1]["shared"] == 3
    assert executed[1]["done"]


def test_all_that_a_credit_rests_on_is_judged_by_one_command_that_continues(
    home: Path, forks: Any, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    credit = answer("fork", "--decision", "1", "--against", "nothing", "--orders", "2", home=copy)
    rests_on = {credit["run"], *(each["run"] for each in credit["forks"])}
    answer("judge", credit["run"], "--no-execute", home=copy)
    other = max(rests_on - {credit["run"]})
    lost = Home(copy).submission(other) / "weights.safetensors"
    weights = lost.read_bytes()
    lost.write_bytes(b"")
    named = ["judge", "--all", credit["credit"][:9], "--no-execute"]
    failing = answer(*named, home=copy, found=True)  # as all others are judged all the same
    assert (failing["judged"], len(failing["verdicts"]), [*failing["changed"]]) == (3, 4, [other])
    again = call_here(named, home=copy)  # what was given other files has no verdict
    assert (again.returncode, again.stderr) == (1, f"run 1 of 1: {other}\n")
    assert f"run {other} cannot be judged (files changed): weights.safetensors" in again.stdout
    assert "1 run cannot be judged: put the files back" in again.stdout
    assert "a gate failed" not in again.stdout
    lost.write_bytes(weights)
    told = answer(*named, home=copy)
    assert (told["judged"], told["changed"]) == (1, {})
    assert {each["run_id"] for each in told["verdicts"]} == rests_on
    assert not any(each["hard_fail"] for each in told["verdicts"])
    everything = answer("judge", "--all", "--no-execute", home=copy)
    assert everything["judged"] == len(forks["forks"])  # that rest on nothing
    assert "--all excludes" in refusal("judge", "--all", "--whole", home=copy)


def test_what_a_fork_repeats_is_no_training_data_of_its_own(home: Path, forks: Any) -> None:
    found = answer(
        "sql",
        "SELECT COUNT(*) AS copies FROM decision_authors AS a JOIN forks AS f USING (run_id) "
        "WHERE a.epoch < f.epoch",
        home=home,
    )
    assert found == [{"copies": 0}]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["fork"], "give --at EPOCH to go on from there, or --decision NUMBER"),
        (["fork", "--decision", "1", "--at", "1"], "--at: not with --decision"),
        (["fork", "--at", "1", "--against", "nothing"], "--against: only with --decision"),
        (["fork", "--decision", "one"], "give the number of a decision, or `all`"),
        (["fork", "--at", "4"], "has the epochs 0 to 3, not epoch 4"),
        (["fork", "--at", "1", "--policy", "nobody"], "unknown policy 'nobody'"),
        (["fork", "--at", "1", "--policy", "nothing", "--set", "lr=9"], "leave out --set"),
        (["fork", "--at", "2", "--decide", "other.json"], "R7 did not fire in epoch 2"),
        (
            ["fork", "--at", "1", "--decide", "other.json"],
            "no rule that needs an answer fired in epoch 1, so the fork would not ask for a "
            "decision; one fired in the epochs 2, 3: give one of them as --at",
        ),
        (["fork", "--at", "1", "--decide", "odd.json"], "odd.json"),
        (["fork", "--at", "9", "--decide", "other.json"], "the epochs 0 to 3, not epoch 9"),
        (["fork", "--at", "1", "--decide", "none.json"], "none.json: no decision"),
        (["fork", "--at", "1", "--decide", "twice.json"], "the same decision twice"),
        (["fork", "--decision", "99"], "has no decision 99"),
        (["fork", "--decision", "all", "--then", "exec:true"], "choose a policy that asks nobody"),
        (["fork", "--decision", "1", "--against", "x"], "'x' is no alternative to decision 1"),
        (["replay", "--at", "9"], "has the epochs 0 to 3, not epoch 9"),
        (["replay", "--at", "1", "--out", "nowhere/state"], "there is no folder nowhere"),
        (["replay", "--at", "1", "--execute"], "exclude each other"),
        (["replay", "--from-start"], "belong to --at"),
    ],
)
def test_what_cannot_be_forked_is_refused_with_the_reason(
    home: Path, arguments: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    decision = {
        "event_type": "hyperparameter_change",
        "cites": ["R7"],
        "direction": "decrease_lr",
        "params": {"lr": 1e-6},
        "justification": "it explodes",
    }
    Path("other.json").write_text(json.dumps(decision))
    Path("odd.json").write_text("[1]")
    Path("none.json").write_text("[]")
    Path("twice.json").write_text(json.dumps([decision, decision]))
    assert why in refusal(*arguments, home=home)


@pytest.mark.slow
def test_changed_snapshot_is_refused_and_can_be_gone_without(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    [row] = answer("sql", "SELECT sha256 FROM snapshots LIMIT 1", home=copy)
    path = BlobStore(LedgerPaths(copy / "ledger").blobs).path(row["sha256"])
    for change in (lambda: path.write_bytes(b"other"), path.unlink):
        change()
        assert "--from-start" in refusal("replay", "--at", "2", home=copy)
    found = answer("replay", "--at", "2", "--from-start", home=copy)
    assert (found["sha256"], found["epochs"]) == (row["sha256"], 3)


def test_changed_weights_are_refused_before_anything_is_trained(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    [row] = answer("sql", "SELECT sha256 FROM weights ORDER BY epoch LIMIT 1", home=copy)
    BlobStore(LedgerPaths(copy / "ledger").blobs).path(row["sha256"]).write_bytes(b"other")
    why = refusal("fork", "--at", "1", "--policy", "nothing", home=copy)
    assert "the weights of epoch 0, which a fork starts with, cannot be used" in why


def test_latest_is_no_fork_and_show_names_forks_and_parent(home: Path, forks: Any) -> None:
    made = [each["run"] for each in forks["forks"]]
    parent = answer("show", home=home)
    assert parent["summary"]["run_id"] == forks["parent"]
    assert parent["forks"] == [{"run": run, "epoch": 2} for run in made]
    assert answer("data", "why", "latest", home=home, found=True)["run_id"] == forks["parent"]
    assert answer("replay", "--event", "1", home=home)["run"] == forks["parent"]
    fork = answer("show", made[0], home=home)
    origin = {"run": forks["parent"], "epoch": 2, "resumed": False}
    assert (fork["fork_of"], fork["forks"]) == (origin, [])
    told = call_here(["show"], home=home).stdout
    assert f"forks: {made[0]} (epoch 2), {made[1]} (epoch 2)" in told
    assert f"fork of run {forks['parent']}" in call_here(["show", made[0]], home=home).stdout


@pytest.mark.slow
def test_credit_is_measured_in_pairs_and_shown_again(home: Path) -> None:
    ask = ("fork", "--decision", "1", "--against", "nothing", "--orders", "2")
    found = answer(*ask, home=home)
    assert len(found["forks"]) == 4
    [row] = found["decisions"]
    assert (row["arm"], row["pairs"], row["other"]["direction"]) == ("nothing", 2, "defer")
    pairs = {(each["arm"], each["seed"]): each["val_loss"] for each in found["forks"]}
    differences = [pairs["nothing", seed] - pairs["chosen", seed] for seed in (0, 1)]
    assert row["loss"]["difference"] == pytest.approx(sum(differences) / 2)
    assert answer(*ask, home=home) == found
    assert "the policy `nothing` decides after the decision" in call_here(ask, home=home).stdout
    shown = answer("sql", "SELECT arm, pairs, better FROM decision_credit", home=home)
    assert shown == [{"arm": "nothing", "pairs": 2, "better": row["better"]}]


@pytest.mark.slow
def test_all_decisions_are_measured_by_one_command_and_shown_everywhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (run,) = (row["run_id"] for row in answer("run", *SETTINGS, home=home)["runs"])
    command = f"`proctor fork {run[:8]} --decision all --against nothing --against random`"
    assert command in call_here(["show"], home=home).stdout.replace("\n", " ")
    assert answer("show", home=home)["worth"] == []
    against = ("--against", "nothing", "--against", "random")
    found = answer("fork", run, "--decision", "all", *against, "--orders", "2", home=home)
    carried_out = [
        row["number"]
        for row in answer("show", home=home)["decisions"]
        if row["outcome"] == "applied"
    ]
    rows = found["decisions"]
    wanted = [(number, arm) for number in carried_out for arm in ("nothing", "random")]
    assert [(row["decision"], row["arm"]) for row in rows] == wanted
    assert all(row["other"]["direction"] != "defer" for row in rows if row["arm"] == "random")
    worth = answer("show", home=home)["worth"]
    for row, shown in zip(rows, worth, strict=True):
        for name in ("decision", "epoch", "arm", "loss", "accuracy", "better"):
            assert shown[name] == row[name]
        assert (shown["orders"], shown["level"], shown["other_code"]) == (2, 0.95, False)
    told = call_here(["show"], home=home).stdout
    assert "what decisions were worth" in told
    assert "not measured" not in told
    gains = f"{rows[0]['loss']['difference']:+.4f}"
    page = tmp_path / "run.html"
    assert call_here(["report", "--out", page], home=home).returncode == 0
    with served_home(home) as served:
        live = served.client.get(f"{served.base}/runs/{run}").text
    for text in (told, page.read_text(), live):
        assert gains in html.unescape(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["edits=restart"], "restarts for structural changes"),
        (["epochs=1"], "no decision that was carried out"),
    ],
)
def test_run_that_has_nothing_to_measure_is_refused(
    settings: list[str], why: str, tmp_path: Path
) -> None:
    answer("run", *with_settings(SETTINGS, *settings), home=tmp_path)
    command = (
        ("fork", "--at", "1")
        if "edits=restart" in settings
        else (
            "fork",
            "--decision",
            "all",
        )
    )
    assert why in refusal(*command, home=tmp_path)
