"""`python -m`: what is in the working folder is not imported."""

import os
import subprocess
import sys
from pathlib import Path

from monitor.code import HOUSE


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


def test_modules_in_the_working_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("argparse", "duckdb", "json", "msgspec", "typer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    done = call_module("proctor --help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # The control: Python itself imports them.
    assert call_module("json.tool", cwd=tmp_path).stderr == "imported\n"


def test_command_runs_in_the_checkout() -> None:
    done = call_module("proctor --version", cwd=HOUSE)
    assert done.stdout.startswith("proctor ")
