"""The subcommands that train or judge; every function returns the exit code.

They are apart from the commands themselves because they need torch, which takes seconds to import.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from aggregates.audit import unchecked
from aggregates.campaign import PROCESS, Campaign
from aggregates.rules import PROFILES
from aggregates.run import Run
from judge.auditing.audit import audit_record, refuse
from judge.auditing.gates import Redo
from judge.auditing.report import AuditReport, UnrecordedError
from judge.compare import Difference
from judge.config import JudgeConfig
from ledger.application import LedgerApplication
from ledger.errors import VerificationError
from ledger.paths import LedgerPaths
from ledger.verification.reader import VerificationReport, check_ledger
from ledger.wording import counted
from monitor.config import RunConfig, TaskConfig
from monitor.datasets import Splits
from policies.asking.fields import advice
from policies.deciding.named import named_policy
from policies.deciding.recorded import RecordedPolicy
from proctor.cli.command_group import Output
from proctor.cli.judging import Judged, read_judged
from proctor.cli.training import TrainingOptions
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.entries import Verification
from proctor.output.files import verify_target, write_output
from proctor.output.progress import unseen
from proctor.output.terminal import (
    cell,
    console,
    error_console,
    print_rows,
    print_table,
    told_level,
    told_score,
    told_verdict,
    warn,
    words,
)
from proctor.remembering import TrainedStates, open_remembered
from proctor.runs.campaign_replay import (
    read_records,
    redo_campaign,
    redo_comparison,
    redo_run,
)
from proctor.runs.campaign_run import MAX_RESTARTS, Harness, rank_runs
from proctor.runs.executors import Executor, Kind, open_executor, trained
from proctor.runs.forks import read_parent, rebuild_state
from proctor.runs.jobs import Job, data_of
from proctor.runs.policies import HUMAN, PolicyChoice
from proctor.runs.progress import watching
from proctor.runs.run_settings import DEFAULT_POLICY, read_pairs
from proctor.runs.shapes import (
    Audit,
    CampaignAgain,
    ComparisonAgain,
    CutOff,
    Demo,
    Rebuilt,
    RunAgain,
    Trained,
)
from proctor.runs.standings import told_ranking
from proctor.runs.story import (
    print_lost,
    print_unsigned,
    print_violations,
    print_waived,
    read_story,
    tell_story,
    told_refused,
)
from proctor.runs.tasks import read_task_file

_ODD = (AttributeError, IndexError, KeyError, TypeError, ValueError)  # what odd records raise


def demo(home: Home, config: RunConfig) -> Output:
    """Do the main job once."""
    splits = data_of(config)
    with home.open_log() as log:
        (run_id,) = _train(home, log, config, PolicyChoice(DEFAULT_POLICY), splits)
        report = judge_here(home, log, run_id, redo=Redo(_recorded_policy))
    checked = check_ledger(home.ledger)

    def tell() -> None:
        tell_story(read_story(home, str(run_id)))
        size, head = counted(checked.size, "entry"), checked.complete_to
        console.print(f"\nledger: {size}, complete to tree head {head}")
        place = f"--home {shlex.quote(str(home.path))} " if home.path != Path(".proctor") else ""
        program = sys.argv[0] if Path(sys.argv[0]).name == "proctor" else "proctor"
        console.print("\nnext:")
        for command, why in (
            ("verify", "check every link and signature with the public key"),
            ("show", "this run's story again"),
            ('sql "SELECT rule, epoch, outcome FROM rule_heatmap WHERE fired"', "ask anything"),
            ("replay", "the run, event by event"),
            ("replay --execute", "do the training again and compare it bit for bit"),
        ):
            console.print(words(f"  {program} {command} {place}").ljust(82) + why)

    return Output(
        Demo(run=run_id, audit=Audit.of(report), verification=Verification.of(checked)),
        tell,
        found=bool(report.hard_fail or not checked.ok),
    )


def run(home: Home, config: RunConfig, how: TrainingOptions) -> Output:
    """Train."""
    choice = PolicyChoice.read(how.policy, how.sets or [])
    splits = data_of(config)
    verify_ready(home, choice, campaign=config.edits != "live")
    if choice.goes_back and not PROFILES[config.profile].kept_states:
        warn(
            f"the rules {config.profile} keep no states, so the policy {choice.name} answers as "
            "the playbook; add profile=relative to let it go back"
        )
    with home.open_log() as log:
        runs = _train(home, log, config, choice, splits, how.executor)
    told = [read_story(home, str(run_id)) for run_id in runs]
    stories = [each["summary"] for each in told]
    lost = _warn_refused(told, choice)
    shown = ("run_id", "state", "epochs", "best_val_accuracy", "firings", "decisions")

    def tell() -> None:
        print_rows(shown, stories)
        for each in told:
            print_lost(each)
        if config.edits != "live":
            print_ranked_by(PROCESS, len(splits.validation))

    return Output(Trained(runs=stories), tell, found=lost)


def run_a_task(home: Home, path: Path, config: TaskConfig, how: TrainingOptions) -> Output:
    """Train the model and data of a task's file."""
    choice = PolicyChoice.read(how.policy, how.sets or [])
    verify_ready(home, choice, campaign=False)
    if choice.goes_back and not config.goes_back:
        warn(
            f"this task keeps no states, so the policy {choice.name} answers as the playbook; "
            "leave profile and goes_back at their defaults to let it go back"
        )
    job = Job(home.path, str(uuid4()), config, choice, read_task_file(path))
    with home.open_log() as log:
        run_id = _train_one(home, log, job, how.executor)
    story = read_story(home, str(run_id))
    lost, summary = _warn_refused([story], choice), story["summary"]
    shown = {
        **{column: column for column in ("run_id", "state", "epochs")},
        f"best_val_{config.metric}": "best_val_metric",
        **{column: column for column in ("firings", "decisions")},
    }

    def tell() -> None:
        print_rows(shown, [summary])
        print_lost(story)

    return Output(Trained(runs=[summary]), tell, found=lost)


def _warn_refused(stories: Sequence[Mapping[str, Any]], choice: PolicyChoice) -> bool:
    """Say of runs that their model's server refused from some call on; return whether one did."""
    for story in stories:
        if (refused := told_refused(story)) is not None and choice.settings is not None:
            helps = advice(choice.settings, story["refused"][0]["status"])
            warn(f"run {story['summary']['run_id']}: {refused}; {helps}")
    return any(story["refused"] for story in stories)


def judge(
    home: Home,
    name: str,
    checked: VerificationReport,
    judged: Judged | None,
    *,
    submission: Path | None,
    execute: bool,
    sample: bool,
    config: JudgeConfig,
) -> Iterator[Output]:
    """Audit a run that look_up() has found."""
    redo, unrecorded = None, None
    if execute:
        redo = Redo(_recorded_policy, TrainedStates(home.blobs), sample=sample)
    audit = partial(_audit, home, submission=submission, redo=redo, config=config)
    if judged is None:  # nothing is appended to a ledger that does not hold
        report = _refuse(name, checked, config)
    elif home.writable:
        with home.open_log() as log:  # which closes a run whose process was killed
            if not judged.record.ended:
                judged = read_judged(home, judged.record.run)
            try:
                report = audit(judged, log=log)
            except UnrecordedError as error:
                report, unrecorded = error.report, error
    else:  # somebody else's ledger: judged all the same, and not written to
        report = audit(judged, log=None)
        error_console.print("the audit was not recorded: you cannot write to this ledger")
    signed = None if judged is None or report.audit_id is None else judged.author is not None
    return _told(report, signed=signed, unrecorded=unrecorded)


def _told(
    report: AuditReport, *, signed: bool | None, unrecorded: UnrecordedError | None
) -> Iterator[Output]:
    """Yield what an audit has found; raise why it is not in the ledger, if it could not be."""
    yield Output(
        Audit.of(report), lambda: _print_report(report, signed=signed), found=report.hard_fail
    )
    if unrecorded is not None:
        raise unrecorded


def judge_one(
    home: Home, run: UUID, *, execute: bool, sample: bool, config: JudgeConfig
) -> AuditReport:
    """Audit one of several runs, and record it."""
    redo = Redo(_recorded_policy, TrainedStates(home.blobs), sample=sample) if execute else None
    with home.open_log() as log:
        return judge_here(home, log, run, redo=redo, config=config)


def execute(home: Home, name: str, *, config: JudgeConfig) -> Output:
    """Do a run, campaign or comparison again from its events alone and compare everything."""
    try:
        again = _again(home, name, config)
    except _ODD as error:
        raise ProctorError(
            f"the record of {name} does not replay: {type(error).__name__}: {error}"
        ) from error
    return Output(again, lambda: _print_again(again), found=not again.same)


def rebuild(
    home: Home, name: str, epoch: int, *, from_start: bool, to: Path | None, config: JudgeConfig
) -> Output:
    """Rebuild the training state of a run after an epoch, and write it to a file if asked for."""
    if to is not None:
        verify_target(to, home=home)
    parent = read_parent(home, name)
    found = rebuild_state(home, parent, epoch, from_start=from_start, config=config)
    if to is not None:
        write_output(to, found.state, home=home)

    def tell() -> None:
        begun = "the start" if found.since is None else f"the snapshot of epoch {found.since}"
        console.print(
            f"state of run {parent.run.id} after epoch {epoch}, before its decisions: "
            f"{found.sha256}, {counted(len(found.state), 'byte')}\n"
            f"rebuilt from {begun}: {counted(found.epochs, 'epoch')} trained again, "
            f"{counted(found.values, 'value')} as recorded"
        )
        saved = (each for each in parent.events if type(each) is Run.SnapshotSaved)
        costs = [(each.epoch, each.size, each.seconds) for each in saved]
        if costs:
            print_table(("snapshot of epoch", "bytes", "seconds"), costs)

    return Output(Rebuilt.of(found, run=parent.run.id, file=to), tell)


def _again(
    home: Home, name: str, config: JudgeConfig
) -> RunAgain | CampaignAgain | ComparisonAgain:
    records = read_records(home, name)
    on_epoch = watching().on_epoch
    if records.whole_campaign:
        return redo_campaign(home, records, config=config, on_epoch=on_epoch, say=warn)
    if records.comparison is not None:
        return redo_comparison(home, records, config=config, on_epoch=on_epoch, say=warn)
    run_id = str(records.chosen)
    warn(f"run {run_id} again")
    return redo_run(home, records, run_id, config=config, on_epoch=on_epoch)


def verify_ready(home: Home, policy: PolicyChoice, *, campaign: bool, tune: bool = False) -> None:
    """Raise where what is about to be trained could not be recorded, or would be beside damage.

    VerificationError: the ledger does not hold. ProctorError: a notary will not take all of it.
    """
    wanted = ["run.started"]
    wanted += ["transcript.started"] if policy.records_calls else []
    wanted += ["campaign.started", "audit.started"] if campaign else []
    wanted += ["advice.opened"] if tune else []
    if refused := [name for name in wanted if not home.may_append(name)]:
        raise ProctorError(
            f"the notary takes no {' and no '.join(refused)} from this user, and they would have "
            "to be recorded: its rules say who may append what"
        )
    paths = LedgerPaths(home.ledger)
    if paths.exist and paths.vkey.exists():
        with open_remembered(home):
            pass  # it has been verified


@contextmanager
def trainer(
    home: Home, log: LedgerApplication, choice: PolicyChoice, kind: Kind
) -> Iterator[Executor]:
    """Give what trains one run after the other; a person who decides sees no progress."""
    with (
        unseen(when=choice.name == HUMAN),
        open_executor(kind, home, log, workers=1, watching=watching(), choices=[choice]) as opened,
    ):
        yield opened


def _train_one(home: Home, log: LedgerApplication, job: Job, executor: Kind) -> UUID:
    assert job.choice is not None, "it is no fork"
    with trainer(home, log, job.choice, executor) as opened:
        (job,) = trained(
            opened, [job], lambda lost: replace(lost, run=str(uuid4())), what="the training"
        )
    return UUID(job.run)


def _train(
    home: Home,
    log: LedgerApplication,
    config: RunConfig,
    policy: PolicyChoice,
    splits: Splits,
    executor: Kind = "local",
) -> list[UUID]:
    """Train, with every restart that is scheduled on the way; return the runs, the best first.

    Runs that follow one another are a campaign; they are judged as they end, to be ranked.
    """
    if config.edits == "live":
        return [_train_one(home, log, Job(home.path, str(uuid4()), config, policy), executor)]
    with trainer(home, log, policy, executor) as opened:
        campaign = Campaign.start(
            config=config.to_dict(), attempts=MAX_RESTARTS + 1, policy=policy.to_dict()
        )
        log.save(campaign)
        harness = Harness(
            home,
            log,
            campaign,
            executor=opened,
            choice=policy,
            judge_run=partial(judge_here, home, log, config=JudgeConfig.for_own_run()),
            splits=splits,
            watching=watching(),
        )
        reason = "failed"
        try:
            following = harness.carry_on(chain=True)
            reason = "completed" if following is None else "restarts exhausted"
        except KeyboardInterrupt:
            reason = "interrupted"
            raise
        finally:
            harness.end(reason)
    return [UUID(run_id) for run_id in rank_runs(harness.verdicts, campaign.ranked_by)]


def judge_here(
    home: Home,
    log: LedgerApplication,
    run_id: UUID,
    *,
    redo: Redo | None = None,
    config: JudgeConfig | None = None,
) -> AuditReport:
    """Judge a run of this home, and append the verdict to the log."""
    try:
        judged = read_judged(home, run_id)
    except VerificationError as error:
        return refuse(
            run_id, str(error), index=error.index, kind=type(error).__name__, config=config
        )
    return _audit(home, judged, log=log, redo=redo, config=config)


def _audit(
    home: Home,
    judged: Judged,
    *,
    log: LedgerApplication | None,
    submission: Path | None = None,
    redo: Redo | None,
    config: JudgeConfig | None,
) -> AuditReport:
    return audit_record(
        judged.record,
        submission_dir=submission or home.submission(judged.record.run),
        config=config,
        log=log,
        author=judged.author,
        redo=redo,
        named=named_policy,
    )


def judge_config(limits: Sequence[str] | None, data_dir: Path | None = None) -> JudgeConfig:
    """Return the judge's settings from the command line."""
    place = None if data_dir is None else str(data_dir.resolve())
    return JudgeConfig.limited(read_pairs(limits or []), data_dir=place)


def _recorded_policy(run: Run) -> RecordedPolicy:
    return RecordedPolicy(run.decisions, run.policy)


def _refuse(name: str, checked: VerificationReport, config: JudgeConfig) -> AuditReport:
    try:
        run_id = UUID(name)
    except ValueError:
        raise VerificationError(
            f"the ledger is invalid: {checked.error}. No run can be looked up in it (see `proctor "
            "verify`); give the whole run id to get that as the verdict"
        ) from None
    kind = str(checked.error_type)
    return refuse(run_id, str(checked.error), index=checked.index, kind=kind, config=config)


def _print_report(report: AuditReport, *, signed: bool | None) -> None:
    """Print a verdict; `signed` tells whether with a judge's key, None if it was not recorded."""
    print_table(
        ("step", "", "status", ""),
        [(step.step, step.name, step.status, step.summary) for step in report.steps],
        title=f"audit of run {report.run_id}",
    )
    if signed is False:
        print_unsigned()
    print_violations(violation.to_dict() for violation in report.violations)
    if report.violations:
        console.print("how violations lower the process score: docs/explanation/scores.md")
    if off := report.config.get("disabled"):
        console.print(f"[yellow]checks switched off: {', '.join(off)}[/]")
    print_waived(report.step("ledger").evidence.get("waived", {}))
    for what in unchecked(asdict(step) for step in report.steps):
        console.print(f"[yellow]not checked[/]: {words(what)}")
    level = told_level(report.level)
    if level:
        console.print(level)
    if report.hard_fail:
        console.print("[red]hard fail[/]: a gate did not hold; both scores are 0")
    else:
        _print_scores(report)
        if not report.executed and level is None:
            console.print("[yellow]not retrained[/]: the recorded measurements were trusted")


def _print_scores(report: AuditReport) -> None:
    scores = report.scores
    told = report.step("scores").evidence
    axis = "exercised"
    if not scores.process_axis_exercised:
        axis = f"unexercised: {words(told['unexercised'])}"
    elif by := told.get("provocation"):
        axis += f" by the provocation {words(by['name'])}"
    verdict = "held" if report.level in (None, "repeatable") else "consistent"
    told_as, _ = told_verdict(verdict, violations=bool(report.violations))
    tested = f"accuracy {cell(scores.test_accuracy)}, target {cell(scores.target_accuracy)}"
    of_task = report.step("test_accuracy").evidence
    if scores.accuracy_score is None and "metric" in of_task:
        tested = f"{words(of_task['metric'])} {cell(of_task['value'])}"
    console.print(
        f"verdict        {told_as}\n"
        f"accuracy score {told_score(scores.accuracy_score)} (test {tested})\n"
        f"process score  {scores.process_score:.3f} "
        f"({counted(len(report.violations), 'violation')} in "
        f"{counted(scores.obligations, 'obligation')}, {axis})"
    )


def _print_again(again: RunAgain | CampaignAgain | ComparisonAgain) -> None:
    if isinstance(again, RunAgain):
        _print_run(again)
        return
    if isinstance(again, ComparisonAgain):
        what, name, runs = "comparison", again.comparison, again.runs
        done = f"{counted(len(runs), 'run')} trained and judged again"
    else:
        what, name, runs = "campaign", again.campaign, again.attempts
        done = f"{counted(len(runs), 'attempt')} trained and judged again, "
        done += "feedback and ranking derived again"
    for run in runs:
        _print_run(run)
    if isinstance(again, CampaignAgain):
        print_cut_off(again.abandoned)
    _print_differences(f"differences of the {what}", again.differences)
    verdict = "[green]all the same[/]" if again.same else "[red]not the same[/]"
    console.print(f"{what} {name}: {done}: {verdict}")


def print_ranked_by(by: str, examples: int | None) -> None:
    """Print by what attempts are ranked, and on how many examples that rests."""
    rests = "" if examples is None else f" (on {counted(examples, 'example')})"
    console.print(f"ranked by {told_ranking(by, rests)}; retrained attempts come first")


def print_cut_off(attempts: Sequence[CutOff]) -> None:
    """Print the attempts that a campaign's ranking leaves out."""
    if attempts:
        print_rows(
            ("run", "state", "epochs", "best_validation_accuracy"),
            attempts,
            title="cut off and made again: each a further draw, in no ranking",
        )


def _print_run(found: RunAgain) -> None:
    console.print(
        f"run {found.run_id} done again, {counted(found.epochs, 'epoch')}"
        + ("" if found.whole else " (as far as it was recorded)")
    )
    verdict = (
        "[green]the same, bit for bit[/]" if not found.total else f"[red]{found.total} differ[/]"
    )
    if found.kind and found.total:
        verdict += f"; inconclusive, since the run was made with another {' and '.join(found.kind)}"
    console.print(
        f"{counted(found.values, 'value')} in {counted(found.events, 'event')}: {verdict}"
    )
    _print_differences("differences", found.differences)
    _print_differences("environment", found.environment)
    if found.calls or found.policy:
        follow = "[red]do not follow[/]" if found.policy else "[green]follow[/]"
        console.print(
            f"decisions {follow} from what is recorded of {counted(found.calls, 'call')} to a model"
        )
        if found.reworded:
            console.print(
                "another version asked in other words: whether the requests follow from what was "
                "observed is not checked"
            )
        _print_differences("policy", found.policy)


def _print_differences(title: str, rows: Sequence[Difference]) -> None:
    if rows:
        print_rows({"place": "place", "recorded": "recorded", "now": "found"}, rows, title=title)
