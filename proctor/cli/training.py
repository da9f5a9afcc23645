"""`proctor demo`, `run` and `judge`: what trains a model, or trains it again."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from aggregates.comparison import OWN_POLICIES
from ledger.wording import counted
from monitor.config import RunConfig
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import (
    ConfigOption,
    DataDirOption,
    ExecutorOption,
    LimitOption,
    RunArgument,
    SetOption,
    SettingsArgument,
    Takes,
    WriterOption,
    verify_unused,
)
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import print_rows, print_words, tell_part
from proctor.runs.process import handed_over, start_for, start_like
from proctor.runs.run_settings import DEFAULT_POLICY, provoked, read_config
from proctor.runs.shapes import Verdict, Verdicts

# A start that goes wrong: a learning rate sixty times the default, and no warm-up.
DEMO: dict[str, Any] = {
    "lr": 3.0,
    "warm_up_epochs": 0,
    "train_examples": 1_500,
    "epochs": 8,
    "channels": 16,
    "width": 16,
    "stem_stride": 4,
    "numerics": "portable",
}
app = CommandGroup()


@dataclass(frozen=True, kw_only=True)
class AttemptOptions:
    """Several runs in place of one, each judged before the next."""

    attempts: Annotated[
        int | None,
        "Train and judge this many runs and rank them; the same command continues.",
        Takes(least=1, most=1_000),
    ] = None
    feedback: Annotated[
        bool | None,
        "With --attempts: give each the verdicts on earlier ones.  [default: feedback]",
        Takes(option="--feedback/--no-feedback"),
    ] = None
    rank_by: Annotated[
        Literal["process", "quality"] | None,
        "With --attempts: which axis is compared first, the process score or the quality of the "
        "model (validation accuracy).  [default: process]",
    ] = None
    name: Annotated[str, "With --attempts: distinguishes those with the same settings."] = ""
    limits: LimitOption = None
    tune: Annotated[bool, "With --attempts: tune the model's advice block between them."] = False
    writer: WriterOption = None

    def verify(self, task: Path | None) -> None:
        """Raise ProctorError for options that do not go together."""
        if self.attempts is None:
            verify_unused(
                "only for several runs; give --attempts N, too",
                feedback=self.feedback is not None,
                rank_by=self.rank_by,
                name=self.name,
                limit=self.limits,
                tune=self.tune,
                writer=self.writer,
            )
        elif task is not None:
            raise ProctorError(
                "--attempts excludes --task: an attempt may restart with another model, and a "
                "task's file has one. Leave out --attempts, or use `proctor compare --task FILE`"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Who decides in a run, and where it is trained."""

    policy: Annotated[
        str,
        f"{', '.join(OWN_POLICIES)}, MODULE:CLASS or exec:COMMAND.",
    ] = DEFAULT_POLICY
    sets: SetOption = None
    executor: ExecutorOption = "local"
    witnesses: Annotated[
        Path | None,
        "Have the witnesses of this file (C2SP tlog-policy) cosign each new tree head meanwhile.",
        Takes("FILE"),
    ] = None


@app.command(prints="runs.Demo")
def demo(home: Home) -> Output:
    """Train a small model from a bad start, judge the run and verify the ledger."""
    config = start_for(lambda: RunConfig.from_dict(DEMO))
    from proctor.cli import jobs  # noqa: PLC0415 - torch takes seconds to import

    return jobs.demo(home, config)


@app.command(prints="runs.Trained | runs.Campaign", continues="--attempts")
def run(
    home: Home,
    how: TrainingOptions,
    several: AttemptOptions,
    settings: SettingsArgument = None,
    config: ConfigOption = None,
    provoke: Annotated[
        str | None, "Provoke this fault of the catalogue in the run.", Takes("NAME")
    ] = None,
    provoke_seed: Annotated[int, "Seed of the fault's severity and place.", Takes(least=0)] = 0,
    task: Annotated[
        Path | None, "Train the model and data of this Python file instead.", Takes("FILE")
    ] = None,
) -> Output:
    """Train a model; record every measurement, and decide on every rule that fires."""
    several.verify(task)
    if task is not None:
        if config is not None or provoke is not None:
            raise ProctorError("--task excludes --config and --provoke: give KEY=VALUE settings")
        from proctor.runs.tasks import configure_task, read_task_file  # noqa: PLC0415 - loads torch

        of_task = start_for(lambda: configure_task(read_task_file(task), settings or []))
    else:
        asked = start_for(lambda: read_config(config, settings or []))
        chosen = start_for(lambda: provoked(asked, provoke, provoke_seed))
    from proctor.cli import campaign_jobs, jobs  # noqa: PLC0415 - torch takes seconds to import
    from proctor.runs.cosigning import cosigned_meanwhile  # noqa: PLC0415 - loads what verifies

    with cosigned_meanwhile(home, how.witnesses):
        if task is not None:
            return jobs.run_a_task(home, task, of_task, how)
        if several.attempts is not None:
            return campaign_jobs.campaign(home, chosen, how, several)
        return jobs.run(home, chosen, how)


@app.command(prints="runs.Audit | runs.Verdicts")
def judge(
    home: Home,
    run: RunArgument = "latest",
    submission: Annotated[Path | None, "Judge this folder instead of the run's own."] = None,
    head: Annotated[Path | None, "Tree head that you kept; see `verify`."] = None,
    execute: Annotated[
        bool,
        "Train the whole run again and compare every value.",
        Takes(option="--execute/--no-execute"),
    ] = True,
    sample: Annotated[
        bool,
        "Train again up to the submitted weights, and on to an epoch drawn at random: "
        "faster and less certain. The report says how certain.",
    ] = False,
    whole: Annotated[bool, "Verify all of the ledger, not only what is new."] = False,
    every: Annotated[
        bool,
        "Judge each run that has no verdict: of the ledger, or that RUN rests on, which may be a "
        "credit, a campaign, a comparison, or a run with the forks that measured it. Continues.",
        Takes(option="--all"),
    ] = False,
    data_dir: DataDirOption = None,
    limits: LimitOption = None,
) -> Output | Iterator[Output]:
    """Audit a run in eleven steps and print two scores; exit code 1 on a hard fail.

    A judge's key in ledger/keys/judge.pem of the home signs the audit, if it was granted.
    Without one the verdict is unsigned, though it is in a signed ledger like every entry.
    """
    from proctor.cli.judging import look_up  # noqa: PLC0415 - loads what reads ledgers

    if sample and not execute:
        raise ProctorError("--sample and --no-execute exclude each other: give one of them")
    again = handed_over()
    if every:
        if submission is not None or head is not None or whole:
            raise ProctorError("--all excludes --submission, --head and --whole")
        return _judge_all(
            home,
            "" if run == "latest" else run,
            again,
            limits,
            data_dir,
            execute=execute,
            sample=sample,
        )
    checked, judged = look_up(home, again or run, submission=submission, head=head, whole=whole)
    if judged is not None:
        record = judged.record
        start_like(record.environment, again=again, carried=record.run)
    from proctor.cli import jobs  # noqa: PLC0415 - torch takes seconds to import

    return jobs.judge(
        home,
        again or run,
        checked,
        judged,
        submission=submission,
        execute=execute,
        sample=sample,
        config=jobs.judge_config(limits, data_dir),
    )


def _judge_all(
    home: Home,
    name: str,
    again: str | None,
    limits: list[str] | None,
    data_dir: Path | None,
    **redo: bool,
) -> Output:
    """Judge run after run, each as in its recorded environment: where that differs, anew."""
    from proctor.cli import judging  # noqa: PLC0415 - loads what reads ledgers

    home.require_ledger()
    if not home.writable:
        raise ProctorError(f"--all records verdicts, and you cannot write to {home.ledger}")
    subject = judging.find_subject(home, name) if name else ""
    waiting = [row for row in judging.read_verdicts(home, subject) if not row["judged"]]
    waiting.sort(key=lambda row: row["run_id"] != again)
    failed, changed = set[str](), dict[str, str]()
    for number, row in enumerate(waiting, 1):
        started, run = again if row["run_id"] == again else None, UUID(row["run_id"])
        start_like(json.loads(row["environment"]), again=started, carried=run)
        from proctor.cli import jobs  # noqa: PLC0415 - torch takes seconds to import

        tell_part("run", number, len(waiting), run)
        config = jobs.judge_config(limits, data_dir)
        report = jobs.judge_one(home, run, config=config, **redo)
        files = report.step("deliverables")
        if files.evidence.get("other_files"):
            changed[str(run)] = files.summary
        elif report.hard_fail:
            failed.add(str(run))
    shown = [Verdict.of(row) for row in judging.read_verdicts(home, subject) if row["judged"]]
    failed |= {each.run_id for each in shown if each.hard_fail}
    told = Verdicts(judged=len(waiting) - len(changed), verdicts=shown, changed=changed)

    def tell() -> None:
        print_rows(Verdict.__struct_fields__, shown)
        for run_id, how in changed.items():
            print_words(f"run {run_id} cannot be judged (files changed): {how}")

    notes = []
    if failed:
        notes.append(
            f"a gate failed in {counted(len(failed), 'run')}; `proctor show RUN` says which"
        )
    if changed:
        notes.append(
            f"{counted(len(changed), 'run')} cannot be judged: put the files back that were "
            "submitted, and run the same command"
        )
    return Output(told, tell, found=bool(failed or changed), note="; ".join(notes))
