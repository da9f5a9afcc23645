"""A newcomer's first preference pairs: no repository, no line, no operator."""

import json
import shutil
from pathlib import Path

import pytest
from frontdoor import TINY, answer, call, with_settings

FAILING = ("lr=1e-5", "warm_up_epochs=0", "epochs=7")  # R1 fires in epochs 2 and 5
TASK = [
    *("lr=3.0", "warm_up_epochs=0", "epochs=6", "train_examples=1000"),
    *("channels=16", "width=16", "threads=1"),
]


def pairs(home: Path) -> list[tuple[str, str]]:
    """Export pairs; return the runs of each, the better one first."""
    out = home / "pairs.jsonl"
    done = call(["export", "data", "--kind", "preferences", "--out", out], home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line)["id"] for line in out.read_text().splitlines()]
    return [(better[:36], worse[:36]) for better, worse in (each.split(">") for each in found)]


@pytest.mark.slow  # trains; test_curate_cli.py has pairs of runs from one start
def test_first_runs_of_two_policies_give_a_pair(trained: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(trained, tmp_path / "home"))
    start = [*with_settings(TINY, *FAILING), "--policy", "nothing", "--json"]
    waited = answer(call(["run", *start], home=home))["runs"][0]["run_id"]
    done = call(["judge", "--no-execute"], home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    why = answer_of_excluded(home, waited)
    assert (why["let_in"], why["usable"], why["why_not"]) == (False, True, ["not exercised"])
    assert [worse for _, worse in pairs(home)] == [waited]


def answer_of_excluded(home: Path, run: str) -> dict[str, object]:
    done = call(["data", "why", run, "--json"], home=home)
    assert done.returncode == 1
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_first_campaigns_of_two_policies_give_pairs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    told = {
        policy: answer(
            call(["run", *TASK, "--attempts", "3", "--policy", policy, "--json"], home=home)
        )
        for policy in ("playbook", "nothing")
    }
    runs = {name: {each["run"] for each in one["attempts"]} for name, one in told.items()}
    found = pairs(home)
    assert found
    assert all(better in runs["playbook"] and worse in runs["nothing"] for better, worse in found)
