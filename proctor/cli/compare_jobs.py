"""`proctor compare`, which trains and judges."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from aggregates.comparison import Cell, Comparison
from judge.config import JudgeConfig
from ledger.progress import advanced
from ledger.wording import counted
from monitor.config import RunConfig, TaskConfig
from proctor.cli.command_group import Output
from proctor.cli.compare import CompareOptions
from proctor.cli.jobs import judge_here, print_cut_off, verify_ready
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.columns import cells, field, fields
from proctor.output.terminal import (
    console,
    print_rows,
    print_table,
    print_words,
    tell_part,
    warn,
    words,
)
from proctor.runs.comparison import (
    Plan,
    of_network,
    of_task,
    own_folder,
    own_metric,
    read_cells,
    read_conditions,
    read_draws,
    read_metric,
    read_sweeps,
)
from proctor.runs.comparison import compare as carry_out
from proctor.runs.executors import Kind, Outcome, failed, open_executor
from proctor.runs.jobs import Job
from proctor.runs.policies import MIXED, OPENAI, PolicyChoice
from proctor.runs.run_settings import DEFAULT_POLICY, read_pairs
from proctor.runs.shapes import Comparison as Told
from proctor.runs.shapes import CutOff
from proctor.runs.standings import (
    ACCURACY,
    By,
    Metric,
    Standing,
    fitting,
    recovered,
    rows_of,
    standing_columns,
    standings,
    told_axes,
    told_code,
    told_difference,
    told_draws,
)
from proctor.runs.tasks import read_task_file


def compare(home: Home, config: RunConfig | TaskConfig, asked: CompareOptions) -> Output:
    """Begin a comparison, carry it on, or show what it found."""
    default = ["nothing"] if asked.sweeps else ["nothing", DEFAULT_POLICY]
    policies, sets = asked.policies or default, asked.sets or []
    if twice := [each for each, times in Counter(policies).items() if times > 1]:
        raise ProctorError(f"--policy {twice[0]} is given twice")
    choices = tuple(
        PolicyChoice.read(each, sets if each in (OPENAI, MIXED) else ()) for each in policies
    )
    text = None if asked.task is None else read_task_file(asked.task)
    given = read_pairs(asked.settings or [])
    make = of_network(config) if text is None else of_task(text, given)
    sweeps = read_sweeps(asked.sweeps or [], given)
    plan = Plan(
        choices,
        read_conditions(asked.conditions, make, sweeps),
        tuple(range(asked.seeds)),
        asked.name,
        text,
        read_metric(asked.metric, text),
    )
    if len(policies) == len(plan.conditions) == 1:
        raise ProctorError(
            "there is nothing to compare with: give --policy at least twice, or two conditions, as "
            "in --sweep lr=0.01,0.1"
        )
    for choice in choices:
        verify_ready(home, choice, campaign=False)
    with home.alone("comparing", str(plan.id), say=warn):
        comparison = _carry_out(home, plan, asked.executor, asked.workers)
        shown = comparison.metric or own_metric(text).name
        if shown != plan.metric.name:
            warn(f"reports and pages show {shown}, by which this comparison began")
        found = describe_comparison(
            home,
            str(comparison.id),
            policies=[choice.name for choice in choices],
            conditions=[*plan.conditions],
            metric=plan.metric,
        )
    rows = found.cells
    unfit = len(rows) - len(fitting(rows))
    note = (
        f"{counted(unfit, 'cell')} of {len(rows)} {'does' if unfit == 1 else 'do'} not fit what "
        "the run itself recorded, and no figure contains them; somebody with the ledger's key has "
        "put other runs there"
    )
    return Output(
        found, lambda: tell_comparison(found), found=bool(unfit), note=note if unfit else ""
    )


def describe_comparison(
    home: Home,
    comparison: str,
    *,
    policies: Sequence[str],
    conditions: Sequence[str],
    metric: Metric = ACCURACY,
) -> Told:
    """Return the table of a comparison, for all conditions and for each, and what it rests on.

    The rows of a sweep are conditions, and it has one table.
    """
    rows = read_cells(home, comparison)
    by, names = rows_of(policies, conditions)
    return Told(
        comparison=comparison,
        metric=metric.name,
        better=metric.better,
        by=by,
        standings=standings(rows, names, by=by, metric=metric),
        conditions={
            name: standings([row for row in rows if row["condition"] == name], names, metric=metric)
            for name in conditions
            if by == "policy"
        },
        cells=rows,
        draws=read_draws(home, comparison),
        recovered=recovered(rows, policies, conditions, metric=metric),
    )


def _carry_out(home: Home, plan: Plan, kind: Kind, workers: int | None) -> Comparison:
    """Carry a comparison out, and tell how far it has come."""

    def on_done(done: int, total: int, this: Cell, problem: str | None) -> None:
        advanced("comparing", done, total)
        tell_part("run", done, total, f"{this}" + (f" failed: {problem}" if problem else ""))

    with (
        home.open_log() as log,
        open_executor(kind, home, log, workers=workers) as executor,
    ):
        return carry_out(home, log, plan, work=train_and_judge, executor=executor, on_done=on_done)


def train_and_judge(job: Job) -> Outcome:
    """Train and judge one cell in this process; nothing is raised."""
    home = Home(job.home)
    try:
        with home.open_log() as log:
            job.train(home, log)
            judge = replace(JudgeConfig.for_own_run(), data_dir=own_folder(job.config))
            report = judge_here(home, log, UUID(job.run), config=judge)
    except Exception as error:  # whatever else it is, the cell has failed and is counted
        return failed(error)
    broken = next((step for step in report.steps if step.status == "failed"), None)
    return Outcome(report.audit_id, None if broken is None else f"hard fail: {broken.summary}")


def tell_comparison(found: Told) -> None:
    """Print what describe_comparison() found."""
    rows, draws, table = found.cells, found.draws, found.standings
    metric, by = Metric(found.metric, found.better), found.by
    first = getattr(table[0], by) if table else "none"
    same, every = "condition and seed", "policies"
    if by == "condition":
        same, every = f"seed, policy {words(table[0].policy)}", "conditions"
    console.print(
        f"comparison {found.comparison}: {counted(len(rows), 'run')}; differences from "
        f"{words(first)} on the same {same}, 95% intervals for all {every} together"
    )
    _print(table, by, metric)
    if table:
        print_words(told_axes(table, by=by, metric=metric))
    for name, part in found.conditions.items():
        if len(found.conditions) > 1:
            console.print(f"\n[bold]{words(name)}[/]")
            _print(part, by, metric)
    if found.recovered:
        print_rows(
            [
                *fields("condition", "policy", "seeds"),
                field("fault costs", lambda one: f"{one.lost:.3f}"),
                field("recovered", lambda one: told_difference(one.share, one.low, one.high)),
            ],
            found.recovered,
            title="share of a fault's cost that is won back; 1 is as good as healthy",
        )
    for each in table:
        _tell_unusable(each, rows)
    if unfit := [row for row in rows if not row["fits"]]:
        print_rows(
            [
                *fields("policy", "condition", "seed"),
                field("run", "run_id"),
                field("why it does not fit", lambda row: "; ".join(row["why_not"])),
            ],
            unfit,
            title="cells that no figure contains",
        )
    print_words(told_draws(draws, found.comparison))
    if several := told_code(rows):
        print_words(several)
    print_cut_off(
        [
            CutOff(row["run_id"], row["end_reason"], row["epochs"], row["best_val_accuracy"])
            for row in draws
            if row["made_by"] == found.comparison
        ]
    )


def _tell_unusable(standing: Standing, rows: Sequence[Any]) -> None:
    """Say of a policy that its answers came to nothing, and where the reasons are."""
    lost = standing.refused + standing.unusable
    if not lost:
        return
    run = next(
        row["run_id"]
        for row in rows
        if row["policy"] == standing.policy
        and standing.condition in (None, row["condition"])
        and (row["refused"] or row["unusable"])
    )
    where = "" if standing.condition is None else f" on {words(standing.condition)}"
    console.print(
        f"[yellow]not carried out[/]: {counted(lost, 'answer')} of {words(standing.policy)}{where},"
        f" refused or unusable; the reasons in one of the runs: proctor replay {run}"
    )


def _print(table: Sequence[Standing], by: By, metric: Metric) -> None:
    columns = standing_columns(answers=True, by=by, metric=metric)
    rows = [[_digits(value) for value in row] for row in cells(columns, table)]
    print_table([column.title for column in columns], rows)


def _digits(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value
