"""The page of requirements names each once, and its commands print what it says that they print."""

import ast
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from frontdoor import call_here
from requirement_homes import HOMES

ROOT = Path(__file__).parents[2]
ROWS = {"E": 54, "I": 75, "B": 28}


class Row(NamedTuple):
    """One requirement; `see` and `shows` are empty where nothing can be seen of it."""

    name: str
    see: str
    shows: str


def rows() -> list[Row]:
    """Return the lines of the page; of the first list nothing is to be seen."""
    found = []
    for part in (ROOT / "docs/reference/requirements.md").read_text("utf-8").split("\n## ")[1:]:
        for line in re.findall(r"^- (.*)$", part, re.MULTILINE):
            name, text = re.fullmatch(r"\*\*([EIB]\d+)\*\* (.*)", line).groups()  # type: ignore[union-attr]
            see = re.search(r" `((?:proctor|pytest) [^`]+)`(?: shows `([^`]+)`)?$", text)
            shown = (see[1], see[2] or "") if see and not part.startswith("Not done") else ("", "")
            found.append(Row(name, *shown))
    return found


COMMANDS = [row for row in rows() if row.see.startswith("proctor ")]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make the homes that a command names, once, and return the folder that they are in."""
    place = tmp_path_factory.mktemp("homes")

    def make(command: str) -> Path:
        for name in HOMES:
            if f"--home {name}" in command and not (place / name).exists():
                HOMES[name](place / name)
        return place

    return make


def quick(row: Row) -> Any:
    """Return the row as a parameter: whatever is not a question to the small ledger is slow."""
    return pytest.param(
        row, id=row.name, marks=() if "--home record" in row.see else pytest.mark.slow
    )


def test_every_requirement_has_one_row() -> None:
    expected = [f"{kind}{number}" for kind, last in ROWS.items() for number in range(1, last + 1)]
    assert sorted(row.name for row in rows()) == sorted(expected)


def test_every_row_outside_of_the_first_list_can_be_seen() -> None:
    unseen = [row.name for row in rows() if not row.see]
    assert unseen == ["I18"]
    for row in rows():
        assert bool(row.shows) == row.see.startswith("proctor "), row


def test_tests_that_rows_name_exist() -> None:
    for row in rows():
        if row.see.startswith("pytest "):
            path, _, name = row.see.removeprefix("pytest ").partition("::")
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            found = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
            assert name in found, row.see


@pytest.mark.parametrize("row", [quick(row) for row in COMMANDS])
@pytest.mark.sampled(3)
def test_command_of_a_row_prints_what_the_row_shows(
    row: Row, prepare: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepare(row.see))
    monkeypatch.setenv("COLUMNS", "200")
    _, *arguments = shlex.split(row.see)
    done = call_here(arguments, home=Path(".proctor"))
    assert "Traceback" not in done.stderr
    assert row.shows in " ".join(done.stdout.split()), done.stdout + done.stderr
