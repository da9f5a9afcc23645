"""The reference page of the command line, from its own help."""

import typer
from typer.testing import CliRunner

from proctor.cli.lazy import leaves
from proctor.cli.main import app

__all__ = ["cli_page", "command_names"]

_HEAD = r"""# Command line

All commands start with `proctor`; `python -m proctor` is the same. In a folder with Python files
of other projects, use `proctor` or `python -P -m proctor`: with `-m`, Python looks for its first
modules in the current folder before Proctor can prevent it. Commands that work on a
ledger take `--home DIR` (environment `PROCTOR_HOME`, by default `.proctor` in the current folder);
all take `--json`, which prints one JSON document to standard output ([shapes](json.md)), and
`--json-schema`, which prints the JSON Schema of that document. Progress and errors go to standard
error: at a terminal, work of more than two seconds shows the time left. Other variables:
`PROCTOR_STATE` (where verified tree heads are remembered; `off`), `PROCTOR_NOTARY` (a notary's
socket), `PROCTOR_KEY_PASSPHRASE`; `PERSISTENCE_MODULE` and `POSTGRES_...`
([a ledger on a server](../how-to/use-postgresql.md)).

At a terminal, long answers go through a pager: `PROCTOR_PAGER`, else `PAGER`, else `less`. With
`PROCTOR_PAGER=cat` there is none. `NO_COLOR=1` prints without colours.

| exit code | meaning |
|---|---|
| 0 | success: no check failed |
| 1 | a failed check or a finding: invalid ledger, suspect entries, quorum not met, hard fail |
| 2 | wrong usage or input; the error names what is wrong and what to do |
| 130 | interrupted with Ctrl-C; a run in progress is closed as interrupted |
| 141 | the reader of the output closed it, as in `proctor log \| head -1` |
| 143 | terminated with SIGTERM, which does what Ctrl-C does |

`serve`, `notary` and `witness serve` end with 0 at SIGTERM, as this is how they are stopped.

A `RUN` is a run's id, the beginning of one, or `latest`: the newest run that is no fork.
"""


def command_names() -> list[str]:
    """Return every command, each group before its subcommands."""
    paths = [path.split() for path, _ in leaves(typer.main.get_command(app))]
    return list(dict.fromkeys(" ".join(path[: n + 1]) for path in paths for n in range(len(path))))


def cli_page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    runner = CliRunner(env={"COLUMNS": "100"})
    for name in ("", *command_names()):
        arguments = [*name.split(), "--help"]
        shown = runner.invoke(app, arguments, prog_name="proctor", terminal_width=98).stdout
        title = f"\n## {name}\n" if name else ""
        parts.append(f"{title}\n```text\n$ proctor {' '.join(arguments)}\n{shown.strip()}\n```\n")
    return "".join(parts)
