"""The choice of tests in this repository: chosen tests find faults, the others see none."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gauntlet_scene import OWN, own_paths

from judge.gauntlet.repository.manifest import PATH, parse_manifest
from judge.gauntlet.testing.choice import Choice, choose

# What is appended to a module hides what stands above.
FAULTS = {
    "policies/offers.py": "def offers(rule, seen):\n    return {}\n",
    "policies/playbook.py": "PlaybookPolicy.decide = lambda self, observation: []\n",
}
REFERENCE = "tests/studies/test_reference_tasks.py"
BROKEN = "raise RuntimeError('whoever imports this notices it')\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "tree"
    for path in own_paths():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(OWN / path, folder / path)
    for command in (["init", "--quiet"], ["add", "--all"]):  # tests ask git for the files
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def chosen_for(path: str) -> Choice:
    manifest = parse_manifest((OWN / PATH).read_bytes())
    files = {each: (OWN / each).read_bytes() for each in own_paths() if each.endswith(".py")}
    return choose(files, {path}, paths=own_paths(), is_test=manifest.is_test)


@contextmanager
def appended(file: Path, text: str) -> Iterator[None]:
    before = file.read_text(encoding="utf-8")
    file.write_text(f"{before}\n\n{text}", encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(before, encoding="utf-8")


def run_pytest(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTEST_ADDOPTS": ""},  # its own options only
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", FAULTS)
def test_fault_is_found_by_the_tests_that_are_chosen(tree: Path, path: str) -> None:
    ignored = [f"--ignore={each}" for each in chosen_for(path).left_out]
    with appended(tree / path, FAULTS[path]):
        done = run_pytest(tree, "-x", *ignored, "tests/policies", REFERENCE)
    assert done.returncode == 1, done.stdout[-2_000:]


@pytest.mark.slow
def test_tests_that_are_left_out_do_not_notice_a_module_that_is_broken(tree: Path) -> None:
    path = "policies/answers.py"
    left_out = chosen_for(path).left_out
    assert len(left_out) > 20
    with appended(tree / path, BROKEN):
        done = run_pytest(tree, "-n", "2", "--dist", "loadfile", *left_out)
    assert done.returncode == 0, done.stdout[-4_000:]
