"""Trainings of tasks that went back, honest ones and stories about them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from judge_cases import Case, events_of, failed, rewrite
from task_runs import TABULAR, data_of, open_here

from aggregates.playbook import FRESH, GO_BACK
from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.auditing.gates import Redo
from judge.auditing.reexecution import reexecute
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.paths import LedgerPaths
from monitor.answering import Policy
from monitor.errors import MonitorError
from monitor.loop import OnEpoch
from monitor.task_loop import train_task
from monitor.tasks import read_task
from monitor.watched_model import WatchedState
from policies.deciding.catalogue import create_policy
from policies.deciding.named import named_policy
from policies.deciding.recorded import RecordedPolicy
from proctor.runs.replay import folded

# Epoch 2 of 6 is trained with a rate that is far too high, whatever is decided.
HOT = (
    TABULAR
    + "\n\ndef schedule(progress, params):\n    return 50 if 0.34 < progress < 0.51 else 1\n"
)
SETTINGS: dict[str, Any] = {"rows": 400, "test_rows": 100, "epochs": 6, "hidden": 8, "lr": 0.001}
AGAIN = Redo(lambda run: RecordedPolicy(run.decisions, run.policy))


def train_case(
    folder: Path,
    source: str = HOT,
    policy: Policy | None = None,
    on_epoch: OnEpoch | None = None,
    run_id: UUID | None = None,
    **settings: Any,
) -> Case:
    ledger, submission = folder / "ledger", folder / "submission"
    chosen = {**SETTINGS, **settings}
    config = read_task(source.encode(), "task.py").configure(chosen)
    with LedgerApplication.open(ledger, REGISTRY) as log:
        run = train_task(
            config,
            source.encode(),
            policy or create_policy("rescue"),
            data=data_of(source, **chosen),
            open_worker=open_here,
            log=log,
            blobs=BlobStore(LedgerPaths(ledger).blobs),
            submission_dir=submission,
            on_epoch=on_epoch,
            run_id=run_id,
        )
    return Case(str(run.id), ledger, submission)


@pytest.fixture(scope="module")
def rescued(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a training that one epoch has damaged, and that went back to the one before."""
    return train_case(tmp_path_factory.mktemp("rescued"))


def gone_back(case: Case) -> list[tuple[int, int]]:
    return [
        (event.epoch, event.params["epoch"])
        for event in case.events()
        if type(event) is Run.DecisionMade and event.direction == GO_BACK
    ]


def test_rescued_task_passes_whole_and_its_policy_says_the_same_again(rescued: Case) -> None:
    assert gone_back(rescued) == [(2, 1)]
    report = rescued.audit(named=named_policy, redo=AGAIN)
    assert failed(report) is None
    assert report.violations == ()
    assert report.retrained == 1.0
    assert report.scores.process_score == 1.0
    assert report.step("defensibility").evidence["asked_again"]["same"] is True


@pytest.mark.slow
@pytest.mark.parametrize("lr", [0.3, 10.0])
def test_task_whose_rate_was_far_too_high_passes_too(lr: float, tmp_path: Path) -> None:
    case = train_case(tmp_path, TABULAR, lr=lr)
    assert gone_back(case)[0] == (0, FRESH)
    report = case.audit(named=named_policy, redo=AGAIN)
    assert failed(report) is None
    assert report.violations == ()


def test_crash_in_the_epoch_after_going_back_leaves_what_can_be_trained_again(
    tmp_path: Path,
) -> None:
    def crash(run: Run, _measured: dict[str, Any]) -> None:
        if run.epoch == 3:
            raise RuntimeError("the power went off")

    run_id = uuid4()
    with pytest.raises(MonitorError, match="the power went off"):
        train_case(tmp_path, on_epoch=crash, run_id=run_id)
    events = events_of(tmp_path / "ledger", str(run_id))
    assert events[-1].reason == "failed"
    run = folded(events)
    again = partial(
        train_task, source=HOT.encode(), data=data_of(HOT, **SETTINGS), open_worker=open_here
    )
    found = reexecute(events, RecordedPolicy(run.decisions, run.policy), task=again)
    assert (found.same, found.epochs) == (True, 4)


def _told(**params: Any) -> Callable[[Any], dict[str, Any]]:
    """Return what tells another state or rate of going back, and what follows from it."""
    rate = {"lr": params["lr"]} if "lr" in params else {}

    def change(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.DecisionMade) and event.direction == GO_BACK:
            return {"params": {**event.params, **params}}
        if isinstance(event, Run.RemedyApplied):
            changes = [{**e, "to": params.get(e["what"], e["to"])} for e in event.changes]
            return {"changes": changes, "settings": {**event.settings, **rate}}
        if isinstance(event, Run.EpochMeasured) and event.epoch > 2:
            settings = {**event.measured["settings"], **rate}
            return {"measured": {**event.measured, "settings": settings}}
        return {}

    return change


def rate_of(case: Case) -> float:
    (rate,) = (
        event.params["lr"]
        for event in case.events()
        if type(event) is Run.DecisionMade and event.direction == GO_BACK
    )
    return float(rate)


@pytest.mark.parametrize("told", ["nothing", "fresh weights", "another rate"])
def test_other_state_or_rate_than_the_one_that_was_gone_back_to_is_noticed(
    told: str, rescued: Case, tmp_path: Path
) -> None:
    changes: dict[str, dict[str, Any]] = {
        "nothing": {},
        "fresh weights": {"epoch": FRESH},
        "another rate": {"lr": rate_of(rescued) * 0.9},
    }
    forged = rewrite(rescued.copy(tmp_path), _told(**changes[told]))
    report = forged.audit(redo=AGAIN)
    if told == "nothing":
        assert failed(report) is None
    else:
        assert failed(report) == "probe"
        assert "differ" in report.step("probe").summary


@pytest.mark.parametrize("epoch", [0, 7])
def test_state_that_was_not_kept_is_named(epoch: int, rescued: Case, tmp_path: Path) -> None:
    report = rewrite(rescued.copy(tmp_path), _told(epoch=epoch)).audit()
    assert failed(report) == "ledger"
    assert f"the state after epoch {epoch} is not kept" in report.step("ledger").summary


def test_restoring_that_was_skipped_is_noticed(tmp_path: Path) -> None:
    with (
        mock.patch.object(WatchedState, "_put_back"),
        mock.patch.object(WatchedState, "fingerprint", return_value=""),
    ):
        case = train_case(tmp_path)
    assert gone_back(case)[0] == (2, 1)
    report = case.audit(redo=AGAIN)
    assert failed(report) == "probe"
    assert "differ" in report.step("probe").summary


@pytest.mark.parametrize("offers", ["without", "with"])
def test_offers_that_contradict_the_configuration_are_named(
    offers: str, rescued: Case, tmp_path: Path
) -> None:
    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.Started) or offers == "with":
            return {}
        others = [each for each in event.spec["offers"] if each != GO_BACK]
        return {"spec": {**event.spec, "offers": others}}

    report = rewrite(rescued.copy(tmp_path), change, checked=False).audit()
    if offers == "with":
        assert failed(report) is None
        return
    assert failed(report) == "ledger"
    assert "offers no going back, but its configuration has goes_back = true" in (
        report.step("ledger").summary
    )


def test_refusal_of_a_state_that_was_kept_is_named(rescued: Case, tmp_path: Path) -> None:
    def refuse(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.RemedyApplied):
            return {}
        place = {"decision": event.decision, "epoch": event.epoch}
        return {"event": Run.RemedyRefused, **place, "reason": "the disk is full"}

    report = rewrite(rescued.copy(tmp_path), refuse).audit()
    assert failed(report) == "ledger"  # the rate of the next epoch is another one


# It looks for what its worker has kept, and puts something else there.
TAMPERS = """

class Tampers(nn.Linear):
    def forward(self, x):
        import gc

        for each in gc.get_objects():
            if type(each).__name__ == "_Copied" and each.memory and any(each.memory):
                with torch.no_grad():
                    for value in each.weights.values():
                        value.mul_(0.5)
        return super().forward(x)


def model(params):
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), Tampers(8, 3))
"""


@pytest.mark.slow
def test_task_that_changes_what_was_kept_is_stopped_before_it_is_put_back(tmp_path: Path) -> None:
    with pytest.raises(MonitorError, match="state after epoch 1 was not put back as it was kept"):
        train_case(tmp_path, HOT + TAMPERS)
