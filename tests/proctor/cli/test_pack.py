"""The pack: its commands are listed, and nothing that trains, judges or reads imports it."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer
from empty_tables import TAKEN, empty_tables
from frontdoor import TINY

from proctor.cli.lazy import leaves
from proctor.cli.main import COMMANDS, app

PACK = (
    "judge.bisection",
    "judge.drift",
    "judge.gauntlet",
    "judge.reference",
    "policies.proposing",
    "proctor.improvement",
    "proctor.sample",
)
# Each command in this one process, with the modules of the pack that are imported after it.
DRIVER = f"""
import json, os, sys
from proctor.cli.main import main
{TAKEN}
pack, commands = json.load(sys.stdin)
found, output = {{}}, os.dup(1)
os.dup2(2, 1)
for arguments in commands:
    sys.argv = ["proctor", *arguments]
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    loaded = [name for name in sys.modules if name.startswith(tuple(pack))]
    found[" ".join(arguments)] = [code, loaded]
os.dup2(output, 1)
json.dump(found, sys.stdout)
"""


def followed(home: Path, *commands: list[str]) -> dict[str, tuple[int, list[str]]]:
    """Run commands in a process of its own: the exit code of each, and what is loaded then."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps([PACK, commands]),
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            **empty_tables(),
            "PROCTOR_HOME": str(home),
            "PROCTOR_STATE": "off",
        },
        cwd=home.parent,
    )
    return {name: (code, loaded) for name, (code, loaded) in json.loads(done.stdout).items()}


@pytest.mark.slow
def test_nothing_that_trains_judges_or_reads_imports_the_pack(tmp_path: Path) -> None:
    found = followed(
        tmp_path / "home",
        ["--help"],
        ["run", *TINY],
        ["judge"],
        ["show"],
        ["sql", "SELECT * FROM checkpoint_standing"],
        ["verify"],
        ["log"],
        ["replay"],
        ["report", "latest", "--out", str(tmp_path / "report.html")],
        ["run", "--help"],
    )
    assert {name: code for name, (code, _) in found.items() if code} == {}
    assert {name: loaded for name, (_, loaded) in found.items() if loaded} == {}


def test_command_of_the_pack_imports_it(tmp_path: Path) -> None:
    ((code, loaded),) = followed(tmp_path / "home", ["line", "--help"]).values()
    assert code == 0
    assert "proctor.improvement.commands.line" in loaded


@pytest.mark.parametrize("name", ["line", "tune"])
def test_pack_brings_its_commands_by_entry_points(name: str) -> None:
    assert name not in COMMANDS
    assert name in entry_points(group="proctor.commands").names
    found = [path for path, _ in leaves(typer.main.get_command(app)) if path.split()[0] == name]
    assert len(found) == {"line": 11, "tune": 3}[name]
