"""A command group that imports a command's module only when the command is used.

I/O: imports modules.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from proctor.cli.start import nothing_begun

__all__ = ["LazyCommand", "LazyGroup", "command_path", "load"]


class LazyCommand(TyperCommand):
    """What the list of commands shows of a command, until the command itself is loaded."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, callback=None, help=summary, rich_markup_mode=None)
        self.module = module  # its `app` holds the command, or is the group of this name
        self.loaded: Any = None

    def load(self) -> Any:
        """Import the module and return the command."""
        if self.loaded is None:
            with nothing_begun():
                app: typer.Typer = import_module(self.module).app
            group = typer.main.get_group(app)
            self.loaded = group if app.info.name == self.name else group.commands[str(self.name)]
        return self.loaded


class LazyGroup(TyperGroup):
    """Lists and completes its commands without loading them; loads the one that is called."""

    lazy: ClassVar[Mapping[str, tuple[str, str]]] = {}  # name -> (module, first line of its help)

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (module, summary) in self.lazy.items():
            self.add_command(LazyCommand(name, module, summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is called, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(command), rest


def load(command: Any) -> Any:
    """Return the command itself, imported if need be."""
    return command.load() if isinstance(command, LazyCommand) else command


def command_path(group: Any, words: Sequence[str]) -> str:
    """Return the words that name a command, as in `keys list`, as far as they are loaded."""
    names = []
    for word in words:
        command = group.commands.get(word)
        if command is None:
            break
        names.append(word)
        group = command.loaded if isinstance(command, LazyCommand) else command
        if not isinstance(group, TyperGroup):
            break
    return " ".join(names)
