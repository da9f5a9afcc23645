"""The command line. Errors are caught once, here, and become one line and a documented exit code.

Exit codes: 0 success, 1 a failed check or a finding, 2 wrong usage or input, 130 interrupted, 141
the output was closed, 143 terminated. Every command lies in a module of its own, which is imported
when the command is used.
"""

import signal
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from proctor import __version__
from proctor.cli.failures import report, verify_own_packages
from proctor.cli.lazy import LazyGroup, command_path, is_continued
from proctor.cli.start import noted
from proctor.cli.streams import safe_streams
from proctor.errors import EXIT_INTERRUPTED, EXIT_TERMINATED

_HELP = (
    "Runs, records and judges how a model is trained, in a signed ledger that anyone can "
    "verify and replay. Exit codes: 0 success, 1 a failed check or a finding, 2 wrong usage or "
    "input, 130 interrupted, 141 output closed, 143 terminated."
)


COMMANDS: Mapping[str, str] = {  # name -> the module
    "demo": "proctor.cli.training",
    "run": "proctor.cli.training",
    "judge": "proctor.cli.training",
    "runs": "proctor.cli.runs",
    "annotate": "proctor.cli.runs",
    "show": "proctor.cli.reading",
    "report": "proctor.cli.report",
    "replay": "proctor.cli.reading",
    "log": "proctor.cli.reading",
    "fork": "proctor.cli.forking",
    "compare": "proctor.cli.compare",
    "verify": "proctor.cli.verify",
    "witness": "proctor.cli.witness",
    "export": "proctor.cli.export",
    "import": "proctor.cli.importing",
    "data": "proctor.cli.data",
    "notary": "proctor.cli.notary",
    "keys": "proctor.cli.keys",
    "sql": "proctor.cli.sql",
    "serve": "proctor.cli.serve",
}


class Commands(LazyGroup):
    """All commands of `proctor`."""

    lazy = COMMANDS
    packs = True


app = typer.Typer(
    cls=Commands,
    name="proctor",
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"proctor {__version__}")
        raise typer.Exit


@app.callback()
def proctor(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Stand for the command line itself, with the options that need no command."""


def main() -> None:
    """Run the command line; the only place that turns errors into exit codes."""
    arguments = sys.argv[1:]
    group = typer.main.get_command(app)
    with safe_streams(), noted() as stops:
        try:
            verify_own_packages()
            code = group.main(prog_name="proctor", standalone_mode=False)
        except KeyboardInterrupt:  # before typer could make a code of it
            code = EXIT_INTERRUPTED
        except Exception as error:
            command = command_path(group, arguments)
            code = (
                EXIT_INTERRUPTED
                if stops
                else report(error, command=command, as_json="--json" in arguments)
            )
        if code == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C
            code = EXIT_TERMINATED if signal.SIGTERM in stops else EXIT_INTERRUPTED
            told = "terminated" if code == EXIT_TERMINATED else "interrupted"
            told += "; if a run was going on, it is closed as interrupted"
            again = is_continued(group, arguments)
            print(told + "; the same command continues" * again, file=sys.stderr)
        sys.exit(code)
