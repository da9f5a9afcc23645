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
from proctor.cli.lazy import LazyGroup, command_path
from proctor.cli.start import noted
from proctor.cli.streams import safe_streams
from proctor.errors import EXIT_INTERRUPTED, EXIT_TERMINATED

_HELP = (
    "Runs, records and judges how a model is trained, in a signed ledger that anyone can "
    "verify and replay. Exit codes: 0 success, 1 a failed check or a finding, 2 wrong usage or "
    "input, 130 interrupted, 141 output closed, 143 terminated."
)


# Name -> the module, and the first sentence of the help; a test compares it with the command's own.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": (
        "proctor.cli.training",
        "Train a small model from a bad start, judge the run and verify the ledger.",
    ),
    "run": (
        "proctor.cli.training",
        "Train a model; record every measurement, and decide on every rule that fires.",
    ),
    "judge": (
        "proctor.cli.training",
        "Audit a run in eleven steps and print two scores; exit code 1 on a hard fail.",
    ),
    "show": (
        "proctor.cli.reading",
        "Show a run: curves, rules, decisions, verdict.",
    ),
    "report": (
        "proctor.cli.report",
        "Write a report as one HTML file, which needs no network and can be verified.",
    ),
    "replay": (
        "proctor.cli.reading",
        "Print the events of a run, campaign or comparison, or execute it again from its events.",
    ),
    "log": (
        "proctor.cli.reading",
        "List the ledger's entries, or show one entry in full.",
    ),
    "fork": (
        "proctor.cli.forking",
        "Go on from a recorded epoch of a run with other decisions, as a run of its own.",
    ),
    "credit": (
        "proctor.cli.forking",
        "Measure what decisions were worth: fork the run with the alternatives, and compare.",
    ),
    "campaign": (
        "proctor.cli.campaign",
        "Attempt a task several times; the same command continues or shows the result.",
    ),
    "compare": (
        "proctor.cli.compare",
        "Compare policies on the same conditions and seeds; the same command continues it.",
    ),
    "tune": (
        "proctor.cli.tune",
        "Tune the advice block of a model's prompt, and test it on scenarios.",
    ),
    "transcript": (
        "proctor.cli.transcript",
        "Show what a run asked of language models, people and the playbook.",
    ),
    "verify": (
        "proctor.cli.verify",
        "Verify every entry, link, root and signature, offline, with the public key alone.",
    ),
    "witness": (
        "proctor.cli.witness",
        "Run a witness, or have a ledger's newest tree head cosigned.",
    ),
    "prove": (
        "proctor.cli.bundle",
        "Write a proof of one event, which the public key alone verifies.",
    ),
    "export": (
        "proctor.cli.bundle",
        "Export the ledger as a bundle, its head as DSSE, or a run's curves for other trackers.",
    ),
    "attest": (
        "proctor.cli.attest",
        "Hand over the model of a run: sign its files, and claim how it was trained and judged.",
    ),
    "import": (
        "proctor.cli.bundle",
        "Verify a bundle and make a home of it, to show, query and replay; or bring one "
        "up to date.",
    ),
    "curate": (
        "proctor.cli.curate",
        "Export training data from valid runs, seal the exports, and recall examples.",
    ),
    "lineage": (
        "proctor.cli.lineage",
        "Trace an example to its decision, run, checkpoint, evaluation, approval and key.",
    ),
    "notary": (
        "proctor.cli.notary",
        "Serve a ledger to other users, who cannot read its key or change its files.",
    ),
    "ledger": (
        "proctor.cli.ledger",
        "Check the rights to a ledger on a PostgreSQL server.",
    ),
    "keys": (
        "proctor.cli.keys",
        "Manage a ledger's keys: list, make, grant, revoke, rotate, accept.",
    ),
    "review": (
        "proctor.cli.review",
        "Mark a decision as gold or bad; signed with an operator's key.",
    ),
    "sql": (
        "proctor.cli.sql",
        "Query the ledger's tables; the ledger is verified first.",
    ),
    "serve": (
        "proctor.cli.serve",
        "Show runs in a browser while they train: a local web server that changes nothing.",
    ),
    "infra": (
        "proctor.cli.infra",
        "Propose, judge and promote changes of a repository, under an operator's control.",
    ),
    "checkpoints": (
        "proctor.cli.checkpoints",
        "Manage checkpoints: list, roll back, bisect, and watch for drift.",
    ),
    "schema": (
        "proctor.cli.schema",
        "Print the JSON Schema of what a command prints with --json.",
    ),
}

# Commands that go on where they were interrupted.
CONTINUED = ("campaign", "checkpoints bisect", "compare", "credit", "infra run")


class Commands(LazyGroup):
    """All commands of `proctor`."""

    lazy = COMMANDS


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
            again = command_path(group, arguments) in CONTINUED
            print(told + "; the same command continues" * again, file=sys.stderr)
        sys.exit(code)
