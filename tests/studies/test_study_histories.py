"""The histories of public packages: what is pinned, what is proposed, and one through the door."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from environments import make_environment
from studies.evolution.beginning import git
from studies.histories.run import (
    KINDS,
    PACKAGES,
    History,
    code_of,
    plans,
    source_of,
    spread,
    suite_of,
    table,
)

CODE = "def roman(n):\n    return 'I' * n\n"
FIXED = "def roman(n):\n    return 'IV' if n == 4 else 'I' * n\n"
TEST = "from roman import roman\n\n\ndef test_{n}():\n    assert roman({n}) == {text!r}\n"
ONE, FOUR = TEST.format(n=1, text="I"), TEST.format(n=4, text="IV").partition("def ")[2]


@pytest.mark.parametrize("name", PACKAGES)
def test_pinned_facts_are_well_formed(name: str) -> None:
    package = PACKAGES[name]
    assert re.fullmatch(r"https://github\.com/[\w-]+/[\w.-]+", package["address"])
    commits = [package[kind.commit] for kind in KINDS.values() if kind.commit in package]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits)
    assert {"fix", "refactoring", "harm"} <= set(package)
    assert set(package.get("unseen", ())) <= set(KINDS)
    for key in ("tasks", *(key for key in package if key.endswith("_tasks"))):
        assert key == "tasks" or key.removesuffix("_tasks") in KINDS
        for function, arguments, result in package[key]:
            assert re.fullmatch(r"[\w.]+:\w+", function)
            told = [json.dumps(spread(each)) for each in (*arguments, result)]
            assert all(len(each) < 128 * 2**10 for each in told), "the longest argument of Linux"


def test_plans_are_of_one_package_or_one_change_on_demand() -> None:
    assert len(plans()) == len(set(plans()))
    assert {name for name, _ in plans()} == set(PACKAGES)
    assert ("inflection", "slower") not in plans(), "it never got faster"
    assert [kind for _, kind in plans("mistune")] == list(KINDS)
    assert plans("mistune/flaky test") == [("mistune", "flaky test")]
    assert not plans("mist")


def test_text_is_repeated_with_its_number() -> None:
    assert spread([{"text": "a{n} ", "times": 3}, 1]) == ["a0 a1 a2 ", 1]


def test_code_and_tests_are_told_apart() -> None:
    paths = ["a/x.py", "a/x.txt", "tests/test_x.py", "tests/conftest.py", "tests/sub/test_y.py"]
    package = {"code": "a/", "tests": "tests/"}
    assert (code_of(package, paths), suite_of(package, paths)) == (paths[:1], paths[2:3])
    assert suite_of({"tests": ""}, ["test_a.py", *paths]) == ["test_a.py"]


def test_package_comes_from_its_address_or_a_clone() -> None:
    address = "https://github.com/owner/name.py"
    assert source_of(address, None) == address
    assert source_of(address, Path("/clones")) == "/clones/owner+name.py"


def test_wrong_outcome_is_bold() -> None:
    told = {"outcome": "promoted", "right": False, "seconds": 9.6, "answers": 72}
    rows = list(table({("a", "slower"): told, ("a", "fix"): {**told, "right": True}}))
    assert rows[2:] == ["| a | promoted, 10 s, 72 | - | **promoted**, 10 s, 72 | - | - | - |"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the facts of a package with one fix, which changed its test file."""
    repo = tmp_path_factory.mktemp("package")
    git(repo, "init", "--quiet")
    facts: dict[str, Any] = {"address": str(repo), "code": "roman.py", "tests": ""}
    for code, test in ((CODE, ONE), (FIXED, f"{ONE}\n\ndef {FOUR}")):
        (repo / "roman.py").write_text(code)
        (repo / "test_roman.py").write_text(test)
        (repo / "NEWS").write_text(test)
        git(repo, "add", "--all")
        git(repo, "commit", "--quiet", "--message", "A commit")
    commit = git(repo, "rev-parse", "HEAD")
    facts |= {"fix": commit, "harm": commit, "unseen": ["harm"]}
    tasks = {"tasks": [["roman:roman", [2], "II"]], "harm_tasks": [["roman:roman", [4], "IV"]]}
    return {**facts, **tasks}


@pytest.mark.parametrize(
    ("kind", "outcome"), [("fix", "promoted"), ("harm", "rejected"), ("flaky suite", "promoted")]
)
@pytest.mark.slow
def test_history_of_a_small_package_is_judged_rightly(
    tmp_path: Path, package: dict[str, Any], kind: str, outcome: str
) -> None:
    make_environment(tmp_path / "env")
    history = History(tmp_path / "change", package, kind)
    history.folder.mkdir()
    history.prepare(package["address"])
    found = history.judge()
    assert (found["outcome"], found["right"]) == (outcome, True), found
    diff = (history.folder / "change.diff").read_text()
    changed = re.findall(r"^\+\+\+ b/(.*)", diff, re.MULTILINE)
    assert changed == (["roman.py"] if kind == "harm" else ["roman.py", "test_after_roman.py"])
    assert found["answers"] >= 2
    assert not (history.front.repo / "test_after_roman.py").exists()
