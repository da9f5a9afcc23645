"""`proctor line watch`: whether a line becomes worse.

The original checkpoint is evaluated again and again, once and for all; later ones are evaluated one
by one and compared with that.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from judge.drift import charts
from judge.drift import watch as watching
from judge.drift.charts import evaluations_needed
from judge.drift.evaluation import Maker
from judge.drift.history import FEWEST, DriftHistory, Repeats, read_baseline
from judge.drift.watch import Production, Watched
from judge.gauntlet.controller import Controller
from judge.gauntlet.workplace import Workplace
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import Takes
from proctor.home import Home
from proctor.improvement.home import AskersOption, LineOptions
from proctor.improvement.reports import tell_alarms
from proctor.improvement.shapes import Point
from proctor.improvement.siblings import maker_of_calls
from proctor.output.columns import Shows
from proctor.output.terminal import console, print_rows, print_words
from proctor.remembering import held_session
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
_REPEATS = 20  # evaluations of the original checkpoint
_POINTS: Mapping[str, Shows] = {
    "checkpoint": lambda each: each.checkpoint[:12],
    "right": lambda each: f"{each.value:.2%}",
    "sum of losses": lambda each: f"{each.sum:.2f}",
}

app = CommandGroup()


@app.command(prints="improvement.Drift")
def watch(
    where: LineOptions,
    baseline: Annotated[
        int | None,
        "Evaluations of the original checkpoint, made before the first look; by default "
        f"{_REPEATS} if it has none.",
        Takes(least=FEWEST, most=1_000),
    ] = None,
    every: Annotated[
        int,
        "Evaluate the active checkpoint if it has no evaluation, or if this many runs "
        "started under it since; 0 evaluates now.",
        Takes(least=0),
    ] = 20,
    siblings: Annotated[
        int,
        "Fresh tasks of each kind in one evaluation; the same number for the baseline and "
        "for all later evaluations.",
        Takes(least=1, most=64),
    ] = 1,
    pause: Annotated[
        float,
        "Seconds between an evaluation far below the original and one that confirms it.",
        Takes(least=0.0),
    ] = charts.PAUSE,
    show: Annotated[bool, "Run no evaluation; show the recorded ones."] = False,
    interval: Annotated[
        float | None,
        "Look again after this many seconds, until there is an alarm; by default once.",
        Takes(least=0.0),
    ] = None,
    workers: AskersOption = 1,
) -> Output:
    """Evaluate the active checkpoint if that is due, list all evaluations, and raise alarms.

    The exit code is 1 while an alarm is open. The circuit breaker rolls back automatically.
    """
    require_extra("train")
    while True:
        production, since = _asked(where.home)
        with where.open(workers=workers) as controller, controller.locked():
            place, begun = controller.place, since.get(controller.line.active, 0)
            tasks = place.reference_set(controller.line.head.commit)
            calls = maker_of_calls(place, siblings) if siblings > 1 else None  # not unasked:
            make = calls or maker_of(tasks, siblings)  # a fix may change what they expect
            measured = None if show else _baseline(place, make, baseline)
            due = not show and watching.is_due(place, begun=begun, every=every, pause=pause)
            seen = watching.watch(place, make=make, production=production, pause=pause, measure=due)
            found = _told(controller, seen, measured=measured is not None)
        if found.found or interval is None:
            return found
        time.sleep(interval)


def _baseline(place: Workplace, make: Maker | None, wanted: int | None) -> Repeats | None:
    """Evaluate the original checkpoint if need be; return its evaluations if any were made."""
    if wanted is None:
        if len(read_baseline(place).values) >= FEWEST:
            return None
        wanted = _REPEATS
    return watching.measure_baseline(place, make=make, repeats=wanted)


def _told(controller: Controller, found: Watched, *, measured: bool) -> Output:
    """Return what a look at the line has found, with the baseline if that was just measured."""
    line, repeats = controller.line, read_baseline(controller.place)
    alarms = [*line.open_alarms.values()]
    base, points = _describe(repeats), _points(found.history)

    def tell() -> None:
        if measured:
            _tell_baseline(base)
        _tell_points(points, base)
        for each in found.told:
            print_words(f"{each.kind}: {each.detail}")
        if found.rollback is not None:
            print_words(f"ROLLED BACK to {found.rollback.to}: {found.rollback.commit}")
            print_words(found.rollback.advice or "the branch is there")
        if found.waits is not None:
            print_words(
                "the latest evaluation is far below the original; run this command again "
                f"after {found.waits:%Y-%m-%d %H:%M} UTC to confirm or clear it"
            )
        tell_alarms(alarms)

    return Output(
        {
            "baseline": base,
            "points": points,
            "raised": found.raised,
            "told": found.told,
            "open": alarms,
            "rollback": found.rollback,
            "waits": None if found.waits is None else found.waits.isoformat(),
        },
        tell,
        found=bool(alarms),
    )


def _describe(found: Repeats) -> dict[str, Any]:
    base = found.baseline()
    return {
        "repeats": len(found.values),
        "tasks": found.tasks,
        "mean": float(base.mean),
        "sd": found.sd,
        "sd_at_most": float(base.sd),
        "reference": float(base.reference),
        "siblings_needed": evaluations_needed(float(base.sd)),
        "values": list(found.values),
    }


def _tell_baseline(told: dict[str, Any]) -> None:
    print_words(
        f"{counted(told['repeats'], 'evaluation')} of {counted(told['tasks'], 'task')}: "
        f"{told['mean']:.2%} right; "
        f"standard deviation of one evaluation {told['sd']:.4f}, at most "
        f"{told['sd_at_most']:.4f} (95% confidence)"
    )
    if told["siblings_needed"] > 1:
        print_words(
            "to see a loss of 0.1% a checkpoint within 40 checkpoints, one evaluation has to "
            f"have {told['siblings_needed']} times as many tasks: --siblings, with a "
            "--baseline of its own"
        )


def _asked(home: Home) -> tuple[Production, dict[str, int]]:
    """Return each checkpoint's good runs and all, and how many began since it was evaluated."""
    with held_session(home) as session:
        production = session.query(_PRODUCTION).rows
        since = session.query(_SINCE).rows
    return {name: (good, runs, deficit) for name, good, runs, deficit in production}, dict(since)


def _points(history: DriftHistory) -> list[Point]:
    both = zip(history.points, history.sums, strict=True)
    return [Point.of(each, sum=float(loss)) for each, loss in both]


def _tell_points(points: Sequence[Point], base: Mapping[str, Any]) -> None:
    """Print the shares, and the sums of what lies below the original's, with their limits."""
    if not points:
        console.print("nothing is evaluated yet but the original checkpoint")
        return
    print_rows(_POINTS, points)
    least = base["reference"]
    low = least - charts.SIGMAS * base["sd_at_most"]
    none = "" if low > 0 else ", which no evaluation can be below"
    print_words(
        f"the original answers at least {max(0.0, least):.2%} rightly; three deviations below "
        f"that is {low:.2%}{none}\nsum of losses since the original, in deviations: an alarm at "
        f"{charts.RATCHET:g}"
    )
