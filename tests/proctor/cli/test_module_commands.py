"""Modules that are run with `python -m`: --help explains, and a wrong argument does nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.code import HOUSE

MODULES = (
    "judge.reference.seeds",
    "projections.cookbook",
    "projections.tables_page",
    "proctor.cli.page",
    "studies",
    "studies diagnostics",
    "studies faults",
    "studies images",
    "studies playbook",
    "studies thresholds",
)


def call_module(command: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.sampled(4)
def test_help_is_printed_and_nothing_is_written(module: str, tmp_path: Path) -> None:
    (tmp_path / "docs/reference").mkdir(parents=True)
    done = call_module(f"{module} --help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m {module} ")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


@pytest.mark.parametrize("command", ["judge.reference.seeds", "studies mistake"])
def test_wrong_arguments_end_with_the_usage(command: str, tmp_path: Path) -> None:
    done = call_module(command, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert "error: " in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["proctor", "studies"])
def test_modules_in_the_working_folder_are_not_imported(module: str, tmp_path: Path) -> None:
    for name in ("argparse", "duckdb", "json", "msgspec", "typer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    done = call_module(f"{module} --help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # The control: Python itself imports them.
    assert call_module("json.tool", cwd=tmp_path).stderr == "imported\n"


def test_command_runs_in_the_checkout() -> None:
    done = call_module("proctor --version", cwd=HOUSE)
    assert done.stdout.startswith("proctor ")
