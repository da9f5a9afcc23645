"""Every `proctor` command that the documentation names exists, with the options that it is shown.

Commands in console blocks are also run, by test_snippets.py. Those in shell blocks are shown with
placeholders, servers, other users or hours of work; here they are parsed as the command does it.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from console_pages import PAGES

from proctor.cli.lazy import load
from proctor.cli.main import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name not in ("cli.md", "CHANGELOG.md")  # written from the commands; about the past
)
NOT_RUN = {  # pages with console blocks -> why no test runs them
    "docs/how-to/curate.md": "it exports the runs of a home that has many",
}
OF_OTHERS = {  # pages -> options of other programs that they name
    "docs/explanation/decisions/0025-planted-tests.md": {"--ignore"},  # pytest
    "docs/how-to/agents.md": {"--max-tokens", "--temperature", "--top-p"},  # inspect
    "docs/how-to/hand-over.md": {"--blob-bytes"},  # the second verifier
    "docs/how-to/install.md": {"--constraint"},  # pip
    "docs/reference/gauntlet.md": {"--ignore"},  # pytest
    "docs/studies/ledger.md": {"--events", "--homes", "--part"},  # docs/studies
    "docs/studies/rules.md": {"--results"},  # docs/studies
}
_END = re.compile(r"^(?:[|&;<>]|\|\||&&|2>.*|>>)$")
_COMMAND = re.compile(r"(?:^(?:\$ )?\s*|[;&|(]\s*|\bdo\s|\S=\S+\s+)(proctor\s[^\n]+)")
_USAGE: Any = typer.BadParameter.__base__  # what Typer's own copy of Click raises
_GAP = ("...", "…")


@cache
def commands() -> Any:
    return typer.main.get_command(app)


def in_blocks(text: str) -> Iterator[str]:
    """Give the commands of console and shell blocks, continued lines as one."""
    for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            yield from _COMMAND.findall(line.partition(" #")[0])


def inline(text: str) -> Iterator[str]:
    """Give the commands that a sentence or a table names."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for code in re.findall(r"`(proctor [^`]+)`", prose):
        yield re.sub(r"\s+", " ", code)


def named_options(text: str) -> Iterator[str]:
    """Give the options that a sentence or a table names without their command.

    `--ff--` is a row of attacks (docs/reference/threats.md).
    """
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return (found[1] for found in re.finditer(r"`(--(?![Ff-]+`)[a-z][a-z-]*)[^`]*`", prose))


@cache
def known_options() -> frozenset[str]:
    """Return the options of all commands."""
    found, groups = set[str](), [commands()]
    while groups:
        command = load(groups.pop())
        found |= {opt for each in command.params for opt in (*each.opts, *each.secondary_opts)}
        groups += getattr(command, "commands", {}).values()
    return frozenset(found) | {"--help"}


def words_of(command: str) -> list[str]:
    """Return the arguments of a command, as far as the shell gives them to it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    found: list[str] = []
    for word in list(lexer)[1:]:
        if _END.match(word) or word in ("(", ")"):
            break
        found.append(word)
    return found


def resolve(words: list[str]) -> tuple[Any, str, list[str]]:
    """Return the command that words name, and its arguments; fail where there is none."""
    group, name = commands(), "proctor"
    rest = list(words)
    while hasattr(group, "commands") and rest and not rest[0].startswith("-"):
        word = rest.pop(0)
        if word.isupper() or word in _GAP:
            break  # a placeholder for any of them
        assert word in group.commands, f"there is no command `{name} {word}`"
        group, name = load(group.commands[word]), f"{name} {word}"
    return group, name, rest


def check_options(command: Any, name: str, rest: list[str]) -> None:
    known = {opt for each in command.params for opt in (*each.opts, *each.secondary_opts)}
    for word in rest:
        option = word.partition("=")[0].rstrip(",.")
        if re.fullmatch(r"--?[a-z][a-z-]*", option):
            assert option in known | {"--help"}, f"`{name}` has no option {option}"


@pytest.mark.parametrize("page", DOCUMENTS)
def test_documented_commands_exist_with_their_options(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for shown in (*in_blocks(text), *inline(text)):
        command, name, rest = resolve(words_of(shown))
        check_options(command, name, rest)


@pytest.mark.parametrize("page", DOCUMENTS)
def test_options_named_without_a_command_are_those_of_one(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(named_options(text)) - known_options() - OF_OTHERS.get(page, set()) == set()


@pytest.mark.parametrize("page", DOCUMENTS)
def test_commands_of_blocks_are_complete(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for shown in in_blocks(text):
        command, name, rest = resolve(words_of(shown))
        if any(word in _GAP for word in rest) or "--help" in rest:
            continue
        if hasattr(command, "commands") and not command.invoke_without_command:
            assert {"--version"} & set(rest), f"`{name}` needs a subcommand: {shown}"
            continue
        # Numbers in place of the shell's variables, since options are read as what they are.
        plain = ["1" if word.startswith("$") else word for word in rest]
        try:
            command.make_context(name, plain)
        except _USAGE as error:
            if "does not exist" in error.format_message():  # a file of the example
                continue
            raise AssertionError(f"{shown}: {error.format_message()}") from error


def test_every_page_with_console_blocks_is_run_or_says_why_not() -> None:
    shown = {
        page for page in DOCUMENTS if "```console\n" in (ROOT / page).read_text(encoding="utf-8")
    }
    assert shown - set(PAGES) == set(NOT_RUN)
    assert set(PAGES) <= shown


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("proctor line evolv", "there is no command `proctor line evolv`"),
        ("proctor line evolve --repairs 0", "`proctor line evolve` has no option --repairs"),
    ],
)
def test_command_that_does_not_exist_is_found(shown: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_options(*resolve(words_of(shown)))
