"""`proctor line bisect`: which checkpoint made a line worse.

A search that was interrupted is carried on by the same command.
"""

import shlex
from pathlib import Path
from typing import Annotated, Any

from aggregates.improvement.bisection import Bisection
from aggregates.improvement.line import Line
from judge.bisection import driver, latent, probes, reports
from judge.bisection.probes import Oracle
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Takes
from proctor.cli.remedies import completed, same_command
from proctor.errors import ProctorError
from proctor.improvement.home import LineOptions, checkpoint_of
from proctor.output.terminal import console, print_table, print_words, warn

_SHORT = 12  # characters of an id


app = CommandGroup()


@app.command(
    prints="improvement.Search | improvement.Fault | improvement.NoFault",
    continues="always",
)
def bisect(
    where: LineOptions,
    good: Annotated[str | None, "A good checkpoint; by default the first of the line."] = None,
    bad: Annotated[str | None, "A bad checkpoint; by default the active one."] = None,
    command: Annotated[
        str | None,
        "Run in each checkpoint's files: 0 good, 125 cannot be tested, 126 or 127 "
        "cannot be started, else bad. It may name {python}, {files} and {repeat}.",
        Takes("COMMAND"),
    ] = None,
    files: Annotated[
        list[Path] | None,
        "File to copy into {files} for the command.",
        Takes("FILE", option="--file"),
    ] = None,
    seconds: Annotated[
        float | None,
        "Time limit of the command, in seconds; by default that of the tests.",
        Takes(least=0.1),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        "Reference tasks that a good checkpoint answers; by default those that the good "
        "one answers and the bad one does not.",
        Takes("TASK", option="--task"),
    ] = None,
    error: Annotated[
        float,
        "Share of wrong verdicts, below 0.5; 0: verdicts are certain. Any other value "
        "says that some are wrong; how many is estimated from the verdicts.",
    ] = 0.0,
    confidence: Annotated[
        float,
        "Confidence at which a search with wrong verdicts ends. If probes tell too little "
        "to reach it for one suspect, it names several.",
    ] = 0.95,
    check_ends: Annotated[bool, "Probe the two endpoints first."] = False,
    afresh: Annotated[bool, "Search again, and ignore earlier probes."] = False,
    most: Annotated[
        int | None, "Stop after this many probes; a later call continues.", Takes(least=1)
    ] = None,
    revealed: Annotated[
        bool,
        "Search for the older fault that a rejection or an alarm reveals. It is rolled "
        "back if nothing that goes with it needed an operator; else an alarm proposes that.",
    ] = False,
) -> Output:
    """Find the checkpoint that made results worse; exit code 1 if found."""
    require_extra("train")
    if revealed:
        if any((good, bad, command, tasks, error, check_ends, afresh)):
            raise ProctorError("of the other options, only --most is for --revealed")
        return _look_back(where, most)
    if command is not None and tasks:
        raise ProctorError("--command and --task are two ways to probe; give one of them")
    if command is None and (files or seconds is not None):
        raise ProctorError("--file and --seconds are for --command")
    if not 0 <= error < 0.5 or not 0.5 < confidence < 1:
        raise ProctorError("--error is below 0.5, --confidence between 0.5 and 1")
    with where.open() as controller:
        place, line = controller.place, controller.line
        first = checkpoint_of(line, good) if good is not None else line.first
        last = checkpoint_of(line, bad) if bad is not None else line.active
        driver.chain(line, good=first, bad=last)  # before anything is run
        with driver.working(place) as folder:
            commits = [line.checkpoints[each].commit for each in (first, last)]
            known = None if afresh or tasks else driver.chosen_before(place, good=first, bad=last)
            oracle: Oracle
            if command is None and known is not None:
                oracle = known
            elif command is None:
                oracle = probes.tasks_oracle(
                    place, good=commits[0], bad=commits[1], folder=folder, tasks=tasks or ()
                )
            else:
                oracle = probes.command_oracle(
                    place, command, commit=commits[1], files=files or (), seconds=seconds
                )
            oracle = probes.with_repeats(place, oracle, error=error)
            question = driver.Question(
                good=first,
                bad=last,
                oracle=oracle,
                error=error,
                confidence=confidence,
                ends_believed=not check_ends,
            )
            found = driver.open_search(place, question, afresh=afresh)
            found = driver.go_on(place, found, folder=folder, most=most, tell=_tell_probe)
        told = describe_search(line, found)
    return Output(
        told,
        lambda: _tell_search(line, told),
        found=bool(told["candidates"] and told["ended"]),
    )


def _look_back(where: LineOptions, most: int | None) -> Output:
    with where.open() as controller, controller.locked():
        found = latent.look(controller.place, controller.records, most=most)
        told = None if found is None else describe_fault(controller.line, found)

    def tell() -> None:
        if told is None:
            console.print("no rejection and no alarm reveals an older fault")
            return
        print_words(told["says"])
        if told["rollback"] is not None:
            print_words(f"ROLLED BACK to {told['rollback'].to}")
            print_words(told["rollback"].advice or "the branch is there")
        elif told["culprit"] is not None:
            print_words(f"next: {_rollback(told)}")

    culprit = told is not None and told["culprit"] is not None
    return Output({} if told is None else told, tell, found=culprit)


def _tell_probe(found: Bisection) -> None:
    told = reports.summary(found)
    latest, best = told["probes"][-1], told["likeliest"][:1]
    text = f"probe {len(told['probes'])}: {latest['number']} of {told['suspects']} is "
    text += f"{latest['verdict']} ({latest['checkpoint'][:_SHORT]})"
    if best:
        text += f"; likeliest is {best[0]['number']}, {best[0]['probability']:.1%}"
    warn(text)


def _tell_search(line: Line, told: dict[str, Any]) -> None:
    rows = [
        (each["number"], each["checkpoint"] or "none is bad", f"{each['probability']:.1%}")
        for each in told["likeliest"]
    ]
    least = "probability, at least" if told["at_least"] else "probability"
    print_table(("number", "first bad one", least), rows)
    if not told["ended"]:
        print_words(f"{len(told['probes'])} done so far; the same command goes on")
        return
    count = len(told["probes"])
    print_words(f"{counted(count, 'probe')}: {told['reason']}")
    if told["culprit"] is not None:
        names = ", ".join(told["proposals"]) or "none: people made it"
        print_words(f"commit {told['commit']}, proposals: {names}")
        if told["believed"]:
            print_words(f"next: {same_command('--check-ends')}  # probes the ends, too")
            return
        print_words(f"next: {_rollback(told)}")
        if len(line.descendants(told["culprit"])) > 1:
            command = completed(f"proctor line rollback {told['culprit']} --salvage")
            print_words(f"then: {command}  # proposes again what came after it")


def _rollback(told: dict[str, Any]) -> str:
    """Return the command that rolls a search's culprit back."""
    reason = shlex.quote(f"found by bisection {told['bisection'][:_SHORT]}")
    return completed(f"proctor line rollback {told['culprit']} --reason {reason}")


def describe_fault(line: Line, found: latent.LatentFault) -> dict[str, Any]:
    """Return what a search for an older fault has come to, in terms of JSON."""
    return {
        "says": found.says,
        "revealed_by": found.revealed.by,
        "tasks": list(found.revealed.tasks),
        "rollback": found.rollback,
        "needs_operator": found.needs_operator,
        **describe_search(line, found.search),
    }


def describe_search(line: Line, found: Bisection) -> dict[str, Any]:
    """Return what a search has come to, with the culprit's commit and proposals."""
    told = reports.summary(found)
    if found.culprit is not None:
        culprit = line.checkpoints[found.culprit]
        told |= {"commit": culprit.commit, "proposals": list(culprit.proposals)}
    return told
