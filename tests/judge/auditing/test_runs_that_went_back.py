"""Trainings that went back, honest ones and stories about them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judge_cases import CONFIG, Case, failed, rewrite, train_case

from aggregates.playbook import FRESH, GO_BACK
from aggregates.run import Run
from judge.auditing.gates import Redo
from policies.deciding.catalogue import create_policy
from policies.deciding.named import named_policy
from policies.deciding.recorded import RecordedPolicy

RELATIVE = replace(CONFIG, profile="relative")
AGAIN = Redo(lambda run: RecordedPolicy(run.decisions, run.policy))


@pytest.fixture(scope="module")
def rescued(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a training whose rate was a thousand times too low, and one epoch set it right."""
    return train_case(tmp_path_factory.mktemp("rescued"), create_policy("rescue"), RELATIVE)


def test_rescued_training_passes_whole_and_its_policy_says_the_same_again(rescued: Case) -> None:
    decisions = [e for e in rescued.events() if type(e) is Run.DecisionMade]
    assert (decisions[0].epoch, decisions[0].direction) == (0, GO_BACK)
    report = rescued.audit(named=named_policy)
    assert failed(report) is None
    assert report.violations == ()
    assert report.scores.process_score == 1.0
    assert report.step("defensibility").evidence["asked_again"]["same"] is True


@pytest.mark.slow
@pytest.mark.parametrize("lr", [3.0, 30.0])
def test_training_whose_rate_was_far_too_high_passes_too(lr: float, tmp_path: Path) -> None:
    case = train_case(tmp_path, create_policy("rescue"), replace(RELATIVE, lr=min(lr, 10.0)))
    report = case.audit(named=named_policy)
    assert failed(report) is None
    assert report.violations == ()


def _of(kind: type, **changes: Any) -> Callable[[Any], dict[str, Any]]:
    done: list[Any] = []

    def change(event: Any) -> dict[str, Any]:
        hit = isinstance(event, kind) and not done
        if isinstance(event, Run.DecisionMade) and hit and event.direction != GO_BACK:
            return {}
        if hit:
            done.append(event)
        return {name: made(event) for name, made in changes.items()} if hit else {}

    return change


def test_state_that_was_not_kept_is_named(rescued: Case, tmp_path: Path) -> None:
    case = rescued.copy(tmp_path)
    never = _of(Run.DecisionMade, params=lambda e: {**e.params, "epoch": 7})
    report = rewrite(case, never).audit()
    assert failed(report) == "ledger"
    assert "the state after epoch 7 is not kept" in report.step("ledger").summary


def test_refusal_of_a_state_that_was_kept_is_named(rescued: Case, tmp_path: Path) -> None:
    case = rescued.copy(tmp_path)

    def refuse(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.RemedyApplied):
            return {}
        place = {"decision": event.decision, "epoch": event.epoch}
        return {"event": Run.RemedyRefused, **place, "reason": "the disk is full"}

    report = rewrite(case, refuse).audit()
    assert failed(report) == "ledger"
    assert "is recorded as refused" in report.step("ledger").summary


def test_another_state_than_the_one_that_was_gone_back_to_is_noticed(
    rescued: Case, tmp_path: Path
) -> None:
    case = rescued.copy(tmp_path)

    def fresh(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.DecisionMade) and event.direction == GO_BACK:
            return {"params": {**event.params, "epoch": FRESH}}
        if isinstance(event, Run.RemedyApplied):
            new = {"what": "epoch", "from": event.epoch, "to": FRESH}
            return {"changes": [*event.changes, new]}
        return {}

    report = rewrite(case, fresh).audit(redo=AGAIN)
    assert failed(report) == "probe"
    assert rescued.audit(redo=AGAIN).retrained == 1.0
