"""Ways of keeping an alarm quiet, each beside what is raised where nobody tries.

Whoever tries owns the folder: he can append every event to the line, start and stop evaluations,
and answer; he has no operator's key, and not the judge's.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bare_places import bare_place, promote, record
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gauntlet_lines import SELECTION, UNSORTED, Line
from synthetic import synthetic_audit, synthetic_line, synthetic_run

from aggregates.audit import Audit
from aggregates.improvement.line import Line as Chain
from aggregates.registry import REGISTRY
from judge.drift.charts import CONFIRMATIONS
from judge.drift.history import read_baseline, read_history
from judge.drift.watch import answer, is_due, measure_baseline, watch
from judge.errors import DriftError
from judge.gauntlet.workplace import Workplace
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.errors import AuthorityError
from ledger.notes import public_bytes, vkey
from ledger.recorder import SignedRecorder
from proctor.sample.drift_tasks import maker_of
from projections.projector import projected
from projections.source import open_source


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return Line(tmp_path_factory.mktemp("drift"), ("late-rows",))


@pytest.fixture
def place(line: Line, tmp_path: Path) -> Workplace:
    """A line whose original was right in 94 of 100, twenty times, and which has gone on."""
    made = bare_place(line, tmp_path)
    for _ in range(20):
        record(made, right=94, purpose="baseline")
    promote(made, 1)
    return made


def append(log: LedgerApplication, stream: UUID, what: type, /, **told: Any) -> None:
    """Append an event to a stream past its aggregate."""
    (last,) = log.events.get(stream, desc=True, limit=1)
    place = {"originator_id": stream, "originator_version": last.originator_version + 1}
    log.events.put([what(**place, timestamp=datetime.now(UTC), **told)])


def evaluated(place: Workplace, **changes: Any) -> None:
    told: dict[str, Any] = {"purpose": "drift", "number": 1, "seed": None, "sha256": "0" * 64}
    told |= {"tasks": 100, "right": 100, "valid": 100, "precision": None, "wrong": [], "code": None}
    told |= {"checkpoint": place.line().active, "commit": place.line().head.commit, **changes}
    append(place.log, place.line_id, Chain.Evaluated, **told)


def raised(place: Workplace) -> list[str]:
    """Return the alarms that a look at what is on record raises."""
    found = watch(place, make=None, production={}, measure=False, pause=0.0)
    return [each.kind for each in found.raised]


def lose(place: Workplace, *, times: int = 7) -> None:
    """Lose a percent more each time."""
    for lost in range(times):
        record(place, right=94 - lost)


def test_loss_is_raised_where_nobody_tries(place: Workplace) -> None:
    lose(place)
    assert raised(place) == ["ratchet", "decline"]


def test_baseline_that_grows_after_a_comparison_is_rejected(line: Line, tmp_path: Path) -> None:
    place = bare_place(line, tmp_path)
    for _ in range(20):
        record(place, right=4, tasks=4, purpose="baseline")
    make = maker_of(place.reference_set(line.head()), 4)
    assert len(measure_baseline(place, make=make, repeats=20).values) == 20  # the honest control
    promote(place, 1)
    record(place, right=4, tasks=4)
    before = read_history(place).base
    for _ in range(20):
        record(place, right=1, tasks=4, purpose="baseline", checkpoint=place.line().first)
    assert read_history(place).base == before
    with pytest.raises(DriftError, match="with this baseline, so it is fixed at 20"):
        measure_baseline(place, make=make, repeats=60)


def test_baseline_of_another_checkpoint_is_rejected(place: Workplace) -> None:
    for _ in range(20):
        record(place, right=70, purpose="baseline")  # of the one that is active now
    assert read_baseline(place).values == (0.94,) * 20
    record(place, right=94, purpose="baseline", checkpoint=place.line().first)
    assert len(read_baseline(place).values) == 21  # the honest control


def test_good_evaluations_of_what_is_not_active_are_rejected(place: Workplace) -> None:
    lose(place, times=4)
    for _ in range(20):
        record(place, right=100, checkpoint=place.line().first)
    for lost in range(4, 7):
        record(place, right=94 - lost)
    assert len(read_history(place).points) == 7
    assert raised(place) == ["ratchet", "decline"]


@pytest.mark.parametrize(
    "changes",
    [
        {"right": 1_000},
        {"right": -1},
        {"tasks": 0, "right": 0},
        {"tasks": 10, "right": 10},
        {"checkpoint": "nobody's"},
    ],
)
def test_evaluation_that_cannot_be_one_is_rejected(
    place: Workplace, changes: dict[str, Any]
) -> None:
    evaluated(place, **changes)
    assert read_history(place).points == ()
    assert is_due(place, begun=0, every=20)
    evaluated(place)  # the honest control
    assert [point.value for point in read_history(place).points] == [1.0]
    assert not is_due(place, begun=0, every=20)


def test_second_evaluation_of_another_checkpoint_is_rejected(place: Workplace) -> None:
    for right in (94, 94, 94, 94, 94, 60):
        record(place, right=right)
    record(place, right=100, purpose="confirmation", checkpoint=place.line().first)
    assert read_history(place, pause=0.0).points[-1].again == ()
    for _ in range(CONFIRMATIONS):
        record(place, right=60, purpose="confirmation")
    record(place, right=100, purpose="confirmation")  # another one, until it is lucky
    assert raised(place) == ["circuit breaker"]


def test_evaluation_that_is_stopped_when_it_looks_bad_is_due_again(place: Workplace) -> None:
    for right in (94, 94, 94, 94, 94):
        record(place, right=right)
    assert not is_due(place, begun=19, every=20)
    record(place, right=60)
    assert is_due(place, begun=0, every=20)
    record(place, right=94, purpose="confirmation")  # at once, as whoever is in a hurry does
    assert is_due(place, begun=0, every=20)
    assert not is_due(place, begun=0, every=20, pause=0.0)  # it was bad luck after all


@pytest.mark.slow
def test_stopped_evaluation_gets_its_second_one_and_no_fresh_start(
    line: Line, tmp_path: Path
) -> None:
    with line.controller() as controller, controller.locked():
        place = controller.place
        for _ in range(20):
            record(place, right=4, tasks=4, purpose="baseline")
        commit = line.commit(SELECTION, UNSORTED)
        chain = place.line()
        commits = {"commit": commit, "tree": line.repository.tree_of(commit)}
        chain.promote(proposals=["p"], manifest="0" * 64, reference_set="0" * 64, **commits)
        place.log.save(chain)
        record(place, right=0, tasks=4)
        make = maker_of(place.reference_set(commit), 4)
        found = watch(place, make=make, production={}, pause=0.0)
        assert [each.kind for each in found.raised] == ["circuit breaker"]
        purposes = [key[1] for key in place.line().evaluations]
        assert purposes == ["baseline", "drift", "confirmation"]


def test_answer_to_one_alarm_under_the_name_of_another_is_rejected(place: Workplace) -> None:
    lose(place)
    assert raised(place) == ["ratchet", "decline"]
    append(place.log, place.line_id, Chain.AlarmAnswered, alarm=2, kind="ratchet", note="fine")
    record(place, right=88)
    assert not read_history(place).points[-1].answered
    append(place.log, place.line_id, Chain.AlarmAnswered, alarm=1, kind="decline", note="fine")
    record(place, right=88)
    assert read_history(place).points[-1].answered  # the honest control, whatever it calls itself


def test_answer_without_an_operators_key_is_rejected(line: Line) -> None:
    with line.controller() as controller, controller.locked():
        place = controller.place

        def alarmed() -> list[Chain]:
            chain = place.line()
            chain.alarm(commit=chain.head.commit, kind="decline", detail="it falls")
            return [chain]

        place.save(alarmed)
        *_, alarm = place.line().open_alarms
        with pytest.raises(DriftError, match="must be answered by an operator"):
            answer(place, alarm, "never mind", author=None)
        with pytest.raises(AuthorityError, match="not in force for that role"):
            answer(place, alarm, "never mind", author=AuthorKey("operator", line.stranger))
        assert alarm in place.line().open_alarms
        by_operator = AuthorKey("operator", line.operator)
        assert alarm not in answer(place, alarm, "it was the cold", author=by_operator).open_alarms


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        yield log


def asked(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_source(folder / "ledger") as ledger, projected(ledger.entries(start=0)) as connection:
        return connection.execute(sql).fetchall()


def test_answer_before_there_is_an_alarm_is_rejected(
    log: LedgerApplication, tmp_path: Path
) -> None:
    chain = synthetic_line(log)
    told = {"kind": "decline", "note": "fine"}
    append(log, chain.id, Chain.AlarmAnswered, alarm=1, **told)
    alarm = {"checkpoint": chain.active, "commit": chain.head.commit, "kind": "decline"}
    append(log, chain.id, Chain.DriftAlarmed, detail="it falls", tasks=[], **alarm)
    append(log, chain.id, Chain.DriftAlarmed, detail="it falls", tasks=[], **alarm)
    append(log, chain.id, Chain.AlarmAnswered, alarm=2, **told)  # the honest control
    found = asked(tmp_path, "SELECT number, open FROM alarms ORDER BY number")
    assert found == [(1, True), (2, False)]


def test_failed_audit_that_nobody_takes_back_is_rejected(
    log: LedgerApplication, tmp_path: Path
) -> None:
    """Production is what a judge says of it, where there is one."""
    chain, key = synthetic_line(log), Ed25519PrivateKey.generate()
    assert isinstance(log.recorder, SignedRecorder)
    log.recorder.grant_key(vkey("judge", public_bytes(key)), role="judge")

    def by_judge(audit: Audit) -> None:
        log.save(audit, author=AuthorKey("judge", key))

    honest, failed, other = (
        synthetic_run(log, checkpoint=chain.active, dead=range(3)) for _ in range(3)
    )
    for run in (failed, other):
        synthetic_audit(log, run, hard_fail=True, save=by_judge)
    synthetic_audit(log, failed)
    lent = synthetic_audit(log, honest, save=by_judge)
    told: dict[str, Any] = {
        "tree_head": "",
        "config": {"disabled": []},
        "environment": {},
        "judged": None,
    }
    told["originator_topic"] = "aggregates.audit:Audit"
    append(log, lent.id, Audit.Started, run=str(other.id), **told)
    found = dict(asked(tmp_path, "SELECT run_id, success FROM production_runs"))
    assert found == {str(honest.id): True, str(failed.id): False, str(other.id): False}
