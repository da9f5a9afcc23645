"""Forks of tiny trainings, and what their streams tell."""

from typing import Any

from tiny_training import STUCK, Trained, train_tiny

from aggregates.forks import Fork, Order, shared_digest, shared_events
from judge.auditing.reexecution import rebuild, reexecute
from monitor.snapshots import Start
from policies.deciding.recorded import RecordedPolicy

# A model that every remedy can change: R1 fires in epoch 2.
CHANGEABLE: dict[str, Any] = {
    **STUCK,
    "norm": "none",
    "residual": False,
    "accumulation": 1,
    "snapshots": "at:1",
}
REMEDIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("decrease_lr", {"lr": 5e-8}),
    ("decrease_lr", {"lr": 2e-8, "clip_norm": 1.0}),
    ("decrease_lr", {"lr": 5e-8, "reinitialise": True}),
    ("increase_lr", {"lr": 4e-7}),
    ("increase_lr", {"lr": 1e-2}),
    ("warm_up_lr", {"lr": 5e-8, "epochs": 1}),
    ("warm_up_lr", {"lr": 1e-7, "epochs": 2}),
    ("cycle_lr", {"lr_min": 1e-7, "lr_max": 1e-3, "epochs": 2}),
    ("increase_batch_size", {"batch_size": 64}),
    ("decrease_batch_size", {"batch_size": 16}),
    ("accumulate_gradients", {"accumulation": 2}),
    ("stop", {}),
    ("add_block", {}),
    ("widen", {"factor": 2}),
    ("widen", {"factor": 2, "block": 0}),
    ("swap_activation", {"to": "gelu"}),
    ("swap_activation", {"to": "prelu"}),
    ("add_norm", {}),
    ("add_residual", {}),
    ("defer", {}),
)


def recorded(trained: Trained) -> RecordedPolicy:
    """Return the policy that says what was said in a run."""
    return RecordedPolicy(trained.run.decisions, trained.run.policy)


def events_of(trained: Trained) -> list[Any]:
    """Return a run's events."""
    return list(trained.log.events.get(trained.run.id))


def forked(
    parent: Trained, epoch: int, policy: Any, *orders: Order, settings: dict[str, Any]
) -> Trained:
    """Train a fork of a run."""
    events = events_of(parent)
    found = rebuild(events, recorded(parent), epoch, blobs=parent.blobs)
    fork = Fork(str(parent.run.id), epoch, shared_digest(events, epoch), found.sha256, orders)
    start = Start(tuple(shared_events(events, epoch)), found.state)
    return train_tiny(settings=settings, policy=policy, fork=fork, start=start)


def told(trained: Trained) -> list[tuple[str, dict[str, Any]]]:
    """Return what a run's events tell, without what differs from one training to the next."""
    found = []
    for name, body in trained.bodies():
        fields = {key: value for key, value in body.items() if not key.startswith("originator")}
        if name == "Run.EpochMeasured":
            fields["reported"] = {**fields["reported"], "seconds": 0}
        for key in ("timestamp", "seconds", "environment", "policy"):
            fields.pop(key, None)
        if name != "Run.Forked":
            found.append((name, fields))
    return found


def compare_with_forks(numerics: str) -> list[str]:
    """Fork a run of each remedy at the epoch of its first decision; return what does not repeat."""
    problems = []
    for direction, params in REMEDIES:
        settings = {**CHANGEABLE, "numerics": numerics, "epochs": 5}
        parent = train_tiny((direction, params), settings=settings)
        (first, *_) = parent.run.decisions
        outcome = "deferred" if direction == "defer" else first.outcome
        if outcome not in ("applied", "deferred"):
            problems.append(f"{direction} {params}: {first.outcome}")
        again = forked(parent, first.epoch, recorded(parent), settings=settings)
        if repr(told(again)) != repr(told(parent)):
            problems.append(f"{direction} {params}: the fork differs")
        if not reexecute(events_of(again), recorded(again)).same:
            problems.append(f"{direction} {params}: the fork cannot be trained again")
    return problems
