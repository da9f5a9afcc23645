"""Forks: a run that goes on from a recorded epoch of another one.

Both share everything up to that epoch's evaluation; the first decision of the fork's own is the one
that answers it. The shared part has a digest, so that two runs can be compared by it.

Trust: shared_digest() takes events that were decoded, and no more.
I/O: none.  Units: epochs from 0.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from aggregates.decisions import Decision
from aggregates.declared import Plain, build
from aggregates.errors import InvariantError
from aggregates.events import Event, again
from aggregates.run import Run
from ledger.bodies import encode_body
from ledger.mapper import recorded_fields

MAX_ORDER = 2**53


@dataclass(frozen=True)
class Order(Plain):
    """Another order of the training examples for the epochs after this one; 0: the run's own."""

    after: int
    seed: int


@dataclass(frozen=True)
class Fork(Plain):
    """What a fork records of its parent."""

    parent: str  # its id
    epoch: int  # the last one that both share
    digest: str  # of what both recorded up to then
    state: str  # SHA-256 of the training state after it, as monitor/snapshots.py writes it
    orders: tuple[Order, ...]  # rising; those of the parent included

    def __post_init__(self) -> None:
        numbers = (self.epoch, *(n for o in self.orders for n in (o.after, o.seed)))
        if any(type(each) is not int for each in numbers) or self.epoch < 0:
            raise InvariantError("the epochs and orders of a fork must be whole numbers")
        rising = all(a.after < b.after for a, b in pairwise(self.orders))
        known = all(0 <= each.after <= self.epoch for each in self.orders)
        if not rising or not known or any(not 0 <= o.seed <= MAX_ORDER for o in self.orders):
            raise InvariantError(
                "the orders of a fork must rise, up to the epoch that it starts at"
            )


def fork_of(events: Iterable[Any]) -> Fork | None:
    """Return the fork that a run's events begin with, None if it is no fork."""
    for event in events:
        if type(event) is Run.Forked:
            told = {each.name: getattr(event, each.name) for each in fields(Fork)}
            return build(Fork, told, error=InvariantError)
        if type(event) is Run.EpochMeasured:
            break
    return None


def order_seed(fork: Fork | None, epoch: int) -> int:
    """Return which order of the examples an epoch has; 0 is the run's own."""
    orders = () if fork is None else fork.orders
    return next((each.seed for each in reversed(orders) if each.after < epoch), 0)


def shared_events(events: Iterable[Any], epoch: int, *, decided: bool = False) -> Iterator[Any]:
    """Yield what follows a run's start, up to the state after `epoch`: before its decisions.

    `decided`: with its decisions, which a loop's own checkpoint follows.
    """
    for event in events:
        if type(event) in (Run.Started, Run.Provoked, Run.Forked, Run.FileSaved):
            continue
        decides = type(event) in (
            Run.DecisionMade,
            Run.RemedyApplied,
            Run.RemedyRefused,
            Run.RestartScheduled,
        )
        last = type(event) is Run.WeightsSaved and event.kind == "last"
        late = type(event) is Run.Ended or event.epoch > epoch
        if late or (event.epoch == epoch and decides and not decided):
            return
        if not last:
            yield event


def shared_digest(events: Sequence[Any], epoch: int, *, decided: bool = False) -> str:
    """Return the SHA-256 of what a run and its forks after `epoch` have in common.

    `decided`: as in shared_events().
    """
    started, fork = events[0], fork_of(events)
    start = {
        **{key: getattr(started, key) for key in ("config_hash", "rules_hash", "spec", "data")},
        "parent_run": started.parent_run,
        "orders": [o.to_dict() for o in (fork.orders if fork else ()) if o.after < epoch],
    }
    hasher = hashlib.sha256(encode_body(start))
    for event in shared_events(events, epoch, decided=decided):
        for part in (type(event).__qualname__.encode(), encode_body(recorded_fields(event))):
            hasher.update(hashlib.sha256(part).digest())
    return hasher.hexdigest()


def repeat(run: Run, event: Any) -> None:
    """Do once more what an event of another run, or of this one, tells; raises as the run does."""
    match event:  # the most frequent ones first
        case Run.DecisionMade():
            said = (event.direction, event.params, event.justification)
            decision = Decision(event.event_type, tuple(event.cites), *said)
            run.decide(decision, source=event.source)
        case Run.EpochMeasured():
            run.measure_epoch(event.measured, event.reported)
        case Run.RulesEvaluated():
            run.evaluate_rules()
        case Run.Ended():
            run.end(event.reason, detail=event.detail, deliverables=event.deliverables)
        case Event() if getattr(Run, type(event).__name__, None) is type(event):
            again(run, event)
        case _:
            raise InvariantError(f"event {type(event).__qualname__} does not belong in a run")
