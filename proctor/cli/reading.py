"""`proctor show`, `replay` and `log`: what a ledger tells of its runs."""

from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec.structs import asdict

from ledger.mapper import ns_to_datetime
from ledger.verification.authority import AUTHORITY_EVENTS
from ledger.verification.verified_entries import VerifiedEntry
from ledger.witnessing.quorum import read_quorum
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import (
    MOST,
    Argument,
    DataDirOption,
    FromStartOption,
    LimitOption,
    RunArgument,
    Takes,
    WitnessesOption,
    named_runs,
    verify_unused,
)
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.entries import Entry, describe_entry, print_entry
from proctor.output.terminal import console, on_one_line, print_table, words
from proctor.remembering import open_remembered, tell_aside, tell_unread
from proctor.runs.process import start_as_recorded

app = CommandGroup()


@app.command(long=True, prints="runs.Story | runs.Transcript | runs.TranscriptCall")
def show(
    home: Home,
    run: RunArgument = "latest",
    transcript: Annotated[
        bool, "Show what the run asked of language models, people and the playbook."
    ] = False,
    call: Annotated[
        int | None, "Show this call of the transcript, with its texts.", Takes(least=1, most=MOST)
    ] = None,
    witnesses: WitnessesOption = None,
) -> Output:
    """Show a run: curves, rules, decisions, verdict; or its transcript."""
    if transcript or call is not None:
        verify_unused("not with --transcript or --call", witnesses=witnesses)
        from proctor.cli import transcript as told  # noqa: PLC0415 - few need it

        return told.transcript(home, run, call)
    from proctor.runs.story import read_story, tell_story  # noqa: PLC0415 - loads DuckDB

    quorum = None if witnesses is None else read_quorum(witnesses)
    story = read_story(home, run, quorum=quorum)
    summary = story["summary"]
    gone = summary["state"] == "running" and home.is_gone(summary["run_id"])
    note = (
        "the run is open and its process is gone; the next command that appends, such as "
        "`proctor judge`, closes it as crashed"
    )
    return Output(story, lambda: tell_story(story), note=note if gone else "")


@app.command(
    long=True,
    prints="list[proctor.output.entries.Entry] | proctor.runs.replay.RunState | "
    "proctor.runs.replay.CampaignState | proctor.runs.replay.ComparisonState | runs.Rebuilt | "
    "runs.RunAgain | runs.CampaignAgain | runs.ComparisonAgain",
)
def replay(
    home: Home,
    run: Annotated[
        str,
        "Id of a run, campaign or comparison, its start, or `latest`: the newest run "
        "that is no fork, or the newest of the others if there is no run.",
        Argument("RUN", completed=named_runs),
    ] = "latest",
    at: Annotated[
        int | None, "Rebuild the training state after this epoch, by training.", Takes("EPOCH")
    ] = None,
    out: Annotated[Path | None, "With --at: write the state to this file."] = None,
    from_start: FromStartOption = False,
    event: Annotated[int | None, "Show the run's state after its N-th event."] = None,
    execute: Annotated[bool, "Train again and compare every value, bit for bit."] = False,
    data_dir: DataDirOption = None,
    limits: LimitOption = None,
) -> Output:
    """Print the events of a run, campaign or comparison, or execute it again from its events."""
    if sum((execute, at is not None, event is not None)) > 1:
        raise ProctorError("--at, --event and --execute exclude each other: give one of them")
    if at is None and (from_start or out is not None):
        raise ProctorError("--from-start and --out belong to --at EPOCH")
    if execute or at is not None:
        run = start_as_recorded(home, run)
        from proctor.cli import jobs  # noqa: PLC0415 - torch takes seconds to import

        config = jobs.judge_config(limits, data_dir)
        if at is None:
            return jobs.execute(home, run, config=config)
        return jobs.rebuild(home, run, at, from_start=from_start, to=out, config=config)
    from proctor.runs.replay import describe_state, read_recording  # noqa: PLC0415 - loads aggregates

    recording = read_recording(home, run)
    if event is None:
        _tell_aside(recording.entries)
        return Output(
            lambda: [describe_entry(entry) for entry in recording.entries],
            lambda: _print_entries(recording.entries, number=True),
        )
    state = describe_state(recording.state(event))
    title = f"run {recording.run_id} after event {event}"
    return Output(state, lambda: print_table(("", ""), asdict(state).items(), title=title))


@app.command(long=True, prints=list[Entry] | Entry)
def log(
    home: Home,
    start: Annotated[int, "First index.", Takes(least=0, most=MOST)] = 0,
    count: Annotated[int, "Maximum number of entries.", Takes(least=1, most=MOST)] = 1_000_000,
    last: Annotated[int | None, "Only the newest N entries.", Takes(least=1, most=MOST)] = None,
    entry: Annotated[
        int | None, "Show this entry with its body.", Takes(least=0, most=MOST)
    ] = None,
) -> Output:
    """List the ledger's entries, or show one entry in full."""
    with open_remembered(home) as ledger:
        if entry is not None:
            found = next(iter(ledger.entries(start=entry)), None)
            if found is None:
                raise ProctorError(f"the ledger has entries 0 to {ledger.size - 1}; no {entry}")
            described = describe_entry(found)
            tell_unread(ledger)
            return Output(described, lambda: print_entry(described))
        if last is not None:
            start = max(start, ledger.size - last)
        chosen = list(islice(ledger.entries(start=start), count))
    tell_unread(ledger)
    _tell_aside(chosen)
    return Output(
        lambda: [describe_entry(each, body=False) for each in chosen],
        lambda: _print_entries(chosen, number=False),
    )


def _tell_aside(entries: list[VerifiedEntry]) -> None:
    from aggregates.registry import REGISTRY  # noqa: PLC0415 - loads all aggregates

    known = (each for each in entries if each.name not in AUTHORITY_EVENTS)
    tell_aside([each.index for each in known if not REGISTRY.readable(each.name, each.body)])


def _print_entries(entries: list[VerifiedEntry], *, number: bool) -> None:
    from proctor.output.summaries import tell_entry  # noqa: PLC0415 - loads aggregates

    for entry in entries:
        place = entry.stream_version if number else entry.index
        when = ns_to_datetime(entry.time_ns).strftime("%H:%M:%S")
        stream = "" if number else f"{str(entry.stream_id)[:8]} "
        told = words(on_one_line(tell_entry(entry)))
        console.print(f"[dim]{place:>5} {when} {stream}[/]{words(entry.name):<22} {told}")
