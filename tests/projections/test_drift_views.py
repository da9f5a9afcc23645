"""Six measures of each checkpoint, and what alarms become."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic import (
    synthetic_call,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
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
