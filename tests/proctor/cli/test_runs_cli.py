"""`proctor runs` lists the runs of a ledger, and `annotate` says what they are found by."""

import json
from pathlib import Path

import pytest
from frontdoor import call_here
from synthetic import SPEC, synthetic_run

from aggregates.registry import REGISTRY
from aggregates.rules import CALIBRATED
from aggregates.run import Run
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
        (["nobody", "--tag", "x"], "no run begins with 'nobody'; `proctor runs` lists them"),
        (["latest", "--tag", "x" * 101], "at most 100 words of 1 to 100 characters"),
    ],
)
def test_what_cannot_be_said_is_one_error(home: Path, arguments: list[str], said: str) -> None:
    done = call_here(["annotate", *arguments], home=home)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_run_is_named_by_what_it_is_called(home: Path) -> None:
    newest = json.loads(call_here(["runs", "--json"], home=home).stdout)[0]["run_id"]
    done = call_here(["show", "shapes", "--json"], home=home)
    assert json.loads(done.stdout)["summary"]["run_id"] == newest
    done = call_here(["annotate", "shapes", "--tag", "t", "--json"], home=home)
    assert json.loads(done.stdout) == {"run": newest, "tags": ["t"], "notes": ""}
