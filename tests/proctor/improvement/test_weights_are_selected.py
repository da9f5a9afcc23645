"""Weights of a policy are selected as code is: judged by reference tasks, promoted, rolled back."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frontdoor import TINY, call_here
from gauntlet_lines import RUNNER
from handmade_network import weights_for
from studies.reference.seeds import Planned, write_set

import proctor
from aggregates.rulebook import RULES
from judge.gauntlet.repository.git import Repository
from policies.deciding.network import Network
from proctor.sample.init import git

HOUSE = Path(proctor.__file__).parents[1]
PACKAGES = ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
WEIGHTS = "policies/deciding/network.safetensors"
LEARNED = (HOUSE / "docs/examples/agent/learned.safetensors").read_bytes()
ALL = ("easy", "medium", "hard")
SET = "judge/reference_tasks"
MANIFEST = f"""\
version = 1
line = "main"
reference_set = "{SET}"
[tiers]
0 = ["judge/**", "tests/**"]
1 = []
2 = ["{WEIGHTS}"]
[weights]
paths = ["{WEIGHTS}"]
max_bytes = 65_536
[controller]
paths = ["judge/**"]
[config]
paths = []
[tests]
command = ["{{python}}", "tests/run.py", "{{report}}"]
paths = ["tests/**"]
additions = []
seconds = 60
memory_bytes = 2_000_000_000
[benchmark]
command = ["{{python}}", "judge/reference_tasks/worker.py"]
seconds = 60
memory_bytes = 4_000_000_000
representative = []
[code]
imports = []
"""
TEST = """\
from policies.deciding.network import NetworkPolicy


def test_weights_can_be_read():
    assert NetworkPolicy().describe()["name"] == "network"
"""


@pytest.fixture(params=[(weights_for(("R1",)), ("easy", "medium"))])
def repo(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return this repository, cut down to what decides a run, with weights and network tasks."""
    weights, difficulties = request.param  # without any, real trainings are asked
    repo = tmp_path / "repo"
    for name in PACKAGES:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HOUSE / name, repo / name, ignore=without)
    (repo / SET).mkdir()
    shutil.copy(HOUSE / "docs/studies/reference_tasks/worker.py", repo / SET)
    drawn = [] if difficulties else [Planned("worth-network", "medium")]
    write_set(repo / SET, [Planned("network", each) for each in difficulties], drawn=drawn)
    (repo / "tests").mkdir()
    for path, text in {
        "judge/tiers.toml": MANIFEST,
        "tests/run.py": RUNNER,
        "tests/test_weights.py": TEST,
    }.items():
        (repo / path).write_text(text)
    (repo / WEIGHTS).write_bytes(weights)
    git(repo, "init", "--quiet", "--initial-branch=main")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "A policy to improve")
    git(repo, "switch", "--quiet", "--create", "work")
    return repo


def told(home: Path, *arguments: str | Path, codes: tuple[int, ...] = (0,)) -> Any:
    done = call_here((*arguments, "--json"), home=home)
    assert done.returncode in codes, (done.stdout, done.stderr)
    return json.loads(done.stdout.splitlines()[0])


def proposed(home: Path, repo: Path, data: bytes) -> dict[str, Any]:
    """Propose weights, as somebody who has trained them does, and return what came of them."""
    git(repo, "switch", "--quiet", "--detach", "main")
    (repo / WEIGHTS).write_bytes(data)
    change = repo.parent / "change.diff"
    change.write_text(git(repo, "diff", "--binary"))
    git(repo, "checkout", "--quiet", "--", WEIGHTS)
    why = ("--rationale", "Trained again.", "--repo", repo)
    (queued,) = told(home, "line", "propose", change, *why)
    assert queued["outcome"] is None, queued
    (done,) = told(home, "line", "run", queued["proposal"], "--repo", repo, codes=(0, 1))
    found: dict[str, Any] = done
    return found


def run_of_the_champion(home: Path, repo: Path) -> tuple[str, str | None]:
    """Train with the line's own code, and return the weights that decided and the checkpoint."""
    tree = repo.parent / f"tree-{len(list(repo.parent.iterdir()))}"
    Repository(repo).export(Repository(repo).head("main"), tree)
    done = subprocess.run(
        [sys.executable, "-m", "proctor", "run", "--home", home, "--policy", "network", *TINY],
        cwd=tree,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = "SELECT policy ->> 'weights' AS weights, checkpoint FROM run_starts ORDER BY idx DESC"
    row = told(home, "sql", asked)[0]
    return row["weights"], row["checkpoint"]


@pytest.mark.slow
def test_weights_are_rejected_promoted_rolled_back_and_decide_in_a_run(
    repo: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    first, worse, better = (weights_for(rules) for rules in (("R1",), (), RULES))
    found = proposed(home, repo, worse)
    assert [found[each] for each in ("outcome", "tests_passed")] == ["rejected", True]
    assert found["regressions"] == ["network-easy"]
    found = proposed(home, repo, better)
    assert (found["outcome"], found["improvements"]) == ("promoted", ["network-medium"])
    repository = Repository(repo)
    assert repository.read(repository.head("main"), WEIGHTS) == better
    decided = run_of_the_champion(home, repo)
    assert decided == (Network.read(better).sha256, found["checkpoint"])
    told(home, "line", "rollback", "active", "--reason", "Too eager.", "--repo", repo)
    assert repository.read(repository.head("main"), WEIGHTS) == first
    weights, checkpoint = run_of_the_champion(home, repo)
    assert weights == Network.read(first).sha256
    assert checkpoint not in (None, found["checkpoint"])


@pytest.mark.slow
@pytest.mark.parametrize("repo", [((HOUSE / WEIGHTS).read_bytes(), ())], indirect=True)
def test_learned_agent_is_not_shown_to_be_better_than_the_shipped_network(
    repo: Path, tmp_path: Path
) -> None:
    found = proposed(tmp_path / "home", repo, LEARNED)
    assert [found[each] for each in ("outcome", "tests_passed")] == ["rejected", True]


@pytest.mark.slow
@pytest.mark.parametrize("repo", [(weights_for(()), ALL)], indirect=True)
def test_learned_agent_is_promoted_over_one_that_only_waits_and_rolled_back(
    repo: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    found = proposed(home, repo, LEARNED)
    assert found["outcome"] == "promoted", found
    told(home, "line", "rollback", "active", "--reason", "Tried once.", "--repo", repo)
    repository = Repository(repo)
    assert repository.read(repository.head("main"), WEIGHTS) == weights_for(())
