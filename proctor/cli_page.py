"""Writes docs/reference/cli.md from the command line's own help: `python -m proctor.cli_page`."""

import os
import subprocess
import sys
from pathlib import Path

from proctor.cli import app

_HEAD = """# Command line

`proctor` is the one command; `python -m proctor` is the same. Every subcommand takes `--home DIR`
(environment `PROCTOR_HOME`, by default `.proctor` in the current folder) and `--json`, which prints
one JSON document to standard output. Progress and errors go to standard error.

| exit code | meaning |
|---|---|
| 0 | everything asked for held |
| 1 | something was found: a failed verification, a hard fail, a run that does not repeat |
| 2 | wrong usage or input; the error names what is wrong and what to do |
| 130 | interrupted with Ctrl-C; a run that was going on is closed as interrupted |

A `RUN` is `latest`, a run's id, or the beginning of one.
"""


def write_reference(page: Path) -> None:
    """Write the page."""
    names = sorted(str(c.callback.__name__) for c in app.registered_commands if c.callback)
    parts = [_HEAD]
    for name in ("", *names):
        arguments = [name, "--help"] if name else ["--help"]
        shown = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "proctor", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "100"},
        ).stdout
        title = f"\n## {name}\n" if name else ""
        parts.append(f"{title}\n```text\n$ proctor {' '.join(arguments)}\n{shown.strip()}\n```\n")
    page.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    write_reference(Path("docs/reference/cli.md"))
