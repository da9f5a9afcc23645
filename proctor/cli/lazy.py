"""A command group that imports a command's module only when the command is used.

A pack is a distribution with entry points `proctor.commands`, which name modules with an `app`, by
the name of the command. Nothing here knows any pack, and none is imported before it is used.

I/O: imports modules; reads the source of those whose commands it lists, and the metadata of
installed distributions.
"""

import ast
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from proctor.cli.start import nothing_begun


class LazyCommand(TyperCommand):
    """What the list of commands shows of a command, until the command itself is loaded."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(name, callback=None, rich_markup_mode=None)
        self.module = module  # its `app` holds the command, or is the group of this name

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first sentence of the command's help, from the source of its module."""
        self.help = _written_help(self.module, str(self.name))
        return super().get_short_help_str(limit)

    @property
    def loaded(self) -> Any:
        """The command, if it was loaded."""
        return vars(self).get("command")

    @cached_property
    def command(self) -> Any:
        """The command, whose module is imported."""
        with nothing_begun():
            app: typer.Typer = import_module(self.module).app
        group = typer.main.get_group(app)
        return group if app.info.name == self.name else group.commands[str(self.name)]


class LazyGroup(TyperGroup):
    """Lists and completes its commands without loading them; loads the one that is called."""

    lazy: ClassVar[Mapping[str, str]] = {}  # name -> module
    packs: ClassVar[bool] = False  # whether installed packs bring more

    def __init__(self, **attributes: Any) -> None:
        self._whole = not self.packs
        super().__init__(**attributes)
        self._known.update({name: LazyCommand(name, each) for name, each in self.lazy.items()})

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """All commands; those of packs are looked for where none of our own is called."""
        if not self._whole:
            from importlib.metadata import entry_points  # noqa: PLC0415 - longer than the rest

            self._whole = True
            for each in entry_points(group="proctor.commands"):
                self._known.setdefault(each.name, LazyCommand(each.name, each.module))
        return self._known

    @commands.setter
    def commands(self, known: MutableMapping[str, Any]) -> None:
        self._known = known

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, not loaded; None where there is none of this name."""
        return self._known.get(cmd_name) or super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is called, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(command), rest


def _written_help(module: str, name: str) -> str:
    """Return the docstring of a command, or the help that its group is made with."""
    top, *names = module.split(".")
    found = find_spec(top)  # of the whole name, it would import the packages between
    if found is None or found.origin is None:
        return ""
    file = Path(found.origin).parent.joinpath(*names).with_suffix(".py")
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.rstrip("_") == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            said = [each.value for each in node.value.args if isinstance(each, ast.Constant)]
            if said[:1] == [name]:
                return str(said[1])
    return ""


def load(command: Any) -> Any:
    """Return the command itself, imported if need be."""
    return command.command if isinstance(command, LazyCommand) else command


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command that is no group with the words that name it, in their order."""
    command = load(command)
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    for name, each in sorted(command.commands.items()):
        yield from leaves(each, f"{path} {name}".lstrip())


def command_path(group: Any, words: Sequence[str]) -> str:
    """Return the words that name a command, as in `keys list`, as far as they are loaded."""
    return " ".join(name for name, _ in _called(group, words))


def is_continued(group: Any, words: Sequence[str]) -> bool:
    """Tell whether the same command goes on where it was interrupted."""
    *_, (_, command) = [("", None), *_called(group, words)]
    needs = getattr(getattr(command, "callback", None), "continues", "")
    return needs == "always" or needs in {word.partition("=")[0] for word in words}


def _called(group: Any, words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for word in words:
        command = getattr(group, "commands", {}).get(word)
        if command is None:
            return
        group = command.loaded if isinstance(command, LazyCommand) else command
        yield word, group
