"""The command line. Errors are caught once, here, and become one line and a documented exit code.

Exit codes: 0 held, 1 something was found, 2 wrong usage or input, 130 interrupted.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from aggregates.errors import AggregateError
from judge.errors import JudgeError
from ledger.errors import LedgerError, PassphraseError, VerificationError
from monitor.config import RunConfig
from monitor.errors import MonitorError
from policies.errors import PolicyError
from proctor import (
    bench_cli,
    bundle_cli,
    campaign_cli,
    checkpoints_cli,
    commands,
    curate_cli,
    infra_cli,
    keys_cli,
    lineage_cli,
    notary_cli,
    review_cli,
    sql_cli,
    transcript_cli,
    verify_cli,
    witness_cli,
)
from proctor.campaign_cli import (
    ConfigOption,
    PolicyOption,
    ProvokeOption,
    ProvokeSeedOption,
    SetOption,
    SettingsArgument,
)
from proctor.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_USAGE, ProctorError
from proctor.home import PASSPHRASE, Home
from proctor.options import HOME, MOST, HomeOption, JsonOption, RunArgument
from proctor.output import error_console, print_json, words
from proctor.process import start_as_recorded, start_for
from proctor.run_settings import provoked, read_config
from projections.errors import ProjectionError

# A start that goes wrong: a learning rate sixty times the default, and no warm-up.
DEMO: dict[str, Any] = {
    "lr": 3.0,
    "warm_up_epochs": 0,
    "train_examples": 1_500,
    "epochs": 8,
    "channels": 16,
    "width": 16,
    "numerics": "portable",
}
app = typer.Typer(
    name="proctor",
    help="Runs, records and judges how a model is trained, in a signed ledger that anyone can "
    "verify and replay. Exit codes: 0 held, 1 something was found, 2 wrong usage or input, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)


@app.command()
def demo(home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """Train a small model from a bad start, judge it, verify the ledger: the main job, once."""
    config = start_for(lambda: RunConfig.from_dict(DEMO))
    from proctor import jobs  # noqa: PLC0415 - torch takes seconds to import

    raise typer.Exit(jobs.demo(Home(home), config, as_json=as_json))


@app.command()
def run(
    settings: SettingsArgument = None,
    config: ConfigOption = None,
    policy: PolicyOption = "playbook",
    sets: SetOption = None,
    provoke: ProvokeOption = None,
    provoke_seed: ProvokeSeedOption = 0,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Train a model under watch; every fired rule is decided on, everything is recorded."""
    chosen = start_for(lambda: provoked(read_config(config, settings or []), provoke, provoke_seed))
    from proctor import jobs  # noqa: PLC0415 - torch takes seconds to import

    raise typer.Exit(
        jobs.run(
            Home(home),
            chosen,
            policy=policy,
            policy_settings=sets or [],
            as_json=as_json,
        )
    )


@app.command()
def judge(
    run: RunArgument = "latest",
    submission: Annotated[
        Path | None,
        typer.Option("--submission", help="Judge this folder instead of the run's own."),
    ] = None,
    head: Annotated[
        Path | None, typer.Option("--head", help="A tree head that you kept; see verify.")
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute/--no-execute",
            help="Train the run again, at least up to the submitted weights, and compare.",
        ),
    ] = True,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Audit a run in eleven steps and give two scores; exit code 1 on a hard fail."""
    run = start_as_recorded(Home(home), run)
    from proctor import jobs  # noqa: PLC0415 - torch takes seconds to import

    raise typer.Exit(
        jobs.judge(
            Home(home), run, submission=submission, head=head, execute=execute, as_json=as_json
        )
    )


app.add_typer(campaign_cli.app)
app.add_typer(transcript_cli.app)
app.add_typer(verify_cli.app)
app.add_typer(witness_cli.app)
app.add_typer(bundle_cli.app)
app.add_typer(curate_cli.app)
app.add_typer(lineage_cli.app)
app.add_typer(notary_cli.app)
app.add_typer(keys_cli.app)
app.add_typer(review_cli.app)
app.add_typer(sql_cli.app)
app.add_typer(infra_cli.app)
app.add_typer(checkpoints_cli.app)
app.add_typer(bench_cli.app, name="bench")


@app.command()
def show(run: RunArgument = "latest", home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """Tell one run's story: curves, rules, decisions, verdict."""
    raise typer.Exit(commands.show(Home(home), run, as_json=as_json))


@app.command()
def replay(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The id of a run or of a campaign, the beginning of one, or `latest`: the newest "
            "run, or where there is none yet, the newest campaign.",
        ),
    ] = "latest",
    at: Annotated[
        int | None, typer.Option("--at", help="Show the run's state after its N-th event.")
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute", help="Do the training again and compare everything, bit for bit."
        ),
    ] = False,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Tell the events of a run or a campaign, or do it again from its events alone."""
    if not execute:
        raise typer.Exit(commands.replay(Home(home), run, at=at, as_json=as_json))
    run = start_as_recorded(Home(home), run)
    from proctor import jobs  # noqa: PLC0415 - torch takes seconds to import

    raise typer.Exit(jobs.execute(Home(home), run, as_json=as_json))


@app.command()
def log(
    start: Annotated[int, typer.Option("--start", min=0, max=MOST, help="First index.")] = 0,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MOST, help="At most so many.")
    ] = 1_000_000,
    entry: Annotated[
        int | None, typer.Option("--entry", min=0, max=MOST, help="Show this entry with its body.")
    ] = None,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """List the ledger's entries, or show one whole."""
    raise typer.Exit(
        commands.log(Home(home), start=start, limit=limit, entry=entry, as_json=as_json)
    )


def main() -> None:
    """Run the command line; the only place that turns errors into exit codes."""
    as_json = "--json" in sys.argv[1:]
    try:
        app(prog_name="proctor")
    except VerificationError as error:
        _fail(error, EXIT_FOUND, as_json=as_json)
    except PassphraseError as error:
        advice = f"{error} (passphrases are read from {PASSPHRASE} in the environment)"
        _fail(PassphraseError(advice), EXIT_USAGE, as_json=as_json)
    except (
        AggregateError,
        JudgeError,
        LedgerError,
        MonitorError,
        PolicyError,
        ProctorError,
        ProjectionError,
    ) as error:
        _fail(error, EXIT_USAGE, as_json=as_json)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(ProctorError(f"{where}{error.strerror or error}"), EXIT_USAGE, as_json=as_json)
    except MemoryError as error:
        wanted = ProctorError(f"this machine has not enough memory for that: {error}")
        _fail(wanted, EXIT_USAGE, as_json=as_json)
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C
            error_console.print("interrupted; if a run was going on, it is closed as interrupted")
        raise


def _fail(error: Exception, code: int, *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"error": type(error).__name__, "message": str(error), "exit_code": code})
    error_console.print(f"[bold]error:[/] {words(error)}")
    sys.exit(code)
