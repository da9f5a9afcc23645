"""`proctor checkpoints baseline`, `drift`, `watch`, `metrics` and `answer`.

They tell whether a line becomes worse.

The original checkpoint is evaluated again and again, once and for all; later ones are evaluated one
by one and compared with that.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from judge.drift import charts
from judge.drift.charts import ChartLimits, evaluations_needed
from judge.drift.history import FEWEST, Repeats, read_baseline
from judge.drift.watch import Production, Watched, is_due, measure_baseline, watch
from judge.drift.watch import answer as answer_alarm
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.inputs import operator_key
from proctor.cli.options import AsOfOption, SigningKeyOption
from proctor.cli.remedies import pasteable
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.home import (
    LineOptions,
)
from proctor.improvement.reports import tell_alarms
from proctor.output.terminal import as_records, console, print_table, words
from proctor.remembering import open_session
from proctor.sample.drift_tasks import maker_of

_PRODUCTION = """
    SELECT checkpoint_id, production_good, production_runs, production_deficit
    FROM checkpoint_metrics WHERE production_runs > 0"""
_SINCE = """
    SELECT s.checkpoint, COUNT(*)
    FROM run_starts AS s
    JOIN (
        SELECT checkpoint_id, MAX(idx) AS idx FROM checkpoint_evaluations
        WHERE purpose = 'drift' GROUP BY checkpoint_id
    ) AS e ON e.checkpoint_id = s.checkpoint AND s.idx > e.idx
    GROUP BY s.checkpoint"""
_MEASURES = (
    "reference_success",
    "budget_utilisation",
    "retrieval_precision",
    "production_success",
    "validation_pass",
    "proposal_acceptance",
)
_METRICS = "SELECT * FROM checkpoint_metrics ORDER BY line_id, place"
_TRENDS = "SELECT * FROM metric_trends ORDER BY line_id, metric"
_HEIGHT = 14  # rows of a chart
_PAUSE = ChartLimits().pause

SiblingsOption = Annotated[
    int,
    typer.Option(
        "--siblings",
        min=1,
        max=64,
        help="Fresh tasks of each kind in one evaluation; the same number for the baseline and "
        "for all later evaluations.",
    ),
]


EveryOption = Annotated[
    int,
    typer.Option(
        "--every",
        min=0,
        help="Evaluate the active checkpoint if it has no evaluation, or if this many runs "
        "started under it since; 0 evaluates now.",
    ),
]
PauseOption = Annotated[
    float,
    typer.Option(
        "--pause",
        min=0.0,
        help="Seconds between an evaluation far below the original and one that confirms it.",
    ),
]


def register(app: CommandGroup) -> None:
    """Add the commands to `proctor checkpoints`."""
    app.command("baseline", prints="improvement.Baseline")(baseline)
    app.command("drift", prints="improvement.Drift")(drift)
    app.command("watch", prints="improvement.Drift")(watch_)
    app.command("metrics", prints="improvement.Metrics")(metrics)
    app.command("answer", prints="improvement.Answered")(answer)


def baseline(
    where: LineOptions,
    repeats: Annotated[
        int, typer.Option("--repeats", min=FEWEST, max=1_000, help="Total number of evaluations.")
    ] = 20,
    siblings: SiblingsOption = 1,
) -> Output:
    """Evaluate the original checkpoint repeatedly on fresh tasks."""
    require_extra("train")
    with where.open() as controller, controller.locked():
        place = controller.place
        make = maker_of(place.reference_set(controller.line.head.commit), siblings)
        found = measure_baseline(place, make=make, repeats=repeats)
    told = _describe(found)
    return Output(told, lambda: _tell_baseline(told))


def drift(
    where: LineOptions,
    every: EveryOption = 20,
    siblings: SiblingsOption = 1,
    show: Annotated[
        bool, typer.Option("--show", help="Run no evaluation; show the recorded ones.")
    ] = False,
    pause: PauseOption = _PAUSE,
) -> Output:
    """Evaluate the active checkpoint if that is due, draw the chart, and raise alarms.

    The exit code is 1 while an alarm is open. The circuit breaker rolls back automatically.
    """
    require_extra("train")
    limits = ChartLimits(pause=pause)
    production, since = _asked(where.home)
    with where.open() as controller, controller.locked():
        line = controller.line
        due = is_due(controller.place, begun=since.get(line.active, 0), every=every, limits=limits)
        make = maker_of(controller.place.reference_set(line.head.commit), siblings)
        found = watch(
            controller.place,
            make=make,
            production=production,
            limits=limits,
            measure=due and not show,
        )
        line, repeats = controller.line, read_baseline(controller.place)
    alarms = [vars(alarm) for alarm in line.open_alarms.values()]

    def tell() -> None:
        _draw(found)
        for each in found.told:
            console.print(words(f"{each.kind}: {each.detail}"))
        if found.rollback is not None:
            console.print(words(f"ROLLED BACK to {found.rollback.to}: {found.rollback.commit}"))
            console.print(words(found.rollback.advice or "the branch is there"))
        if found.waits is not None:
            console.print(
                words(
                    "the latest evaluation is far below the original; run this command again "
                    f"after {found.waits:%Y-%m-%d %H:%M} UTC to confirm or clear it"
                )
            )
        tell_alarms(alarms, named=pasteable)

    return Output(
        {
            "baseline": _describe(repeats),
            "points": [_point(found, number) for number in range(len(found.history.points))],
            "raised": found.raised,
            "told": found.told,
            "open": alarms,
            "rollback": found.rollback,
            "waits": None if found.waits is None else found.waits.isoformat(),
        },
        tell,
        found=bool(alarms),
    )


def watch_(
    where: LineOptions,
    every: EveryOption = 20,
    siblings: SiblingsOption = 1,
    pause: PauseOption = _PAUSE,
    interval: Annotated[
        float, typer.Option("--interval", min=0.0, help="Seconds between two looks at the line.")
    ] = 60.0,
    looks: Annotated[
        int, typer.Option("--looks", min=0, help="End after this many looks; 0: at an alarm only.")
    ] = 0,
) -> Output:
    """Do what `drift` does again and again; end at the first alarm, with exit code 1."""
    number = 0
    while True:
        number += 1
        found = drift(where, every=every, siblings=siblings, show=False, pause=pause)
        if found.found or number == looks:
            return found
        time.sleep(interval)


def metrics(home: Home, as_of: AsOfOption = None) -> Output:
    """Show the six measures of each checkpoint, and plot them along the chain."""
    session = open_session(home, as_of=as_of)
    found, trends = (
        as_records(answered.columns, answered.rows)
        for answered in (session.query(_METRICS), session.query(_TRENDS))
    )

    def tell() -> None:
        print_table(
            ("checkpoint", "line", "place", *_MEASURES, "alarm"),
            [
                (
                    each["checkpoint_id"][:12],
                    each["line_id"][:8],
                    each["place"],
                    *(_percent(each[name]) for name in _MEASURES),
                    "production" if each["production_alarm"] else "",
                )
                for each in found
            ],
        )
        for line in dict.fromkeys(each["line_id"] for each in found):
            for name in _MEASURES:
                values = {
                    each["place"] + 1: 100 * each[name]
                    for each in found
                    if each["line_id"] == line and each[name] is not None
                }
                if len(values) > 1:
                    _chart(f"{name}, % (line {line[:8]})", {name: values})

    return Output({"checkpoints": found, "trends": trends}, tell)


def answer(
    where: LineOptions,
    alarm: Annotated[int, typer.Argument(metavar="ALARM", help="Number of the alarm.")],
    note: Annotated[str, typer.Option("--note", help="What you found, and what you did.")],
    key: SigningKeyOption = None,
) -> Output:
    """Answer an alarm: close it, and restart the sums that led to it."""
    author = operator_key(key)
    with where.open() as controller, controller.locked():
        place = controller.place
        if alarm not in place.line().open_alarms:
            known = ", ".join(map(str, place.line().open_alarms)) or "none is"
            raise ProctorError(f"alarm {alarm} is not open; open: {known}")
        answered = answer_alarm(place, alarm, note, author=author)
        left = [vars(each) for each in answered.open_alarms.values()]

    def tell() -> None:
        console.print(words(f"alarm {alarm} is answered"))
        tell_alarms(left, named=pasteable)

    return Output({"answered": alarm, "open": left}, tell)


def _describe(found: Repeats) -> dict[str, Any]:
    enough = len(found.values) >= FEWEST
    base = found.baseline() if enough else None
    return {
        "repeats": len(found.values),
        "tasks": found.tasks,
        "mean": None if base is None else float(base.mean),
        "sd": found.sd,
        "sd_at_most": None if base is None else float(base.sd),
        "reference": None if base is None else float(base.reference),
        "siblings_needed": None if base is None else evaluations_needed(float(base.sd)),
        "values": list(found.values),
    }


def _tell_baseline(told: dict[str, Any]) -> None:
    console.print(
        words(
            f"{counted(told['repeats'], 'evaluation')} of {counted(told['tasks'], 'task')}: "
            f"{told['mean']:.2%} right; "
            f"standard deviation of one evaluation {told['sd']:.4f}, at most "
            f"{told['sd_at_most']:.4f} (95% confidence)"
        )
    )
    if told["siblings_needed"] > 1:
        console.print(
            words(
                "to see a loss of 0.1% a checkpoint within 40 checkpoints, one evaluation has to "
                f"have {told['siblings_needed']} times as many tasks: --siblings, here and for "
                "`proctor checkpoints drift`"
            )
        )


def _asked(home: Home) -> tuple[Production, dict[str, int]]:
    """Return each checkpoint's good runs and all, and how many began since it was evaluated."""
    session = open_session(home)
    production = session.query(_PRODUCTION).rows
    since = session.query(_SINCE).rows
    return {name: (good, runs, deficit) for name, good, runs, deficit in production}, dict(since)


def _point(found: Watched, number: int) -> dict[str, Any]:
    history = found.history
    point = history.points[number]
    sums = charts.ratchet(history.values, history.base, ChartLimits(), restarts=history.restarts)
    return {
        "checkpoint": point.checkpoint,
        "value": point.value,
        "again": point.again,
        "complexity": point.complexity,
        "sum": float(sums[number]),
    }


def _draw(found: Watched) -> None:
    """Draw the shares with the original's, and the sum of what lies below with its limit."""
    history, limits = found.history, ChartLimits()
    if not history.points:
        console.print("nothing is evaluated yet but the original checkpoint")
        return
    sums = charts.ratchet(history.values, history.base, limits, restarts=history.restarts)
    reference, sd = float(history.base.reference), float(history.base.sd)
    _chart(
        "share of tasks answered rightly",
        {
            "evaluation": _numbered([100 * float(each) for each in history.values]),
            "original": _numbered([100 * reference] * len(sums)),
            "three deviations below": _numbered([100 * (reference - 3 * sd)] * len(sums)),
        },
    )
    _chart(
        "sum of losses since the original, in deviations",
        {
            "sum": _numbered([float(each) for each in sums]),
            "alarm": _numbered([limits.ratchet] * len(sums)),
        },
    )


def _numbered(values: Sequence[float]) -> dict[int, float]:
    return dict(enumerate(values, start=1))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _chart(title: str, lines: Mapping[str, Mapping[int, float]]) -> None:
    import plotext  # noqa: PLC0415 - only a plot needs it

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.title(title)
    plotext.plot_size(min(console.width, 76), _HEIGHT)
    for label, values in lines.items():
        plotext.plot(list(values), list(values.values()), label=label)
    numbers = list(next(iter(lines.values())))
    plotext.xticks(numbers[:: max(1, len(numbers) // 12)])
    console.print(Text.from_ansi(plotext.build()))
