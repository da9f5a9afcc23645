"""`proctor line init sample --demo`: the story, and what it leaves behind for others to check."""

import json
import shlex
from pathlib import Path

import pytest
from frontdoor import call_here

from proctor.home import Home
from proctor.sample.demo import next_commands
from proctor.sample.init import WORK, git


@pytest.mark.slow  # each of its steps has quick tests of its own
def test_demo_tells_a_story_that_the_ledger_bears_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = call_here(["line", "init", "--demo", tmp_path / "sample", "--json"], home=home)
    assert done.returncode == 0, (done.stdout, done.stderr)
    told = json.loads(done.stdout)
    begun, worse, better, drift = told["steps"]
    assert all(step["as_it_should"] for step in told["steps"])
    assert "rejected; its tests pass; worse: " in worse["found"]
    assert "promoted; its tests pass; better: " in better["found"]
    assert "alarms: not promoted, worse" in drift["found"]
    listed = json.loads(call_here(["log", "--json"], home=home).stdout)
    names = {entry["index"]: entry["event"] for entry in listed}
    assert names[begun["entries"][0]] == "line.opened"
    for step in (worse, better):
        found = [names[index].removeprefix("proposal.") for index in step["entries"]]
        assert found[:3] == ["submitted", "branched", "tested"]
        assert set(found[3:-2]) == {"task_scored"}
        assert found[-2:] == ["evaluated", "concluded"]
    assert {names[index] for index in drift["entries"]} == {"drift.measured", "drift.alarmed"}
    assert call_here(["verify"], home=home).returncode == 0
    sample = tmp_path / "sample"
    assert git(sample, "status", "--porcelain") == ""
    assert git(sample, "rev-parse", "--abbrev-ref", "HEAD").strip() == WORK
    line = json.loads(call_here(["line", "show", "--repo", sample, "--json"], home=home).stdout)
    first, second = line["checkpoints"]
    assert (first["parent"], second["parent"]) == (None, first["checkpoint"])
    assert (second["proposals"], second["active"]) == ([better["id"]], True)


def test_demo_is_refused_where_the_folder_exists(tmp_path: Path) -> None:
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "mine.txt").touch()
    done = call_here(["line", "init", "--demo", tmp_path / "sample"], home=tmp_path / "home")
    assert (done.returncode, "already exists" in done.stderr) == (2, True), done.stderr


def test_commands_to_go_on_with_can_be_pasted_when_folders_have_spaces(tmp_path: Path) -> None:
    home, repo = tmp_path / "my home", tmp_path / "my sample"
    told = [shlex.split(each) for each in next_commands(Home(home), repo, proposal="7a")]
    assert told[0] == ["proctor", "line", "show", "--home", str(home), "--repo", str(repo)]
    assert [each[2:4] for each in told[1:-1]] == [["show", "7a"], ["show", "--list"]]
    assert told[-1] == ["proctor", "verify", "--home", str(home)]
