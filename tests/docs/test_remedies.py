"""Commands that messages name: each is one of ours, and works as it is pasted."""

import ast
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from frontdoor import call_here

from aggregates.decisions import parse_decision
from proctor.cli.fork_jobs import EXAMPLE, read_decisions
from proctor.cli.lazy import load
from proctor.cli.main import app
from proctor.cli.remedies import completed, pasteable
from proctor.errors import ProctorError

HOUSE = Path(__file__).parents[2]
PACKAGES = ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
COMMAND = re.compile(r"`(proctor [^`]+)`")
VALUES = {"verdict": "approve", "VERDICT": "approve", "first": "7"}  # others are words


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module but its docstrings; what is put in has the name of a value."""
    passed = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= set(node.values)
            yield "".join(
                str(part.value)
                if isinstance(part, ast.Constant)
                else VALUES.get(ast.unparse(part.value), "WORD")
                for part in node.values
                if isinstance(part, ast.Constant | ast.FormattedValue)
            )
        elif isinstance(node, ast.Constant) and node not in passed:
            yield str(node.value)


def named() -> list[str]:
    return sorted(
        {
            found
            for package in PACKAGES
            for file in (HOUSE / package).rglob("*.py")
            if "`proctor " in (source := file.read_text())
            for text in texts(ast.parse(source))
            for found in COMMAND.findall(text)
            if "|" not in found
        }
    )


def parse(line: str) -> None:
    """Parse a command line as the real one does; raises UsageError."""
    words = [VALUES.get(word, word) for word in shlex.split(line)[1:]]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, line
        command = load(command.commands[words.pop(0)])
    if not hasattr(command, "commands"):
        command.make_context("proctor", words)


def test_every_command_that_a_message_names_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    running = ["proctor", "line", "show", "--repo", "a folder", "--home=b", "--line", "main"]
    monkeypatch.setattr(sys, "argv", running)
    found = named()
    assert len(found) > 40
    for line in found:
        parse(completed(line))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("see `proctor line run`", "see `proctor line run --repo 'a b' --home c`"),
        (
            "see `proctor line task admit x`",
            "see `proctor line task admit x --key KEY --repo 'a b' --home c`",
        ),
        ("`proctor line run --repo d`", "`proctor line run --repo d --home c`"),
        ("`proctor verify` or `ls`", "`proctor verify --home c` or `ls`"),
        ("`proctor log --entry 7`", "`proctor log --entry 7 --home c`"),
        ("`proctor keys list --json-schema`", "`proctor keys list --json-schema --home c`"),
        ("`proctor line`, `proctor no'thing`", "`proctor line`, `proctor no'thing`"),
    ],
)
def test_command_gets_what_it_lacks(text: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["proctor", "line", "show", "--repo", "a b", "--home=c", "7"])
    assert pasteable(text) == told


def test_refusal_names_the_same_home(tmp_path: Path) -> None:
    place = tmp_path / "no ledger"
    done = call_here(["show", "--home", place, "--json"], home=tmp_path)
    assert f"`proctor run --home '{place}'`" in done.stderr
    assert f"`proctor run --home '{place}'`" in done.stdout


def test_file_of_decisions_that_is_not_json_is_told_what_to_hold(tmp_path: Path) -> None:
    file = tmp_path / "decision.json"
    file.write_text("stop")
    parent: Any = None  # of which nothing is asked before
    with pytest.raises(ProctorError, match=re.escape(EXAMPLE)):
        read_decisions(file, parent, 2)
    assert parse_decision(json.loads(EXAMPLE)).direction == "stop"
