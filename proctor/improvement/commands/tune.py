"""`proctor tune`: the advice block of a language model's prompt, its tests and its record."""

import shlex
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

from aggregates.improvement.advice import Advice
from ledger.wording import counted
from policies.asking.settings import MAX_NAME
from policies.proposing.tuner import LADDER, TECHNIQUES, Tally
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Argument, Takes, WriterOption, verify_unused
from proctor.cli.remedies import completed
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.home import DrawSeedOption
from proctor.improvement.reports import tell_rounds
from proctor.improvement.shapes import AdviceRound
from proctor.output.terminal import print_words, warn
from proctor.remembering import open_remembered, open_session
from proctor.runs.replay import Recording, read_streams

if TYPE_CHECKING:
    from proctor.improvement.tuning import Tuner

app = CommandGroup("tune", "Tune the advice block of a model's prompt, and test it on scenarios.")

_ORDERS = {"on": "on", "off": "off", "base": "reset"}  # as they are recorded
ModelArgument = Annotated[str, "Name of the model.", Argument("MODEL")]
_BOARD = "SELECT technique, wins, losses, ties FROM advice_scoreboard WHERE model = ? ORDER BY ALL"
_TAINTED = """
    SELECT UNNEST(taint_reasons) AS reason FROM advice_standing
    WHERE model = ? AND champion ORDER BY ALL"""
_WRONG = """
    WITH latest AS (
        SELECT r.run_id FROM run_starts AS r
        WHERE (r.policy ->> '$.model') = ? ORDER BY r.idx DESC LIMIT 5
    )
    SELECT
        v.kind, v.rule, v.emitter, SUM(v.times) AS times,
        LIST(DISTINCT a.run_id ORDER BY a.run_id)
    FROM violations AS v
    JOIN audits AS a USING (audit_id)
    JOIN latest AS l ON l.run_id = a.run_id
    WHERE v.emitter IN ('policy', 'driver')
    GROUP BY ALL ORDER BY times DESC, 1, 2"""


@app.command(prints="improvement.Advice")
def show(home: Home, model: ModelArgument) -> Output:
    """Show a model's advice block, the record of techniques, and all rounds."""
    home.require_ledger()
    return _shown(home, model)


@app.command(prints="improvement.Advice")
def use(
    home: Home,
    model: ModelArgument,
    what: Annotated[
        str,
        "on: runs with --tune use the block and tune it. off: they use no advice and "
        "propose none. base: begin again with an empty block; earlier rounds stay recorded "
        "but no longer count. The name of a candidate: the scenario counts from now on.",
        Argument("on|off|base|SCENARIO"),
    ],
) -> Output:
    """Choose whether a model gets its advice block, an empty one, or another scenario."""
    with _tuning(home, model), home.open_log() as log:
        if what not in _ORDERS:
            advice = _recorded(log.find(Advice.id_of(model), Advice), model)
            advice.admit_scenario(what)
        else:
            advice = log.find(Advice.id_of(model), Advice) or Advice.opened(model)
            if what == "base" and advice.open is not None:
                advice.end_round("abandoned", reason="the advice was reset", proposer="operator")
            advice.steer(_ORDERS[what])
        log.save(advice)
    return _shown(home, model)


@app.command("round", prints="improvement.Advice | improvement.Kept")
def round_(
    home: Home,
    model: ModelArgument,
    sets: Annotated[
        list[str] | None, "A setting of the model, as in `run`.", Takes("KEY=VALUE", option="--set")
    ] = None,
    writer: WriterOption = None,
    rounds: Annotated[int, "Number of rounds.", Takes(least=1)] = 1,
    technique: Annotated[
        str | None,
        "Technique to use; by default the record decides. One of "
        f"{', '.join((*LADDER, 'distillation'))}.",
    ] = None,
    challenge: Annotated[
        int | None,
        "Tune nothing: draw so many scenarios, and keep those that the model fails as "
        "candidates; exit code 1 if there are any.",
        Takes(least=1, most=1_000),
    ] = None,
    seed: DrawSeedOption = 0,
) -> Output:
    """Propose and test an advice block outside of a campaign, about the latest judged runs."""
    require_extra("train")
    if challenge is None:
        verify_unused("only with --challenge", seed=seed)
    if technique is not None and technique not in TECHNIQUES:
        raise ProctorError(f"unknown technique {technique!r}; choose from {', '.join(LADDER)}")
    from proctor.improvement.tuner import tuner_for  # noqa: PLC0415 - torch takes seconds to import
    from proctor.improvement.tuning import violated  # noqa: PLC0415 - likewise

    with tuner_for(home, [f"model={model}", *(sets or [])], writer or []) as tuner:
        if challenge is not None:
            return _challenged(tuner, seed, challenge)
        patterns = [violated(*row) for row in open_session(home).query(_WRONG, [model]).rows]
        for _ in range(rounds):
            if tuner.round(patterns, technique=technique).outcome == "nothing":
                break
    return _shown(home, model)


def _challenged(tuner: "Tuner", seed: int, count: int) -> Output:
    kept = tuner.challenge(seed=seed, count=count)
    lines = [f"{len(kept)} of {counted(count, 'scenario')} kept as candidates", *kept]
    return Output({"model": tuner.advice.model, "kept": kept}, "\n".join(lines), found=bool(kept))


def _shown(home: Home, model: str) -> Output:
    told = _report(home, model)
    return Output(told, lambda: _tell(told))


def _recorded(found: Advice | None, model: str) -> Advice:
    if found is None:
        raise ProctorError(
            f"no advice to a model named {model!r} is recorded; `proctor run --attempts 3 "
            "--tune` begins it"
        )
    return found


def _tuning(home: Home, model: str) -> AbstractContextManager[None]:
    """Wait until no other process tunes the model; raise ProctorError for what is no name."""
    if not (0 < len(model) <= MAX_NAME and model.isprintable() and model.strip()):
        raise ProctorError(
            f"MODEL must be a model's name of 1 to {MAX_NAME} printable characters, not {model!r}"
        )
    return home.alone("tuning", model, say=warn)


def _report(home: Home, model: str) -> dict[str, Any]:
    stream = Advice.id_of(model)
    with open_remembered(home) as ledger:
        entries = read_streams(ledger, {stream}).get(stream)
    advice = _recorded(Recording(stream, entries).state() if entries else None, model)
    session = open_session(home)
    return {
        "model": model,
        "on": advice.on,
        "version": advice.champion_version,
        "advice": advice.champion,
        "tainted": [reason for (reason,) in session.query(_TAINTED, [model]).rows],
        "rounds": [AdviceRound.of(each) for each in advice.tried],
        "scoreboard": {
            technique: Tally(wins=wins, losses=losses, ties=ties)
            for technique, wins, losses, ties in session.query(_BOARD, [model]).rows
        },
        "candidates": [name for name, each in advice.scenarios.items() if not each["admitted"]],
        "own_scenarios": [name for name, each in advice.scenarios.items() if each["admitted"]],
    }


def _tell(told: dict[str, Any]) -> None:
    state = "on" if told["on"] else "off"
    print_words(f"advice to {told['model']}: version {told['version']}, tuning is {state}")
    for reason in told["tainted"]:
        print_words(f"tainted: {reason}")
    if told["tainted"]:
        command = completed(f"proctor tune use {shlex.quote(told['model'])} base")
        print_words(f"next: `{command}` empties the block")
    if told["advice"]:
        print_words(told["advice"])
    tell_rounds(told["rounds"], told["scoreboard"], about="version")
    for name in told["candidates"]:
        print_words(f"candidate: {name}")
