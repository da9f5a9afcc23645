"""`proctor run --attempts`, which trains and judges."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.metadata import entry_points
from typing import Any
from uuid import UUID

from aggregates.campaign import PROCESS, Campaign
from aggregates.run import Run
from judge.auditing.scores import validation_examples
from judge.config import JudgeConfig
from ledger.application import LedgerApplication
from ledger.wording import counted
from monitor.config import RunConfig
from proctor.cli.command_group import Output
from proctor.cli.jobs import judge_here, print_cut_off, print_ranked_by, trainer, verify_ready
from proctor.cli.training import AttemptOptions, TrainingOptions
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import console, print_rows, print_table, print_words, warn, words
from proctor.runs.campaign_feedback import read_attempt_draws, read_standings, read_verdict
from proctor.runs.campaign_run import Harness, Task, read_spent, read_tuning
from proctor.runs.jobs import data_of
from proctor.runs.policies import PolicyChoice
from proctor.runs.progress import watching
from proctor.runs.run_settings import read_pairs
from proctor.runs.shapes import Attempt, CutOff
from proctor.runs.shapes import Campaign as Told
from proctor.runs.standings import told_attempts, told_better
from proctor.runs.transcript_log import read_tally

_SCORES = ("hard_fail", "process_score", "accuracy_score", "validation_accuracy")
_COLUMNS = (
    "rank",
    "number",
    "run",
    "state",
    "epochs",
    "process_score",
    "accuracy_score",
    "validation_accuracy",
    "violations",
    "retrained",
    "signed",
    "calls",
    "tokens",
    "cost",
)


def campaign(home: Home, config: RunConfig, how: TrainingOptions, asked: AttemptOptions) -> Output:
    """Begin a campaign, carry it on, or tell how it ended."""
    writer, policy = asked.writer or [], how.policy
    choice = PolicyChoice.read(policy, how.sets or [])
    task = Task(
        config,
        choice.to_dict(),
        asked.attempts or 1,
        asked.feedback is not False,
        asked.name,
        asked.tune,
        asked.rank_by or PROCESS,
    )
    if writer and not asked.tune:
        raise ProctorError("--writer needs --tune: it is the model that writes the advice")
    if asked.tune and choice.settings is None:
        raise ProctorError(f"--tune needs a model to tune: the policy {policy} asks none")
    judge = JudgeConfig.for_own_run(read_pairs(asked.limits or []))
    splits = data_of(config)
    verify_ready(home, choice, campaign=True, tune=asked.tune)
    with home.open_log() as log:
        before = task.find(log)
        if before is None or before.ranking is None:
            _verify_ranking(len(splits.validation), judge)
        opened = task.open(log)
        if opened.ranking is None:
            with (
                _tuning()(home, log, choice.settings, writer, say=warn)
                if asked.tune
                else nullcontext() as tuner,
                trainer(home, log, choice, how.executor) as executor,
            ):
                harness = Harness(
                    home,
                    log,
                    opened,
                    executor=executor,
                    choice=choice,
                    judge_run=partial(judge_here, home, log, config=judge),
                    splits=splits,
                    watching=watching(),
                    tuning=tuner,
                )
                harness.carry_on()
                harness.end("completed")
                opened = harness.campaign
        found = describe_campaign(home, log, opened)
    unfit = sum(bool(attempt.why_not) for attempt in found.attempts)
    note = (
        f"{counted(unfit, 'attempt')} {'does' if unfit == 1 else 'do'} not fit what the run itself "
        "recorded; somebody with the ledger's key has put other runs there"
    )
    return Output(
        found, lambda: _print_campaign(found), found=bool(unfit), note=note if unfit else ""
    )


def _tuning() -> Callable[..., AbstractContextManager[Any]]:
    """Return what makes the tuner of a model's advice, from the entry point of a pack."""
    for each in entry_points(group="proctor.tuning"):
        found: Callable[..., AbstractContextManager[Any]] = each.load()
        return found
    raise ProctorError("--tune needs a pack that tunes advice, and none is installed")


def _verify_ranking(examples: int, judge: JudgeConfig) -> None:
    """Raise ProctorError where too few examples would decide which attempt is the best."""
    least = judge.min_validation_examples
    if examples < least:
        raise ProctorError(
            f"the validation set has {counted(examples, 'example')}, too few to rank attempts: the "
            f"standard error of an accuracy on {examples} is up to {0.5 / examples**0.5:.2f}; set "
            f"val_examples to {least} or more, or give --limit min_validation_examples={examples}"
        )


def describe_campaign(home: Home, log: LedgerApplication, opened: Campaign) -> Told:
    """Return a campaign: attempts in order, their verdicts, what it has cost.

    Verdicts and ranks come from the audits that count, whichever the campaign names.
    """
    standings = read_standings(home, opened.id)
    ranked = sorted(
        ((row["place"], run) for run, row in standings.items() if row["place"] is not None)
    )
    ranking = [run for _, run in ranked]
    return Told.of(
        opened,
        read_spent(log, opened),
        campaign=opened.id,
        ended=opened.ranking is not None,
        attempts=[
            _attempt(log, run, standings[run], number=number, ranking=ranking)
            for number, run in enumerate(opened.runs, start=1)
        ],
        ranking=ranking,
        recorded_ranking=opened.ranking or [],
        abandoned=[CutOff.read(run, log.events.get(UUID(run))) for run in opened.abandoned],
        draws=read_attempt_draws(home, opened.id),
        tuning=read_tuning(log, opened),
    )


def _attempt(
    log: LedgerApplication,
    run_id: str,
    standing: Mapping[str, Any],
    *,
    number: int,
    ranking: Sequence[str],
) -> Attempt:
    verdict = None if standing["audit"] is None else read_verdict(log, standing["audit"])
    run: Run = log.repository.get(UUID(run_id))
    return Attempt.of(
        standing,
        read_tally(log, [run_id]),
        dict.fromkeys(_SCORES) if verdict is None else verdict.scores,
        number=number,
        rank=ranking.index(run_id) + 1 if run_id in ranking else None,
        run=run_id,
        state=run.end_reason,
        epochs=run.epoch + 1,
        validation_examples=verdict and validation_examples(verdict),
        violations=verdict and verdict.found,
    )


def _print_campaign(found: Told) -> None:
    told = "with" if found.feedback else "without"
    console.print(
        words(f"campaign {found.campaign}: {found.mode}, {told} feedback; no reinforcement ")
        + "learning"
    )
    ranked = sorted(found.attempts, key=lambda attempt: (attempt.rank is None, attempt.rank or 0))
    print_rows(_COLUMNS, ranked)
    known = {attempt.validation_examples for attempt in ranked}
    print_ranked_by(found.ranked_by, known.pop() if len(known) == 1 else None)
    placed = [
        (each.number, each.process_score, each.validation_accuracy) for each in ranked if each.rank
    ]
    if better := told_better(placed, found.ranked_by):
        print_words(better)
    if found.ranking != found.recorded_ranking:
        console.print(
            "[yellow]the campaign recorded another ranking[/]: later audits checked more, or the "
            "audits that it names do not count"
        )
    if unfit := [attempt for attempt in found.attempts if attempt.why_not]:
        print_table(
            ("attempt", "run", "why it does not fit"),
            [[each.number, each.run, "; ".join(each.why_not)] for each in unfit],
            title="attempts that have no place",
        )
    print_words(told_attempts(found.draws, str(found.campaign)))
    print_cut_off(found.abandoned)
    cost = "unknown" if found.cost is None else f"${found.cost:.4f}"
    spent = f"{counted(found.calls, 'call')}, {counted(found.tokens, 'token')}"
    tuning = found.tuning
    if tuning.calls:
        spent += (
            f" (of them {counted(tuning.calls, 'call')} and "
            f"{counted(tuning.tokens, 'token')} to write and test the advice)"
        )
    console.print(f"{spent}, cost {cost}")
