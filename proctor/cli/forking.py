"""`proctor fork` and `credit`: a run goes on from a recorded epoch, with other decisions."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.campaign import SetOption
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import ExecutorOption, FromStartOption, RunArgument, WorkersOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.process import start_as_recorded

app = CommandGroup()


@app.command(prints="runs.Forked")
def fork(
    home: Home,
    run: RunArgument = "latest",
    at: Annotated[
        int | None, typer.Option("--at", metavar="EPOCH", help="The last epoch that is shared.")
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="Policy that decides from that epoch on, as for `run`, or `recorded`: the run's "
            "own decisions again. Give it several times for several forks.",
        ),
    ] = None,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(
            "--decision",
            metavar="FILE",
            help="JSON file with the decision on that epoch, or a list of them; --then decides "
            "the later epochs. Give it several times for several forks.",
        ),
    ] = None,
    then: Annotated[
        str, typer.Option("--then", help="Policy that decides after a --decision.")
    ] = "playbook",
    sets: SetOption = None,
    orders: Annotated[
        int,
        typer.Option(
            "--orders", min=1, max=1_000, help="Forks with as many orders of the examples each."
        ),
    ] = 1,
    executor: ExecutorOption = "local",
    from_start: FromStartOption = False,
) -> Output:
    """Go on from a recorded epoch of a run with other decisions, as a run of its own."""
    if at is None:
        raise ProctorError("--at EPOCH is missing: `proctor show` lists the run's epochs")
    run = start_as_recorded(home, run)
    from proctor.cli import fork_jobs  # noqa: PLC0415 - torch takes seconds to import

    return fork_jobs.fork(
        home,
        run,
        at,
        policies=policies or (() if decisions else ("playbook",)),
        decisions=decisions or (),
        then=then,
        sets=sets or (),
        orders=orders,
        executor=executor,
        from_start=from_start,
    )


@app.command(prints="runs.Credit", continues="always")
def credit(
    home: Home,
    run: RunArgument = "latest",
    decisions: Annotated[
        list[int] | None,
        typer.Option(
            "--decision",
            metavar="NUMBER",
            help="Number of a decision, from 1; give it several times. [default: all that act]",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            help="An alternative, as `nothing` or `decrease_lr least`; give it several times. "
            "[default: all that the playbook allows, and nothing]",
        ),
    ] = None,
    then: Annotated[
        str, typer.Option("--then", help="Policy that decides after the decision, in all forks.")
    ] = "nothing",
    seeds: Annotated[
        int, typer.Option("--seeds", min=2, max=1_000, help="Orders of the examples.")
    ] = 5,
    workers: WorkersOption = None,
    executor: ExecutorOption = "local",
    from_start: FromStartOption = False,
) -> Output:
    """Measure what decisions were worth: fork the run with the alternatives, and compare."""
    run = start_as_recorded(home, run)
    from proctor.cli import credit_jobs  # noqa: PLC0415 - torch takes seconds to import

    return credit_jobs.credit(
        home,
        run,
        numbers=decisions or (),
        against=against or (),
        then=then,
        seeds=seeds,
        workers=workers,
        executor=executor,
        from_start=from_start,
    )
