"""`proctor infra evolve`: look for changes of a line and judge them, unattended."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

import typer

from aggregates.improvement.evolution import Evolution
from judge.gauntlet.controller import Controller
from ledger.wording import counted
from policies.asking.settings import ModelSettings
from policies.errors import PolicyError
from policies.proposing.tuner import BASELINE, TECHNIQUES, scoreboard
from proctor.cli.checkpoints_bisect import describe_fault
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import MOST
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.evolve import Evolving, open_evolution, steer
from proctor.improvement.home import (
    LineOptions,
    line_folder,
)
from proctor.improvement.patterns import LineHistory
from proctor.improvement.proposers import ModelProposer, Proposer, ResetProposer, TunerProposer
from proctor.output.terminal import console, print_table, words
from proctor.runs.run_settings import read_pairs

TUNER, OPENAI = "tuner", "openai"
CANDIDATES = "candidates"  # below a line's folder

app = CommandGroup()


@app.command(prints="improvement.EvolutionReport")
def evolve(
    where: LineOptions,
    rounds: Annotated[int, typer.Option("--proposals", min=1, help="Number of rounds.")] = 1,
    policy: Annotated[
        str, typer.Option("--policy", help=f"Proposer: {TUNER} (no model), or {OPENAI}.")
    ] = TUNER,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of the model; see `run`."),
    ] = None,
    technique: Annotated[
        str | None,
        typer.Option(
            "--technique",
            help="Technique to use; by default the record decides. One of "
            f"{', '.join(TECHNIQUES)}.",
        ),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Start again with the initial texts.")
    ] = False,
    probes: Annotated[
        int,
        typer.Option(
            "--probes",
            min=0,
            help="Most probes after each round to find an older fault that it reveals; 0: no "
            "search.",
        ),
    ] = 16,
    switch: Annotated[
        bool | None, typer.Option("--on/--off", help="Turn evolution on or off for this line.")
    ] = None,
) -> Output:
    """Propose and judge changes for several rounds; the same command continues."""
    require_extra("train")
    if technique is not None and technique not in TECHNIQUES:
        raise ProctorError(f"unknown technique {technique!r}; choose from {', '.join(TECHNIQUES)}")
    with where.open() as controller:
        if switch is not None:
            steer(controller, "on" if switch else "off")
            told = _report(where.home, controller, ended=[], stopped=None)
        else:
            with _proposer(policy, settings or [], where.home, controller, reset=reset) as proposer:
                if reset:
                    steer(controller, "reset")
                    rounds, technique = 1, BASELINE
                loop = Evolving(
                    where.home, controller, proposer, technique=technique, probes=probes
                )
                ended = list(loop.run(rounds))
            told = _report(where.home, controller, ended=ended, stopped=loop.stopped)
            told["faults"] = [
                describe_fault(controller.line, each) for each in loop.faults.values()
            ]
    return Output(told, lambda: _tell(told), found=bool(told["stopped"]))


@app.command("challenge", prints="improvement.Candidates")
def challenge_(
    where: LineOptions,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MOST, help="Seed of the random draws.")
    ] = 0,
    count: Annotated[
        int, typer.Option("--count", min=1, max=1_000, help="Number of situations.")
    ] = 40,
) -> Output:
    """Search for situations that are decided wrongly; exit code 1 if there are any."""
    require_extra("train")
    from proctor.improvement.challenge import challenge  # noqa: PLC0415 - knows this repository's tasks

    with where.open() as controller:
        folder = line_folder(where.home, controller.line.id) / CANDIDATES
        found = challenge(controller, folder, seed=seed, count=count)

    def tell() -> None:
        console.print(words(f"{counted(found.tried, 'situation')} tried, {len(found.kept)} kept"))
        for name in found.kept:
            console.print(words(f"{found.folder / 'tasks' / name}"))

    return Output(
        {"tried": found.tried, "kept": found.kept, "folder": str(found.folder)},
        tell,
        found=bool(found.kept),
    )


@contextmanager
def _proposer(
    policy: str, pairs: list[str], home: Home, controller: Controller, *, reset: bool
) -> Iterator[Proposer]:
    given = read_pairs(pairs)
    if reset:
        yield ResetProposer()
    elif policy == TUNER:
        if given:
            raise PolicyError(
                f"the tuner takes no settings; leave out --set {', '.join(sorted(given))}"
            )
        yield TunerProposer()
    elif policy == OPENAI:
        from policies.asking.chat import ChatClient  # noqa: PLC0415 - openai takes long to import

        settings = ModelSettings.from_dict(given)
        client = ChatClient(settings, os.environ.get(settings.key_env))
        try:
            log = controller.place.log
            yield ModelProposer(settings, client=client, log=log, blobs=home.blobs)
        finally:
            client.close()
    else:
        raise ProctorError(f"unknown policy {policy!r}; choose {TUNER} or {OPENAI}")


def _report(
    home: Home,
    controller: Controller,
    *,
    ended: Sequence[Evolution.RoundEnded],
    stopped: str | None,
) -> dict[str, Any]:
    evolution = open_evolution(controller)
    history = LineHistory(home, controller.place.line_id, since=evolution.since)
    board = scoreboard(history.trials())
    return {
        "line": evolution.line,
        "on": evolution.on,
        "rounds": evolution.rounds,
        "left": evolution.left,
        "stopped": stopped or controller.line.halt,
        "head": controller.line.head.commit,
        "ended": [_describe(controller, each) for each in ended],
        "faults": [],
        "scoreboard": {
            name: {"wins": tally.wins, "losses": tally.losses, "ties": tally.ties}
            for name, tally in board.items()
            if tally.wins or tally.losses or tally.ties
        },
    }


def _describe(controller: Controller, ended: Evolution.RoundEnded) -> dict[str, Any]:
    told = {
        "round": ended.round,
        "outcome": ended.outcome,
        "proposal": ended.proposal,
        "technique": ended.technique,
        "pattern": ended.pattern,
        "reason": ended.reason,
    }
    if ended.proposal is not None:
        proposal = controller.place.proposal(UUID(ended.proposal))
        told["outcome"] = proposal.outcome or "waits"
        told["reason"] = proposal.reason or ended.reason
    return told


def _tell(told: dict[str, Any]) -> None:
    print_table(
        ("round", "outcome", "technique", "pattern", "reason"),
        [
            (
                each["round"],
                each["outcome"],
                each["technique"] or "-",
                each["pattern"] or "-",
                (each["reason"] or "")[:120],
            )
            for each in told["ended"]
        ],
    )
    for each in told["faults"]:
        console.print(words(each["says"]))
    for name, tally in told["scoreboard"].items():
        said = f"{name}: {tally['wins']} won, {tally['losses']} lost, {tally['ties']} neither"
        console.print(words(said))
    state = "on" if told["on"] else "off"
    console.print(
        words(
            f"evolution is {state}; {counted(told['rounds'], 'round')} so far, {told['left']} left"
        )
    )
    if told["stopped"]:
        console.print(words(f"stopped: {told['stopped']}"))
