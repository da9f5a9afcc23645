"""The views, each on a ledger that has the case and one that nearly has it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from synthetic import measured, synthetic_audit, synthetic_campaign, synthetic_run

from aggregates.decisions import Decision
from aggregates.playbook import DEFER, NO_ACTION
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from projections.cache import catch_up
from projections.reading import query


class Ledger:
    """A ledger that is written and then asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = LedgerApplication.open(folder / "ledger", REGISTRY)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        catch_up(self.folder / "p.duckdb", self.folder / "ledger")
        return query(self.folder / "p.duckdb", sql, parameters).rows


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def test_run_shows_its_configuration_its_start_and_its_end(ledger: Ledger) -> None:
    run = synthetic_run(ledger.log, seed=7, end="interrupted", waived=("R3", "R1"))
    [row] = ledger.ask(
        "SELECT run_id, dataset, seed, epochs_planned, profile, edits, target_accuracy, "
        "policy_name, end_reason, started_idx, ended_idx, ended_at >= started_at FROM runs"
    )
    last = ledger.ask("SELECT MAX(idx) FROM events")[0][0]
    expected = (str(run.id), "shapes", 7, 5, "calibrated", "live", 0.8, "synthetic", "interrupted")
    assert row == (*expected, 0, last, True)
    assert ledger.ask("SELECT rule FROM run_waived ORDER BY rule") == [("R1",), ("R3",)]


def test_run_has_no_end_when_it_goes_on(ledger: Ledger) -> None:
    synthetic_run(ledger.log, end=None)
    assert ledger.ask("SELECT ended_idx, ended_at, end_reason FROM runs") == [(None, None, None)]
    assert ledger.ask("SELECT state, epochs, verdict FROM run_summary") == [("running", 5, None)]
    assert ledger.ask("FROM run_waived") == []


def test_summary_shows_the_latest_of_audits_that_checked_as_much(ledger: Ledger) -> None:
    run = synthetic_run(ledger.log, epochs=3, dead=range(3))
    synthetic_audit(ledger.log, run, hard_fail=True, retrains=0.0)
    columns = "verdict, accuracy_score, process_score, process_axis, violations"
    sql = f"SELECT firings, decisions, applied, deferred, {columns} FROM run_summary"
    assert ledger.ask(sql) == [(1, 1, 1, 0, "failed", 0.0, 0.0, "exercised", 0)]
    synthetic_audit(ledger.log, run, violations=[{"kind": "padding"}, {"kind": "precedence"}])
    assert ledger.ask(sql) == [(1, 1, 1, 0, "held", 0.9, 1.0, "exercised", 2)]


def test_summary_marks_a_process_score_that_nothing_tested(ledger: Ledger) -> None:
    synthetic_audit(ledger.log, synthetic_run(ledger.log))
    assert ledger.ask("SELECT process_score, process_axis FROM run_summary") == [
        (1.0, "unexercised")
    ]


def test_summary_takes_the_best_of_the_finite_values(ledger: Ledger) -> None:
    synthetic_run(ledger.log, epochs=3, diverged=(2,))
    [(loss,)] = ledger.ask("SELECT best_val_loss FROM run_summary")
    assert loss == pytest.approx(2.0 * 0.9 * 1.1)


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({}, "applied"),
        ({"refuse": True}, "refused"),
        ({"edits": "restart"}, "restart"),
    ],
)
def test_decision_shows_its_outcome(ledger: Ledger, options: dict[str, Any], outcome: str) -> None:
    synthetic_run(ledger.log, epochs=3, dead=range(3), **options)
    assert ledger.ask("SELECT epoch, cites, direction, outcome FROM decision_outcomes") == [
        (2, ["R5"], "swap_activation", outcome)
    ]
    heat = "SELECT epoch, rule, precedence, outcome FROM rule_heatmap WHERE fired"
    assert ledger.ask(heat) == [(2, "R5", 4, outcome)]


def test_heatmap_has_a_cell_for_every_run_epoch_and_rule(ledger: Ledger) -> None:
    synthetic_run(ledger.log, epochs=3, diverged=(2,), waived=("R7",))
    assert ledger.ask("SELECT COUNT(*), COUNT(*) FILTER (waived) FROM rule_heatmap") == [(21, 3)]
    fired = "SELECT epoch, rule, side, waived, outcome FROM rule_heatmap WHERE fired"
    assert ledger.ask(fired) == [(2, "R7", "not_finite", True, None)]


def deferring(ledger: Ledger, *, diverged: Sequence[int], epochs: int) -> Run:
    """A run that answers R7 with a deferral in epoch 1 and with nothing later."""
    run = synthetic_run(ledger.log, epochs=1, end=None)
    for epoch in range(1, epochs):
        run.measure_epoch(measured(epoch, diverged=epoch in diverged), {})
        run.evaluate_rules()
        if epoch == 1:
            run.decide(
                Decision(NO_ACTION, ("R7",), DEFER, {"deferred_to": "R6"}, "wait"), source="human"
            )
    ledger.log.save(run)
    return run


@pytest.mark.parametrize(
    ("diverged", "cleared"), [((1,), 2), ((1, 2), 3), ((1, 2, 3), None), ((1, 3), 2)]
)
def test_deferral_is_cleared_when_its_rule_falls_silent(
    ledger: Ledger, diverged: Sequence[int], cleared: int | None
) -> None:
    deferring(ledger, diverged=diverged, epochs=4)
    assert ledger.ask(
        "SELECT epoch, rule, deferred_to, silent_epoch, acted_epoch, cleared_epoch FROM deferrals"
    ) == [(1, "R7", "R6", cleared, None, cleared)]
    assert ledger.ask("SELECT outcome FROM decision_outcomes") == [("deferred",)]


def test_deferral_is_cleared_when_its_rule_is_acted_on(ledger: Ledger) -> None:
    run = deferring(ledger, diverged=(1, 2, 3), epochs=4)
    run.decide(
        Decision("hyperparameter_change", ("R7",), "decrease_lr", {"lr": 0.01}, "now"),
        source="policy",
    )
    ledger.log.save(run)
    assert ledger.ask("SELECT cleared_epoch FROM deferrals") == [(None,)]  # asked is not done
    assert ledger.ask("SELECT outcome FROM decision_outcomes WHERE number = 2") == [("open",)]
    run.apply_remedy([], settings={}, spec=run.spec.to_dict())
    ledger.log.save(run)
    assert ledger.ask("SELECT acted_epoch, cleared_epoch FROM deferrals") == [(3, 3)]


def test_layer_extremes_name_the_layers_of_rank_two_and_more(ledger: Ledger) -> None:
    synthetic_run(ledger.log, epochs=1)
    assert ledger.ask(
        "SELECT epoch, largest_layer, largest_grad_norm, smallest_layer, smallest_grad_norm "
        "FROM layer_extremes"
    ) == [(0, "stem.weight", 1.0, "blocks.0.conv1.weight", 0.5)]


def test_lineage_holds_every_ancestor(ledger: Ledger) -> None:
    first = synthetic_run(ledger.log, epochs=1)
    second = synthetic_run(ledger.log, epochs=1, parent_run=str(first.id))
    third = synthetic_run(ledger.log, epochs=1, parent_run=str(second.id))
    rows = ledger.ask(
        "SELECT ancestor, distance FROM run_lineage WHERE run_id = ? ORDER BY distance",
        [str(third.id)],
    )
    assert rows == [(str(third.id), 0), (str(second.id), 1), (str(first.id), 2)]


def test_lineage_ends_when_runs_name_each_other_as_parents(ledger: Ledger) -> None:
    one, two = uuid4(), uuid4()
    synthetic_run(ledger.log, epochs=1, run_id=one, parent_run=str(two))
    synthetic_run(ledger.log, epochs=1, run_id=two, parent_run=str(one))
    rows = ledger.ask("SELECT ancestor, distance FROM run_lineage ORDER BY ALL")
    assert rows == sorted((str(run), distance) for run in (one, two) for distance in (0, 1))


def test_campaign_and_violations_are_told_with_their_runs(ledger: Ledger) -> None:
    run = synthetic_run(ledger.log, epochs=1)
    synthetic_audit(
        ledger.log, run, violations=[{"kind": "padding", "decision": 2, "emitter": "policy"}]
    )
    synthetic_campaign(ledger.log, [run])
    assert ledger.ask("SELECT run_id, kind, rule, decision, emitter FROM violations") == [
        (str(run.id), "padding", None, 2, "policy")
    ]
    assert ledger.ask("SELECT attempts, max_attempts, end_reason, ranking FROM campaigns") == [
        (1, 1, "completed", f'["{run.id}"]')
    ]


def test_provocation_shows_what_came_of_it(ledger: Ledger) -> None:
    synthetic_run(ledger.log, epochs=6, dead=range(3), provoke="dead_activations")
    synthetic_run(ledger.log, epochs=4, provoke="exploding_loss")
    synthetic_run(ledger.log, dead=range(3))  # nobody's doing
    columns = "name, expects, fired, fired_epoch, fired_epochs, remedied_epoch"
    assert ledger.ask(f"SELECT {columns} FROM provocation_outcomes ORDER BY name") == [
        ("dead_activations", ["R5"], True, 2, 1, 2),
        ("exploding_loss", ["R7"], False, None, 0, None),
    ]
