"""The reference page of the command line, from the commands."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer

from proctor.cli.lazy import load
from proctor.cli.main import app

__all__ = ["cli_page", "command_names"]

_HEAD = r"""# Command line

Written by `python docs/studies pages` from the commands; `proctor COMMAND --help` prints the same.

All commands start with `proctor`; `python -m proctor` is the same. In a folder with Python files
of other projects, use `proctor` or `python -P -m proctor`: with `-m`, Python looks for its first
modules in the current folder before Proctor can prevent it. All commands take `--json`, which
prints one JSON document to standard output ([shapes](json.md)), and `--json-schema`, which prints
the JSON Schema of that document. Progress and errors go to standard error: at a terminal, work of
more than two seconds shows the time left. `proctor --version` prints the version,
`--install-completion` completes words in your shell.

Environment: `PROCTOR_HOME` (for `--home`), `PROCTOR_STATE` (where verified tree heads are
remembered; `off`), `PROCTOR_NOTARY` (a notary's socket), `PROCTOR_KEY_PASSPHRASE`,
`PERSISTENCE_MODULE` and `POSTGRES_...` ([a ledger on a server](../how-to/use-postgresql.md)). At a
terminal, long answers go through `PROCTOR_PAGER`, else `PAGER`, else `less`; with
`PROCTOR_PAGER=cat` through none. `NO_COLOR=1` prints without colours.

| exit code | meaning |
|---|---|
| 0 | success: no check failed |
| 1 | a failed check or a finding: invalid ledger, suspect entries, hard fail, lost model server |
| 2 | wrong usage or input; the error names what is wrong and what to do |
| 130 | interrupted with Ctrl-C; a run in progress is closed as interrupted |
| 141 | the reader of the output closed it, as in `proctor log \| head -1` |
| 143 | terminated with SIGTERM, which does what Ctrl-C does |

`serve`, `notary` and `witness serve` end with 0 at SIGTERM, as this is how they are stopped.

## Common arguments and options

Nearly all commands take `--home`, `--vkey`, `--json` and `--json-schema`; help says which. Each
command names the others that it takes.

"""
_SHARED = 3  # commands that take an option with the same words: it is described once
_EVERYWHERE = ("`--home PATH`", "`--vkey PATH`", "`--json`", "`--json-schema`")


def command_names() -> list[str]:
    """Return every command, subcommands as two words."""
    return [name for name, _ in _commands()]


def cli_page() -> str:
    """Return the page as Markdown."""
    found = [(name, command, _parameters(command)) for name, command in _commands()]
    counts = Counter(each for *_, told in found for each in told)
    shared = {each: number for each, number in counts.items() if number >= _SHARED}
    lines = [f"- {name}: {text}" for name, text in sorted(shared)]
    for name, command, told in found:
        lines += [f"\n## {name}\n", " ".join((command.help or "").split()), ""]
        lines += [f"- {short}: {text}" for short, text in told if (short, text) not in shared]
        names = [short for short, text in told if (short, text) in shared]
        if common := [name for name in names if name not in _EVERYWHERE]:
            lines.append(f"- common: {', '.join(common)}")
    return _HEAD + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def _commands() -> Iterator[tuple[str, Any]]:
    def below(group: Any, before: str) -> Iterator[tuple[str, Any]]:
        for name, listed in sorted(group.commands.items()):
            command = load(listed)
            yield f"{before}{name}", command
            if hasattr(command, "commands"):
                yield from below(command, f"{before}{name} ")

    return below(typer.main.get_command(app), "")


def _parameters(command: Any) -> list[tuple[str, str]]:
    """Return the names of a command's arguments and options, and what help says of each."""
    context = typer.Context(command)
    told = []
    for each in command.params:
        if each.hidden:
            continue
        name, text = each.get_help_record(context)
        if each.param_type_name == "argument":
            name = each.metavar or each.name.upper()
            name = name if each.required or name.startswith("[") else f"[{name}]"
        name = re.sub(r" <(int|float)[^>]*>", " N", re.sub(r" <path>", " PATH", name))
        name = re.sub(r" <(?:list\[)?str\]?>", " TEXT", name)
        text = re.sub(r"env var: \w+; |\[env var: \w+\]", "", text)
        if each.param_type_name == "argument":  # brackets say which are not required
            text = re.sub(r"(?:; required(?=\]))|\[required\]", "", text)
        told.append((f"`{name}`", " ".join(text.split())))
    return told
