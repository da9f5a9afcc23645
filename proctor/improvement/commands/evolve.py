"""`proctor line evolve`: look for changes of a line and judge them, unattended."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated
from uuid import UUID

from aggregates.improvement.evolution import Evolution
from judge.bisection.latent import LatentFault
from judge.gauntlet.controller import Controller
from ledger.wording import counted
from policies.asking.ask import open_client
from policies.asking.settings import ModelSettings
from policies.proposing.tuner import TECHNIQUES, Tally, scoreboard
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Takes
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.commands.bisect import describe_fault
from proctor.improvement.evolve import Evolving, open_evolution, steer
from proctor.improvement.home import LineOptions
from proctor.improvement.patterns import LineHistory
from proctor.improvement.proposers import ModelProposer, Proposer, TunerProposer
from proctor.improvement.reports import tell_rounds
from proctor.improvement.shapes import EvolutionReport, EvolutionRound
from proctor.output.terminal import print_words
from proctor.runs.run_settings import read_pairs

app = CommandGroup()


@app.command(prints="improvement.EvolutionReport")
def evolve(
    where: LineOptions,
    rounds: Annotated[int, "Number of rounds.", Takes(least=1, option="--proposals")] = 1,
    settings: Annotated[
        list[str] | None,
        "Setting of the language model that proposes, as in `run --set`; without one the "
        "tuner proposes, which asks no model.",
        Takes("KEY=VALUE", option="--set"),
    ] = None,
    technique: Annotated[
        str | None,
        f"Technique to use; by default the record decides. One of {', '.join(TECHNIQUES)}.",
    ] = None,
    probes: Annotated[
        int,
        "Most probes after each round to find an older fault that it reveals; 0: no search.",
        Takes(least=0),
    ] = 16,
    switch: Annotated[
        bool | None, "Turn evolution on or off for this line.", Takes(option="--on/--off")
    ] = None,
) -> Output:
    """Propose and judge changes for several rounds; the same command continues."""
    require_extra("train")
    if technique is not None and technique not in TECHNIQUES:
        raise ProctorError(f"unknown technique {technique!r}; choose from {', '.join(TECHNIQUES)}")
    ended: list[Evolution.RoundEnded] = []
    stopped, faults = None, list[LatentFault]()
    with where.open() as controller:
        if switch is not None:
            steer(controller, "on" if switch else "off")
        else:
            with _proposer(settings or [], where.home, controller) as proposer:
                loop = Evolving(
                    where.home, controller, proposer, technique=technique, probes=probes
                )
                ended = list(loop.run(rounds))
            stopped, faults = loop.stopped, list(loop.faults.values())
        evolution, line = open_evolution(controller), controller.line
        history = LineHistory(where.home, line.id, since=evolution.since)
        board = scoreboard(history.trials())
        told = EvolutionReport.of(
            evolution,
            stopped=stopped or line.halt,
            head=line.head.commit,
            ended=[_describe(controller, each) for each in ended],
            faults=[describe_fault(line, each) for each in faults],
            scoreboard={name: tally for name, tally in board.items() if tally != Tally()},
        )
    return Output(told, lambda: _tell(told), found=bool(told.stopped))


@contextmanager
def _proposer(pairs: list[str], home: Home, controller: Controller) -> Iterator[Proposer]:
    if not pairs:
        yield TunerProposer()
    else:
        settings = ModelSettings.from_dict(read_pairs(pairs))
        with closing(open_client(settings)) as client:
            log = controller.place.log
            yield ModelProposer(settings=settings, client=client, log=log, blobs=home.blobs)


def _describe(controller: Controller, ended: Evolution.RoundEnded) -> EvolutionRound:
    told = EvolutionRound.of(ended)
    if ended.proposal is not None:
        proposal = controller.place.proposal(UUID(ended.proposal))
        told.outcome = proposal.outcome or "waits"
        told.reason = proposal.reason or ended.reason
    return told


def _tell(told: EvolutionReport) -> None:
    tell_rounds(told.ended, told.scoreboard, about="pattern")
    for each in told.faults:
        print_words(each["says"])
    state = "on" if told.on else "off"
    print_words(f"evolution is {state}; {counted(told.rounds, 'round')} so far, {told.left} left")
    if told.stopped:
        print_words(f"stopped: {told.stopped}")
