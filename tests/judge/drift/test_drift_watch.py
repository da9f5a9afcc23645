"""A line that is watched: what is raised, what is done, and what an operator's answer does."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gauntlet_lines import SELECTION, UNSORTED, Line, renamed

from aggregates.errors import InvariantError
from aggregates.improvement.line import Line as Chain
from judge.drift.charts import CONFIRMATIONS, baseline_of
from judge.drift.history import DriftHistory, Point, read_history
from judge.drift.watch import look, measure_baseline, watch
from judge.errors import DriftError
from judge.gauntlet.controller import Controller
from judge.gauntlet.workplace import Workplace
from proctor.sample.drift_tasks import maker_of
from proctor.sample.init import git

TASKS = 4
BASE = baseline_of([0.9] * 20, resolution=0.02)


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path, ("late-rows",))


@pytest.fixture
def controller(line: Line) -> Iterator[Controller]:
    with line.controller() as controller, controller.locked():
        yield controller


def record(
    place: Workplace, *, right: int = TASKS, purpose: str = "drift", tasks: int = TASKS
) -> None:
    """Put an evaluation of the active checkpoint on record, without making it."""

    def make() -> list[Chain]:
        chain = place.line()
        chain.evaluate(
            chain.active,
            purpose=purpose,
            seed="00",
            sha256="0" * 64,
            tasks=tasks,
            wrong=["one"] * (tasks - right),
            valid=tasks,
            precision=None,
            code=None,
        )
        return [chain]

    place.save(make)


def promote(line: Line, place: Workplace, text: str) -> str:
    """Move the line to other code, with no gauntlet before it."""
    commit = line.commit(SELECTION, text)
    sums = {"manifest": "0" * 64, "reference_set": "0" * 64}

    def make() -> list[Chain]:
        chain = place.line()
        tree = line.repository.tree_of(commit)
        chain.promote(commit=commit, tree=tree, proposals=["nobody's"], **sums)
        return [chain]

    place.save(make)
    return commit


def history(*values: float, again: tuple[float, ...] = ()) -> DriftHistory:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    points = [
        Point(checkpoint=str(n), value=value, again=(), at=now, complexity=None, answered=False)
        for n, value in enumerate(values)
    ]
    last = points.pop()
    points.append(Point(**{**vars(last), "again": again}))
    return DriftHistory(base=BASE, points=tuple(points))


def kinds(found: DriftHistory) -> list[str]:
    return [each.kind for each in look(found)]


def test_harm_behind_the_gauntlets_back_is_rolled_back(line: Line, controller: Controller) -> None:
    place = controller.place
    for _ in range(20):
        record(place, purpose="baseline")
    original = line.head()
    harm = promote(line, place, UNSORTED)
    make = maker_of(place.reference_set(harm), TASKS)
    for asked in (1, 2):  # what comes at once has the same disturbance, and confirms nothing
        waiting = watch(place, make=make, production={})
        assert (waiting.raised, waiting.rollback) == ((), None)
        assert waiting.waits is not None
        active = place.line().active
        assert place.line().evaluations[active, "drift"] == 1, asked
        assert (active, "confirmation") not in place.line().evaluations
    found = watch(place, make=make, production={}, pause=0.0)
    assert [each.kind for each in found.raised] == ["circuit breaker"]
    assert found.rollback is not None
    assert found.rollback.commit == original == line.head()
    chain = place.line()
    assert [each.kind for each in chain.open_alarms.values()] == ["circuit breaker"]
    assert chain.active == chain.first
    purposes = [key[1] for key in chain.evaluations]
    assert purposes == ["baseline", "drift", "confirmation"]
    assert chain.evaluations[harm_id(chain), "confirmation"] == CONFIRMATIONS


def harm_id(chain: Chain) -> str:
    return next(each.id for each in chain.checkpoints.values() if each.parent is not None)


def test_confirmation_that_follows_at_once_confirms_nothing(controller: Controller) -> None:
    place = controller.place
    for _ in range(20):
        record(place, purpose="baseline")
    record(place, right=2)
    for _ in range(3):  # as another program, or an earlier version, writes them
        record(place, right=2, purpose="confirmation")
    assert [point.again for point in read_history(place).points] == [()]
    assert watch(place, make=None, production={}, measure=False).rollback is None
    assert [point.again for point in read_history(place, pause=0.0).points] == [(0.5, 0.5, 0.5)]


def test_circuit_breaker_that_cannot_trip_is_told(controller: Controller) -> None:
    place = controller.place
    for number in range(10):
        record(place, purpose="baseline", tasks=11, right=9 if number < 5 else 8)
    for _ in range(3):
        record(place, tasks=11, right=0)
    found = watch(place, make=None, production={}, measure=False, pause=0.0)
    assert found.rollback is None
    (told,) = found.told
    assert told.kind == "circuit breaker"
    assert told.detail.startswith("it cannot trip, because the baseline's evaluations vary ")
    for number in range(40):
        record(place, purpose="baseline", tasks=22, right=18 - number % 2)
    assert watch(place, make=None, production={}, measure=False).told == ()


def test_one_good_confirmation_clears_a_bad_evaluation(controller: Controller) -> None:
    place = controller.place
    for _ in range(20):
        record(place, purpose="baseline")
    record(place, right=2)
    record(place, right=4, purpose="confirmation")
    found = watch(place, make=None, production={}, measure=False, pause=0.0)
    assert (found.rollback, found.waits) == (None, None)


def test_harmless_change_raises_nothing(line: Line, controller: Controller) -> None:
    place = controller.place
    for _ in range(20):
        record(place, purpose="baseline")
    commit = promote(line, place, renamed(git(line.repo, "show", f"main:{SELECTION}")))
    found = watch(place, make=maker_of(place.reference_set(commit), TASKS), production={})
    assert (found.raised, found.rollback, place.line().open_alarms) == ((), None, {})
    assert line.head() == commit
    (point,) = found.history.points
    assert (point.value, point.again, point.complexity) == (1.0, (), None)


def test_ratchet_is_raised_once_until_it_is_answered(controller: Controller) -> None:
    place = controller.place
    for _ in range(20):
        record(place, purpose="baseline", tasks=100, right=94)
    for lost in range(30):
        record(place, tasks=100, right=94 - lost // 5)
    seen = watch(place, make=None, production={}, measure=False)
    assert [each.kind for each in seen.raised] == ["ratchet"]
    record(place, tasks=100, right=88)
    assert watch(place, make=None, production={}, measure=False).raised == ()
    place.save(lambda: [answered(place, 1)])
    record(place, tasks=100, right=93)
    assert watch(place, make=None, production={}, measure=False).raised == ()
    for _ in range(4):
        record(place, tasks=100, right=93)
    again = watch(place, make=None, production={}, measure=False)
    assert [each.kind for each in again.raised] == ["ratchet"]


def answered(place: Workplace, alarm: int) -> Chain:
    chain = place.line()
    chain.answer(alarm, "these tasks were too hard")
    return chain


def test_alarm_that_is_not_open_is_not_answered(controller: Controller) -> None:
    with pytest.raises(InvariantError, match="no alarm 7 is open"):
        answered(controller.place, 7)


def test_baseline_is_carried_on_where_it_was(controller: Controller) -> None:
    place = controller.place
    for _ in range(9):
        record(place, purpose="baseline", tasks=1, right=1)
    with pytest.raises(DriftError, match="has 9 evaluations"):
        read_history(place)
    found = measure_baseline(
        place, make=maker_of(place.reference_set(controller.line.head.commit), 1), repeats=10
    )
    assert (len(found.values), found.tasks, found.complexity is not None) == (10, 1, True)
    assert place.line().evaluations == {(place.line().first, "baseline"): 10}


def test_evaluations_with_other_tasks_are_not_compared(controller: Controller) -> None:
    place = controller.place
    for _ in range(10):
        record(place, purpose="baseline")
    record(place, tasks=3, right=0)
    assert read_history(place).points == ()


def test_what_a_second_evaluation_does_not_confirm_is_no_alarm() -> None:
    low = (0.9, 0.9, 0.9, 0.9, 0.9, 0.87)
    assert kinds(history(*low, again=(0.87,))) == ["three sigma"]
    assert kinds(history(*low, again=(0.9,))) == []
    assert kinds(history(*low, again=())) == []


def test_circuit_breaker_waits_for_two_later_evaluations() -> None:
    assert kinds(history(0.9, 0.6, again=(0.6, 0.6))) == ["circuit breaker"]
    assert "circuit breaker" not in kinds(history(0.9, 0.6, again=(0.6,)))
    assert "circuit breaker" not in kinds(history(0.9, 0.6, again=(0.6, 0.9)))
    assert kinds(history(0.9, 0.75, again=(0.75, 0.75))) == ["ratchet"]


def test_production_is_told_of_the_active_checkpoint() -> None:
    steady = history(0.9)
    (found,) = look(steady, [(40, 50), (2, 20)])
    assert found.kind == "production"
    assert found.detail == "2 of 20 runs under it succeeded, and 80% of those before it"
    assert look(steady, [(40, 50), (14, 20)]) == []
