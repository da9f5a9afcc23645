"""`proctor runs` lists the runs of a ledger, and `annotate` says what they are found by."""

import json
from pathlib import Path

import pytest
from frontdoor import call_here
from synthetic import SPEC, synthetic_run

from aggregates.registry import REGISTRY
from aggregates.rules import CALIBRATED
from aggregates.run import END_REASONS, Run
from ledger.application import LedgerApplication


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with LedgerApplication.open(tmp_path / "home" / "ledger", REGISTRY) as log:
        synthetic_run(log, epochs=2, end="crashed")
        synthetic_run(log, epochs=3, policy="mine")
        synthetic_run(log, epochs=1, end=None)
    return tmp_path / "home"


def listed(home: Path, *arguments: str) -> list[tuple[str, str | None]]:
    done = call_here(["runs", "--json", *arguments], home=home)
    assert done.returncode == 0, done.stderr
    return [(row["state"], row["policy"]) for row in json.loads(done.stdout)]


def test_runs_are_listed_newest_first_and_filtered(home: Path) -> None:
    every = [("running", "synthetic"), ("completed", "mine"), ("crashed", "synthetic")]
    assert listed(home) == every
    assert listed(home, "--last", "1") == every[:1]
    assert listed(home, "--policy", "mine") == every[1:2]
    assert listed(home, "--state", "crashed", "--name", "shapes") == every[2:]
    assert listed(home, "--name", "nothing") == listed(home, "--tag", "nothing") == []
    told = call_here(["runs"], home=home).stdout.splitlines()
    assert told[0].split()[:4] == ["run", "name", "state", "started"]
    assert len(told) == 4


def test_runs_of_one_name_are_told_apart_by_the_settings_that_differ(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        runs = [synthetic_run(log, epochs=1, seed=seed) for seed in (0, 1, 1)]
    done = call_here(["runs", "--last", "2"], home=tmp_path)
    assert "settings" not in done.stdout  # they are the same
    done = call_here(["runs"], home=tmp_path)
    told = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines()}
    assert told == {"run": "settings"} | {
        str(run.id)[:8]: f"seed={seed}" for run, seed in zip(runs, (0, 1, 1), strict=True)
    }
    [row] = json.loads(call_here(["runs", "--json", "--last", "1"], home=tmp_path).stdout)
    assert (row["settings"]["seed"], row["settings"]["dataset"]) == (1, "shapes")


def test_state_that_no_run_can_have_is_one_error(home: Path) -> None:
    done = call_here(["runs", "--state", "done"], home=home)
    assert (done.returncode, done.stdout) == (2, "")
    said = " ".join(done.stderr.split())
    assert all(each in said for each in ("--state", "done", "running", *END_REASONS))


def test_run_without_policy_and_name_is_listed_and_matches_no_filter(home: Path) -> None:
    with LedgerApplication.open(home / "ledger", REGISTRY) as log:
        rules, spec = CALIBRATED.to_dict(), SPEC.to_dict()
        log.save(Run.start(config={}, rules=rules, spec=spec, data={}, environment={}, policy={}))
    assert listed(home, "--last", "1") == [("running", None)]
    assert ("running", None) not in listed(home, "--policy", "mine")
    assert ("running", None) not in listed(home, "--name", "shapes")


def test_run_is_found_by_its_tag_and_keeps_what_was_said_before(home: Path) -> None:
    for arguments in (["--tag", "slow", "--tag", "b"], ["--notes", "why"], ["--remove", "b"]):
        done = call_here(["annotate", "latest", *arguments], home=home)
        assert done.returncode == 0, done.stderr
    assert listed(home, "--tag", "slow") == [("running", "synthetic")]
    assert listed(home, "--tag", "b") == []
    [row] = json.loads(call_here(["runs", "--tag", "slow", "--json"], home=home).stdout)
    assert (row["tags"], row["notes"]) == (["slow"], "why")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["latest"], "give --tag TAG, --remove TAG or --notes TEXT"),
        (["nobody", "--tag", "x"], "no run has the id or name 'nobody'; `proctor runs` lists"),
        (["shape", "--tag", "x"], "no run has the id or name 'shape'; did you mean shapes? "),
        (["latest", "--tag", "x" * 101], "at most 100 words of 1 to 100 characters"),
    ],
)
def test_what_cannot_be_said_is_one_error(home: Path, arguments: list[str], said: str) -> None:
    done = call_here(["annotate", *arguments], home=home)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("command", ["show", "report", "replay", "judge"])
def test_mistyped_name_of_a_run_is_told_the_closest(home: Path, command: str) -> None:
    state = home / "state"
    for _ in range(2):  # also where the tables are remembered
        out: list[str | Path] = ["--out", home / "page.html"] if command == "report" else []
        done = call_here([command, "shapse", *out], home=home, state=state)
        told = " ".join(done.stderr.split())
        assert (done.returncode, done.stdout) == (2, "")
        assert "has the id or name 'shapse'; did you mean shapes? `proctor runs`" in told, told
        call_here(["show"], home=home, state=state)


def test_run_is_named_by_what_it_is_called(home: Path) -> None:
    newest = json.loads(call_here(["runs", "--json"], home=home).stdout)[0]["run_id"]
    done = call_here(["show", "shapes", "--json"], home=home)
    assert json.loads(done.stdout)["summary"]["run_id"] == newest
    done = call_here(["annotate", "shapes", "--tag", "t", "--json"], home=home)
    assert json.loads(done.stdout) == {"run": newest, "tags": ["t"], "notes": ""}
