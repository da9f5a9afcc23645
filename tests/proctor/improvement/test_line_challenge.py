"""The adversary finds what a head decides wrongly, and keeps it outside of the reference set."""

import json
import shutil
from pathlib import Path

import pytest
from frontdoor import call
from studies.reference.scorers import SCORERS

from judge.gauntlet.tasks import reference_set
from proctor.sample.init import git

ROOT = Path(__file__).parents[3]
PLAYBOOK = "policies/playbook.py"


def own_line(folder: Path, *, playbook: str | None = None) -> Path:
    """Make a repository of what answers this one's tasks, with another playbook if one is given."""
    packages = ("aggregates", "judge", "ledger", "monitor", "policies")
    for package in (*packages, "docs/studies/reference_tasks"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=leave)
    if playbook is not None:
        (folder / PLAYBOOK).write_text(playbook, encoding="utf-8")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "What is measured")
    git(folder, "switch", "--quiet", "--detach")
    return folder


@pytest.mark.slow
def test_head_that_never_acts_fails_near_the_bounds_and_the_failures_are_kept(
    tmp_path: Path,
) -> None:
    text = (ROOT / PLAYBOOK).read_text(encoding="utf-8")
    idle = text + (
        "\n\nfrom policies.deciding.nothing import NothingPolicy\n\n"
        "PlaybookPolicy = NothingPolicy\n"
    )
    repo = own_line(tmp_path / "repo", playbook=idle)
    home = tmp_path / "home"
    command: list[str | Path] = [
        "line",
        "run",
        "--challenge",
        "4",
        "--repo",
        repo,
        "--seed",
        "1",
        "--json",
    ]
    done = call(command, home=home)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["tried"] == 4
    assert len(told["kept"]) >= 3, "something is due in each, and in few it is right to wait"
    kept = reference_set.load(Path(told["folder"]), scorers=SCORERS)
    assert {task.task_id for task in kept.tasks} == set(told["kept"])
    assert {task.entry.added_by for task in kept.tasks} == {"adversary"}
    assert json.loads(call(command, home=home).stdout)["kept"] == told["kept"]
    again = reference_set.load(Path(told["folder"]), scorers=SCORERS)
    assert len(again.tasks) == len(kept.tasks), "none is kept twice"
    assert git(repo, "status", "--porcelain") == "", "the set itself is as it was"
