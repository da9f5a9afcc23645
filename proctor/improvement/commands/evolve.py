"""`proctor line evolve`: look for changes of a line and judge them, unattended."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated, Any
from uuid import UUID

from aggregates.declared import build
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
from proctor.improvement.evolve import Evolving, asked_for, open_evolution, steer
from proctor.improvement.home import AskersOption, LineOptions
from proctor.improvement.patterns import LineHistory
from proctor.improvement.proposers import (
    ModelProposer,
    ModelsProposer,
    Proposer,
    TunerProposer,
)
from proctor.improvement.reports import tell_rounds
from proctor.improvement.rounds import Budget, Round, record_of, used_of
from proctor.improvement.shapes import EvolutionReport, EvolutionRound, ModelRecord, Used
from proctor.output.columns import fields, figures
from proctor.output.terminal import print_rows, print_words
from proctor.runs.run_settings import read_pairs

app = CommandGroup()


@app.command(prints="improvement.EvolutionReport")
def evolve(
    where: LineOptions,
    rounds: Annotated[int, "Number of rounds.", Takes(least=1, option="--proposals")] = 1,
    settings: Annotated[
        list[str] | None,
        "Setting of the language model that proposes, as in `run --set`; without one the "
        "tuner proposes. Each model=NAME adds one, with the settings after it and those before "
        "the first.",
        Takes("KEY=VALUE", option="--set"),
    ] = None,
    budget: Annotated[
        list[str] | None,
        "Begin no round once so much is used: tokens=N, cost=N (US dollars) or seconds=N.",
        Takes("KEY=VALUE"),
    ] = None,
    patience: Annotated[
        int | None, "Stop after so many rounds in a row without a promotion.", Takes(least=1)
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
    workers: AskersOption = 1,
    switch: Annotated[
        bool | None, "Turn evolution on or off for this line.", Takes(option="--on/--off")
    ] = None,
) -> Output:
    """Propose and judge changes for several rounds; the same command continues."""
    require_extra("train")
    if technique is not None and technique not in TECHNIQUES:
        raise ProctorError(f"unknown technique {technique!r}; choose from {', '.join(TECHNIQUES)}")
    models = _models(settings or [])
    limits = _budget(budget or [], models)
    ended: list[Evolution.RoundEnded] = []
    stopped, faults, seconds = None, list[LatentFault](), 0.0
    with where.open(workers=workers) as controller:
        if switch is not None:
            steer(controller, "on" if switch else "off")
        else:
            with _proposer(models, where.home, controller) as proposer:
                loop = Evolving(
                    where.home,
                    controller,
                    proposer,
                    technique=technique,
                    probes=probes,
                    budget=limits,
                    patience=patience,
                )
                ended = list(loop.run(rounds))
            stopped, faults, seconds = loop.stopped, list(loop.faults.values()), loop.seconds
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
            models=[*_records(history.rounds())],
            used=_used(asked_for(where.home, evolution)),
            seconds=round(seconds, 3),
        )
    return Output(told, lambda: _tell(told), found=bool(told.stopped))


@contextmanager
def _proposer(
    models: Sequence[ModelSettings], home: Home, controller: Controller
) -> Iterator[Proposer]:
    with ExitStack() as clients:
        asked = {
            each.model: ModelProposer(
                settings=each,
                client=clients.enter_context(closing(open_client(each))),
                log=controller.place.log,
                blobs=home.blobs,
            )
            for each in models
        }
        if len(asked) > 1:
            yield ModelsProposer(asked)
        else:
            yield next(iter(asked.values()), TunerProposer())


def _models(pairs: Sequence[str]) -> list[ModelSettings]:
    """Return the models that settings describe: `model=` begins one, and what is before is shared.

    Raises ProctorError or PolicyError for what describes none.
    """
    if not pairs:
        return []
    parts: list[list[str]] = [[]]
    for pair in pairs:
        if pair.startswith("model="):
            parts.append([])
        parts[-1].append(pair)
    shared, *own = map(read_pairs, parts)
    found = [ModelSettings.from_dict({**shared, **each}) for each in own or [shared]]
    names = [each.model for each in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ProctorError(f"two models are named {twice}; give each --set model= another name")
    return found


def _budget(pairs: Sequence[str], models: Sequence[ModelSettings]) -> Budget:
    """Return the budget; raises ProctorError for what is none, or could not be kept."""
    asked = read_pairs(pairs)
    try:
        budget = build(Budget, asked, error=ProctorError, suggest=True)
    except ProctorError as error:
        raise ProctorError(f"--budget: {error}") from error
    if not models and (budget.tokens or budget.cost):
        raise ProctorError(
            "--budget: tokens and cost are a language model's; give --set model=NAME or seconds=N"
        )
    for each in models if budget.cost else ():
        if each.price_in is None or each.price_out is None:
            raise ProctorError(
                f"--budget cost: the prices of {each.model} are unknown; give --set price_in=N "
                "--set price_out=N, or tokens=N"
            )
    return budget


def _describe(controller: Controller, ended: Evolution.RoundEnded) -> EvolutionRound:
    told = EvolutionRound.of(ended)
    if ended.proposal is not None:
        proposal = controller.place.proposal(UUID(ended.proposal))
        told.outcome = proposal.outcome or "waits"
        told.reason = proposal.reason or ended.reason
    return told


def _records(rounds: Sequence[Round]) -> Iterator[ModelRecord]:
    for name, tally in record_of(rounds).items():
        own = [each for each in rounds if each.model == name]
        yield ModelRecord.of(_used(own), model=name, rounds=len(own), promoted=tally.wins)


def _used(rounds: Sequence[Round]) -> Used:
    known: dict[str, Any] = {name: used_of(rounds, name) for name in ("tokens", "cost")}
    return Used(calls=sum(each.calls for each in rounds), **known)


def _tell(told: EvolutionReport) -> None:
    tell_rounds(told.ended, told.scoreboard, about="pattern")
    for each in told.faults:
        print_words(each["says"])
    state = "on" if told.on else "off"
    print_words(f"evolution is {state}; {counted(told.rounds, 'round')} so far, {told.left} left")
    if told.models:
        print_rows(
            [*fields("model"), *figures("rounds", "promoted", "calls", "tokens", "cost")],
            told.models,
        )
        used = told.used
        tokens = "tokens unknown" if used.tokens is None else f"{used.tokens:,} tokens"
        cost = "cost unknown" if used.cost is None else f"${used.cost:.4f}"
        print_words(f"this request has used {tokens}, {cost}; this command {told.seconds:.0f} s")
    if told.stopped:
        print_words(f"stopped: {told.stopped}")
