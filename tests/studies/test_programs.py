"""`python docs/studies`: --help explains, and a wrong argument does nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from studies.__main__ import PROGRAMS, STUDIES

FOLDER = Path(__file__).parents[2] / "docs" / "studies"


def program(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, FOLDER, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", ["", *STUDIES, *PROGRAMS])
@pytest.mark.sampled(5)
def test_help_is_printed_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    done = program(*name.split(), "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.lower().startswith(f"usage: python docs/studies {name}".rstrip())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["mistake"], ["figures"], ["tasks"], ["playbook", "--first-seed", "-1"]]
)
def test_wrong_arguments_end_with_two(words: list[str], tmp_path: Path) -> None:
    done = program(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
