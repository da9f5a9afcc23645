"""Six measures of each checkpoint, and what alarms become."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from studies.drift_rates import deficits
from synthetic import (
    synthetic_audit,
    synthetic_call,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from judge.drift.charts import DEFICIT
from ledger.application import LedgerApplication
from projections.projector import projected
from projections.source import open_source


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        yield log


def evaluate(line: Line, *, right: int, precision: float | None = None) -> None:
    line.evaluate(
        line.active,
        purpose="drift",
        seed=None,
        sha256="0" * 64,
        tasks=10,
        wrong=["one"] * (10 - right),
        valid=9,
        precision=precision,
        code=None,
    )


def test_six_measures_are_those_of_the_checkpoint(log: LedgerApplication, tmp_path: Path) -> None:
    line = synthetic_line(log)
    first = line.active
    evaluate(line, right=9, precision=0.5)
    evaluate(line, right=8, precision=0.7)
    log.save(line)
    run = synthetic_run(log, checkpoint=first)
    synthetic_transcript(
        log, run, [synthetic_call(), synthetic_call(action="probe", epoch=None, rules=())]
    )
    synthetic_run(log, checkpoint=first, end="crashed")
    synthetic_run(log, checkpoint=first, end=None)
    synthetic_run(log, checkpoint=first, provoke="dead_activations", dead=range(5))
    synthetic_run(log)
    synthetic_proposal(log, line, outcome="rejected")
    synthetic_proposal(log, line)
    evaluate(line, right=6)
    log.save(line)
    with (
        open_source(tmp_path / "ledger") as ledger,
        projected(ledger.entries(start=0)) as connection,
    ):
        measures = (
            "reference_success, budget_utilisation, retrieval_precision, production_success, "
            "validation_pass, proposal_acceptance"
        )
        found = connection.execute(
            f"SELECT {measures} FROM checkpoint_metrics ORDER BY idx"
        ).fetchall()
        trend = connection.execute(
            "SELECT first, last, slope FROM metric_trends WHERE metric = 'reference_success'"
        ).fetchall()
        used = connection.execute(
            "SELECT kind, stage, calls, completion_tokens, budget_utilisation FROM stage_use "
            "WHERE calls > 0 OR kind = 'proposal' ORDER BY kind, stage, calls"
        ).fetchall()
        answers = connection.execute(
            "SELECT arm, task, answers, success, seconds >= 0, tokens, budget_utilisation "
            "FROM task_use ORDER BY commit, arm"
        ).fetchall()
        benchmarked = connection.execute(
            "SELECT benchmark_answers, benchmark_success, benchmark_seconds >= 0 "
            "FROM checkpoint_metrics ORDER BY idx"
        ).fetchall()
    stages = ["benchmark", "branch", "conclude", "evaluate", "test", "test the rest"]
    assert sorted({stage for kind, stage, *_ in used if kind == "proposal"}) == stages
    assert used[-2:] == [("run", "decide", 1, 40, 40 / 1024), ("run", "probe", 1, 40, 40 / 1024)]
    assert sorted(answers) == [
        ("base", "first", 1, 0.0, True, 40.0, 0.25),
        ("base", "first", 1, 1.0, True, 40.0, 0.25),
        ("candidate", "first", 1, 0.0, True, 40.0, 0.25),
        ("candidate", "first", 1, 1.0, True, 40.0, 0.25),
    ]
    assert benchmarked == [(2, 0.5, True)] * 2
    assert found[0] == pytest.approx((0.85, 40 / 1024, 0.6, 0.5, 0.9, 0.5))
    assert found[1] == (0.6, None, None, None, 0.9, None)
    assert trend == [(0.85, 0.6, pytest.approx(-0.25))]


def test_run_at_chance_level_is_no_success_in_production(
    log: LedgerApplication, tmp_path: Path
) -> None:
    first = synthetic_line(log).active
    runs = {epochs: synthetic_run(log, epochs=epochs, checkpoint=first) for epochs in (1, 2, 3, 5)}
    with (
        open_source(tmp_path / "ledger") as ledger,
        projected(ledger.entries(start=0)) as connection,
    ):
        found = {
            str(run): (accuracy, chance, success)
            for run, accuracy, chance, success in connection.execute(
                "SELECT run_id, accuracy, chance, success FROM production_runs"
            ).fetchall()
        }
        (share,) = connection.execute(
            "SELECT production_success FROM checkpoint_metrics WHERE production_runs > 0"
        ).fetchall()
    assert {epochs: found[str(run.id)] for epochs, run in runs.items()} == {
        1: (pytest.approx(0.09), pytest.approx(0.1), False),  # of ten classes, and it guesses
        2: (pytest.approx(0.171), pytest.approx(0.1), False),
        3: (pytest.approx(0.2439), pytest.approx(0.1), True),
        5: (pytest.approx(0.368559), pytest.approx(0.1), True),
    }
    assert share == (0.5,)


def test_policy_that_trains_to_chance_raises_an_alarm_within_ten_runs(
    log: LedgerApplication, tmp_path: Path
) -> None:
    line = synthetic_line(log)
    adopt = {"tree": "b" * 40, "manifest": "m", "reference_set": "r", "envelope": "{}"}
    good = line.active
    for _ in range(4):
        synthetic_run(log, checkpoint=good, epochs=5)
    bad = line.adopt(commit="a" * 40, **adopt)
    log.save(line)
    learned = [False, True, *[False] * 9]
    for success in learned:
        synthetic_run(log, checkpoint=bad, epochs=5 if success else 1)
    line.alarm(commit=line.head.commit, kind="production", detail="worse")
    line.answer(1, "its prompt was cut off")
    log.save(line)
    answered = log.recorder.max_notification_id() or 0
    alarm = "SELECT checkpoint_id, production_alarm FROM checkpoint_metrics ORDER BY idx"
    with (
        open_source(tmp_path / "ledger") as ledger,
        projected(ledger.entries(start=0)) as connection,
    ):
        assert connection.execute(alarm).fetchall() == [(good, False), (bad, False)]  # answered
        connection.execute(f"SET VARIABLE as_of = {answered - 2}")
        assert connection.execute(alarm).fetchall() == [(good, False), (bad, True)]
        charted = connection.execute(
            f"SELECT deficit FROM production_charts WHERE checkpoint_id = '{bad}' "
            "ORDER BY started_idx"
        ).fetchall()
    found = [deficit for (deficit,) in charted]
    assert found == deficits(np.array(learned)).tolist()
    assert found.index(DEFICIT) < 10


def test_run_below_the_healthy_range_of_its_task_is_no_success(
    log: LedgerApplication, tmp_path: Path
) -> None:
    first = synthetic_line(log).active
    for seed in range(10):
        synthetic_audit(log, synthetic_run(log, checkpoint=first, seed=seed))  # 75% right
    low = synthetic_run(log, checkpoint=first, seed=10)  # 37%, which is above chance
    broken = synthetic_run(log, checkpoint=first, seed=11)
    synthetic_audit(log, broken, score=0.4)
    with (
        open_source(tmp_path / "ledger") as ledger,
        projected(ledger.entries(start=0)) as connection,
    ):
        failed = connection.execute(
            "SELECT run_id FROM production_runs WHERE NOT success ORDER BY started_idx"
        ).fetchall()
    assert failed == [(str(low.id),), (str(broken.id),)]


def test_alarm_is_open_until_it_is_answered(log: LedgerApplication, tmp_path: Path) -> None:
    line = synthetic_line(log)
    for kind in ("ratchet", "production"):
        line.alarm(commit=line.head.commit, kind=kind, detail="worse")
    line.answer(2, "the data had changed")
    log.save(line)
    statement = "SELECT number, kind, open, note FROM alarms ORDER BY number"
    with (
        open_source(tmp_path / "ledger") as ledger,
        projected(ledger.entries(start=0)) as connection,
    ):
        now = connection.execute(statement).fetchall()
        connection.execute("SET VARIABLE as_of = 1")
        then = connection.execute(statement).fetchall()
    assert now == [
        (1, "ratchet", True, None),
        (2, "production", False, "the data had changed"),
    ]
    assert then == [(1, "ratchet", True, None)]
