"""Watches a line: evaluates its active checkpoint, raises alarms, trips the circuit breaker.

A checkpoint that is far below is evaluated again before any alarm: later, in a fresh work tree and
in processes of its own. What disturbs one evaluation disturbs the next one too, so one that follows
too soon confirms nothing. If the circuit breaker trips, everything after the last good checkpoint
is rolled back.

Source: docs/explanation/drift.md.  I/O: the workplace; processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from aggregates.improvement.line import Line
from judge.drift import charts
from judge.drift.evaluation import Maker, count_tasks, evaluate
from judge.drift.history import DriftHistory, Repeats, read_baseline, read_history
from judge.errors import DriftError
from judge.gauntlet.promotion import Rollback, roll_back
from judge.gauntlet.workplace import Workplace
from ledger.entries import AuthorKey
from ledger.progress import advanced

BREAKER = "circuit breaker"
PRODUCTION = "production"
Production = Mapping[str, tuple[int, int, int]]
"""Checkpoint -> runs that went well, all that have ended, and their largest deficit."""


@dataclass(frozen=True)
class Finding:
    """What a chart says of the latest evaluation."""

    kind: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What was found, and what was done about it."""

    history: DriftHistory
    raised: tuple[Finding, ...]  # alarms that are new
    told: tuple[Finding, ...]  # no alarm: what the operator is to know
    rollback: Rollback | None
    waits: datetime | None = None  # until when the next confirmation has to wait; none is due


def measure_baseline(place: Workplace, *, make: Maker | None, repeats: int) -> Repeats:
    """Evaluate the original checkpoint until there are so many repeats, and return them.

    Each is recorded at once: whoever is interrupted goes on where it was. Raises DriftError where
    something was compared with this baseline already.
    """
    first, tasks = place.line().first, count_tasks(place, make)
    while (number := len((known := read_baseline(place, tasks=tasks)).values)) < repeats:
        if known.compared:
            raise DriftError(
                f"evaluations of {tasks} tasks were already compared with this baseline, so it is "
                f"fixed at {number} repeats; use another number of --siblings to make another "
                "baseline"
            )
        advanced("evaluations", number, repeats)
        share = evaluate(place, first, purpose="baseline", make=make)
        place.tell(first, f"baseline {number + 1} of {repeats}: {share:.1%}")
    return known


def is_due(place: Workplace, *, begun: int, every: int, pause: float = charts.PAUSE) -> bool:
    """Tell whether the active checkpoint is to be evaluated; DriftError where there is no baseline.

    It is due if it was never evaluated, if `every` runs or more were `begun` under it since, or if
    an evaluation far below the original must be confirmed.
    """
    history, active = read_history(place, pause=pause), place.line().active
    never = all(point.checkpoint != active for point in history.points)
    return never or begun >= every or _is_pending(history, active)


def answer(place: Workplace, alarm: int, note: str, *, author: AuthorKey | None) -> Line:
    """Answer an alarm and return the line; DriftError where an operator has a key and none signs.

    Raises InvariantError where it is not open, and whatever the log says of the author's key.
    """
    if author is None and place.authority().operated:
        raise DriftError(
            f"alarm {alarm} must be answered by an operator: give the operator's key with --key"
        )
    return place.change_line(lambda line: line.answer(alarm, note), author=author)


def watch(
    place: Workplace,
    *,
    make: Maker | None,
    production: Production,
    pause: float = charts.PAUSE,
    measure: bool = True,
) -> Watched:
    """Evaluate the active checkpoint, and look; DriftError where there is no baseline.

    If the latest evaluation must be confirmed, this makes the confirmation once the pause is over;
    before that it evaluates nothing. The caller holds the line's lock. An open alarm is not raised
    again.
    """
    read_baseline(place).baseline()  # before anything is run
    line = place.line()
    if measure:
        if not _is_pending(read_history(place, pause=pause), line.active):
            share = evaluate(place, line.active, purpose="drift", make=make)
            place.tell(line.active, f"evaluated: {share:.1%}")
        while (
            until := _waits_until(place, pause)
        ) is not None and until <= Line.Evaluated.create_timestamp():
            share = evaluate(place, line.active, purpose="confirmation", make=make)
            place.tell(
                line.active, f"evaluated again, because the first value was far below: {share:.1%}"
            )
    history = read_history(place, pause=pause)
    waits = _waits_until(place, pause)
    # An evaluation that waits for its confirmation raises no alarm.
    known = history if waits is None else replace(history, points=history.points[:-1])
    deficit = production.get(line.active, (0, 0, 0))[2]
    chain = [production.get(each, (0, 0, 0))[:2] for each in reversed(line.ancestors(line.active))]
    found = look(known, chain, deficit=deficit)
    open_kinds = {alarm.kind for alarm in line.open_alarms.values()}
    raised = tuple(each for each in found if each.kind not in open_kinds)
    for each in raised:
        place.alarm(each.kind, each.detail)
    rollback = None
    if any(each.kind == BREAKER for each in found):  # also where one was interrupted after it
        rollback = _break(place, history)
    return Watched(
        history=history,
        raised=raised,
        told=(*_powerless(history), *_stalled(history)),
        rollback=rollback,
        waits=waits,
    )


def look(
    history: DriftHistory, production: Sequence[tuple[int, int]] = (), *, deficit: int = 0
) -> list[Finding]:
    """Return what the charts say of the latest evaluation, and of the latest checkpoint's runs.

    `production` has runs that went well and all runs, checkpoint by checkpoint, the original first;
    `deficit` is that of the latest.
    """
    found = []
    if history.points:
        found += _charted(history)
    if deficit >= charts.DEFICIT:
        detail = f"failed runs under it outnumber successes by {deficit}"
        found.append(Finding(PRODUCTION, detail))
    elif production:
        right, runs = np.array(production, dtype=float).T
        if charts.unproductive(right, runs)[-1]:
            before = (right[:-1].sum() / runs[:-1].sum()) if runs[:-1].sum() else 0.0
            found.append(
                Finding(
                    PRODUCTION,
                    f"{right[-1]:.0f} of {runs[-1]:.0f} runs under it succeeded, and {before:.0%} "
                    "of those before it",
                )
            )
    return found


def _charted(history: DriftHistory) -> list[Finding]:
    base, values, again = history.base, history.values, history.again(1)
    thrice = history.again(charts.CONFIRMATIONS)
    value, reference, sd = float(values[-1]), float(base.reference), float(base.sd)
    against = f"{value:.1%} correct; the original has {reference:.1%} (standard deviation {sd:.2%})"
    loss = float(history.sums[-1])
    found = {
        "ratchet": (
            loss > charts.RATCHET,
            f"losses since the original add up to {loss:.1f} standard deviations; {against}",
        ),
        "decline": (
            charts.declined(history.counted, base)[-1],
            f"{charts.DECLINES} or more evaluations in a row declined; {against}",
        ),
        "three sigma": (
            charts.beyond(values, base, again=again)[-1],
            f"{again[-1]:.1%} when it was evaluated again; {against}",
        ),
        BREAKER: (
            charts.broken(values, base, again=thrice)[-1],
            f"{value:.1%} correct, and {thrice[-1]:.1%} at most later; the best known is "
            f"{charts.best_known(values, base)[-1]:.1%}",
        ),
        "complexity": (
            charts.grown(history.complexity, values, base)[-1],
            f"{history.complexity[-1]:.2f} times as complex as the original; {against}",
        ),
    }
    if found[BREAKER][0]:  # which says it all, and takes the evaluation out of the charts
        return [Finding(BREAKER, found[BREAKER][1])]
    return [Finding(kind, detail) for kind, (raised, detail) in found.items() if raised]


def _powerless(history: DriftHistory) -> list[Finding]:
    """Say so where the baseline varies so much that the circuit breaker cannot trip."""
    base = history.base
    best = np.array([max([float(base.reference), *history.values])])
    if charts.breaker_floor(best, base)[-1] > 0.0:
        return []
    what = (
        "it cannot trip, because the baseline's evaluations vary too much: "
        f"{charts.BREAKER_SIGMAS:g} likely deviations of {float(base.likely):.2%} are more than "
        f"the best known value, {best[-1]:.1%}; measure a new baseline with more tasks "
        "(--siblings) and more evaluations (--baseline)"
    )
    return [Finding(BREAKER, what)]


def _stalled(history: DriftHistory) -> list[Finding]:
    if not history.points or not charts.stalled(history.values, history.base)[-1]:
        return []
    gain = charts.velocity(history.values, history.base)[-1]
    what = (
        f"{gain:+.2%} per checkpoint over the last {charts.WINDOW} evaluations: no more gains; "
        "consider harder tasks, a higher temperature, or a structural change"
    )
    return [Finding("velocity", what)]


def _is_pending(history: DriftHistory, active: str) -> bool:
    """Tell whether the latest evaluation is so low that a later one must confirm it.

    A single confirmation that is not as low clears it.
    """
    if not history.points or history.points[-1].checkpoint != active:
        return False
    again, latest = history.points[-1].again, history.latest
    far = charts.is_far(latest, history.base)[-1]
    broken = charts.broken(history.values, history.base, again=latest)[-1]
    return bool((far and not again) or (broken and len(again) < charts.CONFIRMATIONS))


def _waits_until(place: Workplace, pause: float) -> datetime | None:
    """Return the time from which the next confirmation counts; None if none is wanted."""
    history, active = read_history(place, pause=pause), place.line().active
    if not _is_pending(history, active):
        return None
    return history.points[-1].at + timedelta(seconds=pause)


def _break(place: Workplace, history: DriftHistory) -> Rollback | None:
    """Roll back all after the last checkpoint that was good; None where that is the original's."""
    # A confirmation that is not as low clears an evaluation; of a checkpoint, the latest counts.
    bad = charts.broken(history.values, history.base, again=history.latest)
    latest = {each.checkpoint: low for each, low in zip(history.points, bad, strict=True)}
    good = {checkpoint for checkpoint, low in latest.items() if not low}
    line = place.line()
    good.add(line.first)
    culprit, here = None, line.active
    while here not in good:
        culprit, here = here, line.checkpoints[here].parent or line.first
    if culprit is None:
        return None
    reason = (
        f"circuit breaker: {history.values[-1]:.1%} correct; the last good checkpoint is {here}"
    )
    return roll_back(place, culprit, reason)
