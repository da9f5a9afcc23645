"""Trainings that tried rates, honest ones and stories about them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judge_cases import CONFIG, Case, failed, rewrite, train_case

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER, FRESH, TRY_RATES
from aggregates.run import Run
from judge.auditing.gates import Redo
from policies.deciding.recorded import RecordedPolicy

RATES = [1e-3, 0.05, 1e-4]
BEST, LAST, NEXT = 2, 3, 4  # the epoch of the best rate, of the last trial, and of what goes on
AGAIN = Redo(lambda run: RecordedPolicy(run.decisions, run.policy))


class Trying:
    """Tries rates where a rule fires for the first time, and waits from then on."""

    name = "trying"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, seen: Observation) -> Sequence[Decision]:
        params = {"epoch": 0, "rates": RATES}
        tries = TRY_RATES in seen.directions(seen.due[0]) and not seen.decisions
        said = [(seen.due[0], TRY_RATES, params)] if tries else []
        said += [(rule, DEFER, {}) for rule in seen.due[len(said) :]]
        return [Decision.of((rule,), way, given, "for the test") for rule, way, given in said]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a training whose rate was a thousand times too low, and three others were tried."""
    config = replace(CONFIG, profile="relative")
    return train_case(tmp_path_factory.mktemp("tried"), Trying(), config)


def test_training_that_tried_rates_passes_whole_and_is_retrained(tried: Case) -> None:
    report = tried.audit(redo=AGAIN)
    assert failed(report) is None
    assert report.retrained == 1.0
    assert report.violations == ()
    measured = [each for each in tried.events() if isinstance(each, Run.EpochMeasured)]
    losses = [each.measured["validation"]["loss"] for each in measured[1 : LAST + 1]]
    assert losses.index(min(losses)) == BEST - 1
    assert [each.measured["settings"]["lr"] for each in measured] == [
        *(1e-5, *RATES),
        *[RATES[BEST - 1]] * 4,
    ]


def _measured(epoch: int, change: Callable[[dict[str, Any]], None]) -> Any:
    def changed(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.EpochMeasured) or event.epoch != epoch:
            return {}
        part = {key: dict(v) if isinstance(v, dict) else v for key, v in event.measured.items()}
        change(part)
        return {"measured": part}

    return changed


def test_choice_that_does_not_follow_is_rejected(tried: Case, tmp_path: Path) -> None:
    case = tried.copy(tmp_path)
    other = _measured(NEXT, lambda part: part["settings"].update(lr=RATES[2]))
    report = rewrite(case, other).audit()
    assert failed(report) == "ledger"
    told = f"epoch {NEXT} goes on from epoch {BEST} of decision 1 with lr 0.05, not 0.0001"
    assert told in report.step("ledger").summary


def test_rate_that_was_not_to_be_tried_is_rejected(tried: Case, tmp_path: Path) -> None:
    case = tried.copy(tmp_path)
    other = _measured(LAST, lambda part: part["settings"].update(lr=0.02))
    report = rewrite(case, other).audit()
    assert failed(report) == "ledger"
    assert f"epoch {LAST} is a trial of decision 1 with lr 0.0001" in report.step("ledger").summary


def test_invented_loss_that_changes_the_choice_is_rejected(tried: Case, tmp_path: Path) -> None:
    case = tried.copy(tmp_path)
    better = _measured(LAST, lambda part: part["validation"].update(loss=1e-3))
    report = rewrite(case, better).audit()
    assert failed(report) == "ledger"
    assert f"epoch {NEXT} goes on from epoch {LAST}" in report.step("ledger").summary


def test_invented_loss_that_leaves_the_choice_is_noticed_by_training(
    tried: Case, tmp_path: Path
) -> None:
    case = tried.copy(tmp_path)
    worse = _measured(LAST, lambda part: part["validation"].update(loss=9.0))
    report = rewrite(case, worse).audit(redo=AGAIN)
    assert failed(report) == "probe"


def test_trials_of_another_state_are_noticed_by_training(tried: Case, tmp_path: Path) -> None:
    case = tried.copy(tmp_path)

    def fresh(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.DecisionMade) and event.direction == TRY_RATES:
            return {"params": {**event.params, "epoch": FRESH}}
        if isinstance(event, Run.RemedyApplied):
            return {"changes": [event.changes[0], _back(event.epoch), *event.changes[1:]]}
        return {}

    def _back(epoch: int) -> dict[str, Any]:
        return {"what": "epoch", "from": epoch, "to": FRESH}

    report = rewrite(case, fresh).audit(redo=AGAIN)
    assert failed(report) == "probe"


def test_trials_beyond_the_epochs_that_are_left_are_rejected(tried: Case, tmp_path: Path) -> None:
    case = tried.copy(tmp_path)

    def shorter(event: Any) -> dict[str, Any] | None:
        if isinstance(event, Run.Started):
            config = replace(CONFIG, profile="relative", epochs=LAST + 1)
            return {"config": config.to_dict(), "config_hash": config.hash}
        if isinstance(event, Run.WeightsSaved) and event.kind == "last":
            return {"epoch": LAST}
        return None if getattr(event, "epoch", 0) > LAST else {}

    report = rewrite(case, shorter).audit()
    assert failed(report) == "ledger"
    assert "3 rates cannot be tried" in report.step("ledger").summary
