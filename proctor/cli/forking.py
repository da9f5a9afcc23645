"""`proctor fork`: a run goes on from a recorded epoch, with other decisions."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import (
    ExecutorOption,
    FromStartOption,
    RunArgument,
    SetOption,
    Takes,
    WorkersOption,
    verify_unused,
)
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.process import start_as_recorded

app = CommandGroup()


@dataclass(frozen=True, kw_only=True)
class ForkOptions:
    """Where a run is forked, and what decides in the forks."""

    at: Annotated[int | None, "The last epoch that is shared.", Takes("EPOCH")] = None
    policies: Annotated[
        list[str] | None,
        "Policy that decides from that epoch on, as for `run`, or `recorded`: the run's "
        "own decisions again. Give it several times for several forks.",
        Takes(option="--policy"),
    ] = None
    files: Annotated[
        list[Path] | None,
        "JSON file with the decision on that epoch, or a list of them; --then decides "
        "the later epochs. Give it several times for several forks.",
        Takes("FILE", option="--decide"),
    ] = None
    decisions: Annotated[
        list[str] | None,
        "In place of --at: measure what this decision was worth, by forks with it and "
        "with others. A number from 1, or `all` that were carried out; give it several times.",
        Takes("NUMBER", option="--decision"),
    ] = None
    against: Annotated[
        list[str] | None,
        "With --decision: an alternative, as `nothing`, `random` (an answer that chance draws) "
        "or `decrease_lr least`; give it several times.  [default: all that the playbook "
        "allows, and nothing]",
    ] = None
    then: Annotated[
        str | None,
        "Policy that decides after --decide or --decision.  [default: rescue; with "
        "--decision, nothing]",
    ] = None
    sets: SetOption = None
    orders: Annotated[
        int | None,
        "Orders of the examples, with a fork for each.  [default: 1; with --decision, 5]",
        Takes(least=1, most=1_000),
    ] = None
    workers: WorkersOption = None
    executor: ExecutorOption = "local"
    from_start: FromStartOption = False

    @property
    def numbers(self) -> list[int]:
        """The decisions to measure; none: all that were carried out."""
        decisions = self.decisions or []
        if "all" in decisions:
            return []
        if wrong := [each for each in decisions if not re.fullmatch("[1-9][0-9]{0,8}", each)]:
            raise ProctorError(f"--decision {wrong[0]}: give the number of a decision, or `all`")
        return [int(each) for each in decisions]

    def verify(self) -> None:
        """Raise ProctorError for options that do not go together."""
        if self.decisions:
            verify_unused(
                "not with --decision, which forks at the epochs of the decisions",
                at=self.at is not None,
                policy=self.policies,
                decide=self.files,
                set=self.sets,
            )
            if self.orders == 1:
                raise ProctorError("--orders 1: a measurement needs 2 orders or more")
            return
        verify_unused("only with --decision NUMBER", against=self.against, workers=self.workers)
        if self.at is None:
            raise ProctorError(
                "give --at EPOCH to go on from there, or --decision NUMBER to measure a decision; "
                "`proctor show` lists epochs and decisions"
            )


@app.command(prints="runs.Forked | runs.Credit", continues="--decision")
def fork(home: Home, asked: ForkOptions, run: RunArgument = "latest") -> Output:
    """Go on from a recorded epoch with other decisions, or measure what decisions were worth."""
    asked.verify()
    numbers = asked.numbers
    run = start_as_recorded(home, run)
    if asked.decisions:
        from proctor.cli import credit_jobs  # noqa: PLC0415 - torch takes seconds to import

        return credit_jobs.credit(home, run, numbers, asked)
    from proctor.cli import fork_jobs  # noqa: PLC0415 - torch takes seconds to import

    return fork_jobs.fork(home, run, asked)
