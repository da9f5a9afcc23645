"""A training goes on from a saved state as if it had never stopped."""

from dataclasses import replace
from typing import Any

import pytest
from forked_runs import REMEDIES, compare_with_forks, events_of, forked, recorded, told
from portable import in_portable_process
from tiny_training import STUCK, Trained, train_tiny

from aggregates.errors import InvariantError
from aggregates.forks import Fork, Order
from aggregates.playbook import REMEDIES as DIRECTIONS
from aggregates.playbook import RESTORING
from aggregates.run import Run
from judge.auditing.reexecution import rebuild, reexecute
from judge.errors import JudgeError
from monitor.config import RunConfig
from monitor.errors import SnapshotError
from monitor.snapshots import restore

RATE = ("increase_lr", {"lr": 4e-7})
SAVING: dict[str, Any] = {**STUCK, "snapshots": "every:2"}


@pytest.fixture(scope="module")
def parent() -> Trained:
    return train_tiny(RATE, settings=SAVING)


def test_fork_with_the_decisions_of_its_parent_is_its_parent_bit_for_bit(parent: Trained) -> None:
    assert parent.run.remedies
    for epoch in (1, 2, 3):
        again = forked(parent, epoch, recorded(parent), settings=SAVING)
        assert told(again) == told(parent)


@pytest.mark.slow
def test_fork_with_another_order_differs_only_after_its_epoch(parent: Trained) -> None:
    other = forked(parent, 2, recorded(parent), Order(2, 1), settings=SAVING)
    assert other.run.history[:3] == parent.run.history[:3]
    assert other.run.history[3] != parent.run.history[3]
    assert reexecute(events_of(other), recorded(other)).same
    # and a fork of the fork goes on in that order
    again = forked(other, 3, recorded(other), Order(2, 1), settings=SAVING)
    assert told(again) == told(other)


def test_state_is_the_same_from_the_start_and_from_a_snapshot(parent: Trained) -> None:
    events = events_of(parent)
    near = rebuild(events, recorded(parent), 2, blobs=parent.blobs)
    far = rebuild(events, recorded(parent), 2, blobs=None)
    assert (near.since, near.epochs, far.since, far.epochs) == (1, 1, None, 3)
    assert near.state == far.state
    assert rebuild(events, recorded(parent), 3, blobs=parent.blobs).epochs == 0


@pytest.mark.parametrize("epoch", [-1, 4])
def test_state_of_an_epoch_that_does_not_exist_is_refused(parent: Trained, epoch: int) -> None:
    with pytest.raises(JudgeError, match=f"has the epochs 0 to 3, not epoch {epoch}"):
        rebuild(events_of(parent), recorded(parent), epoch, blobs=None)


def test_run_that_does_not_come_out_as_recorded_is_not_forked(parent: Trained) -> None:
    events = events_of(parent)
    place = next(n for n, each in enumerate(events) if type(each) is Run.EpochMeasured)
    forged: Any = object.__new__(Run.EpochMeasured)
    measured = {**events[place].measured, "validation": {"loss": 1.0, "accuracy": 1.0}}
    vars(forged).update({**vars(events[place]), "measured": measured})
    events[place] = forged
    with pytest.raises(JudgeError, match="does not come out as it was recorded"):
        rebuild(events, recorded(parent), 1, blobs=None)


@pytest.mark.parametrize("state", [b"", b"nothing of the kind"])
def test_bytes_that_are_no_state_are_refused(parent: Trained, state: bytes) -> None:
    config = RunConfig.from_dict(SAVING)
    with pytest.raises(SnapshotError, match="cannot be used"):
        restore(config, parent.run, state, train_examples=192)


def test_state_of_another_model_is_refused(parent: Trained) -> None:
    state = rebuild(events_of(parent), recorded(parent), 1, blobs=parent.blobs).state
    wider = replace(RunConfig.from_dict(SAVING), width=16)
    other = train_tiny(settings={**SAVING, "width": 16, "epochs": 1}).run
    with pytest.raises(SnapshotError, match=r"in the weights and"):
        restore(wider, other, state, train_examples=192)


def test_orders_of_a_fork_rise_up_to_its_epoch() -> None:
    for orders in ((Order(3, 1),), (Order(1, 1), Order(1, 2)), (Order(0, -1),)):
        with pytest.raises(InvariantError, match="orders of a fork"):
            Fork("p", 2, "d", "s", orders)


@pytest.mark.slow
def test_forks_repeat_their_parents_with_every_kind_of_remedy_in_portable_numerics() -> None:
    # What goes back is forked in test_going_back.py.
    assert {direction for direction, _ in REMEDIES} == set(DIRECTIONS) - {*RESTORING}
    assert len(REMEDIES) == 20
    assert (
        in_portable_process(compare_with_forks.__module__, "compare_with_forks", "portable") == []
    )
