"""Every command prints its result in one way: as text, or with --json as one JSON document."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from json_answers import check_json
from typer.testing import CliRunner

from proctor.cli.lazy import leaves
from proctor.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/calibrated_1"
READING = (  # commands that need nothing but a ledger with a run
    "show",
    "replay",
    "replay --event 2",
    "log",
    "log --entry 0",
    "verify",
    "export proof 0",
    "keys list",
    "data list",
    "data why latest",
    "data why",
    "export data --kind sft",
    "line show --list checkpoints",
    "export bundle --out BUNDLE",
    "keys new operator KEY",
    "sql 'SELECT 1'",
    "sql --out COPY.duckdb",
)


def leaf_commands() -> dict[str, Any]:
    """Return every command that is no group."""
    return dict(leaves(typer.main.get_command(app)))


def test_every_command_has_json_and_a_schema() -> None:
    commands = leaf_commands()
    without = [
        name
        for name, command in commands.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert without == []
    assert [name for name, command in commands.items() if not command.callback.prints] == []


@pytest.mark.sampled(3)  # frontdoor.py checks every answer with --json
@pytest.mark.parametrize("command", READING)
def test_json_is_one_document(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", "home")
    monkeypatch.setenv("PROCTOR_STATE", "off")
    result = CliRunner().invoke(app, [*shlex.split(command), "--json"])
    assert result.exit_code in (0, 1), result.output
    assert len(result.stdout.splitlines()) == 1
    check_json(shlex.split(command), result.stdout)
