"""Commands that messages name, completed so that they work as they are pasted.

Packages below this one know neither where the ledger and the repository are nor what a command
needs. So the names of missing options are added here, and the options of the command that is
running that say where it works.
"""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer

_COMMAND = re.compile(r"`(proctor [^`]+)`")
_PLACES = ("--home", "--repo", "--line")


def pasteable(text: str) -> str:
    """Return a text in which each command between backquotes is completed()."""
    return _COMMAND.sub(lambda found: f"`{completed(found[1])}`", text)


def completed(line: str) -> str:
    """Return a command line with what it lacks; one that is no command of ours as it is."""
    try:
        command, words = _found(shlex.split(line)[1:])
        if command is None:
            return line
        context = command.make_context(None, words, resilient_parsing=True)
        said = {each.name for each in command.params if _is_said(context, each)}
    except Exception:
        return line
    lacking = [each for each in command.params if each.required and each.name not in said]
    lacking.sort(key=lambda each: each.param_type_name == "option")  # arguments first
    known = {name for each in command.params if each.name not in said for name in each.opts}
    places = [
        f"{name} {shlex.quote(value)}" for name, value in _places(sys.argv[1:]) if name in known
    ]
    return " ".join([line, *map(_placeholder, lacking), *places])


def same_command(*more: str) -> str:
    """Return the command that is running, with further options."""
    return shlex.join(["proctor", *sys.argv[1:], *more])


def _found(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words name, and its arguments; None for a group."""
    from proctor.cli.lazy import load  # noqa: PLC0415 - which loads this one, by command_group
    from proctor.cli.main import app  # noqa: PLC0415 - likewise

    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", ()):
        command = load(command.commands[words.pop(0)])
    return (None if hasattr(command, "commands") else command), words


def _is_said(context: Any, parameter: Any) -> bool:
    source = context.get_parameter_source(parameter.name)
    return source is not None and source.name == "COMMANDLINE"


def _placeholder(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper().replace("_", "-")
    return name if parameter.param_type_name == "argument" else f"{parameter.opts[0]} {name}"


def _places(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name in _PLACES and (equals or at + 1 < len(given)):
            yield name, value if equals else given[at + 1]
