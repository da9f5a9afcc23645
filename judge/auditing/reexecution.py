"""Retrains a run from its events alone and compares it value by value.

Configuration, seeds, data and decisions are in the events; no language model is asked. On the same
kind of machine all measured values are identical to the last bit.

Source: docs/explanation/determinism.md.
I/O: reads the dataset; trains.  Units: epochs from 0.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aggregates.registry import REGISTRY
from aggregates.rules import RulesConfig, version_of
from aggregates.run import OWN_ENDS, Run
from aggregates.spec import ModelSpec
from judge.auditing.events import recorded_fields
from judge.auditing.limits import judges_reading, verify_limits
from judge.auditing.own_model import OUTDATED, data_is_outdated
from judge.compare import Difference, differences
from judge.config import JudgeConfig
from judge.errors import JudgeError
from ledger.application import LedgerApplication
from ledger.blobs import Blobs
from monitor.code import code_sha256
from monitor.config import RunConfig
from monitor.environment import other_kind
from monitor.errors import MonitorError
from monitor.loop import Policy, prepare, train

_SHOWN = 50  # differences


@dataclass(frozen=True)
class Retraining:
    """The result of comparing a retrained run with its record."""

    run_id: str
    epochs: int  # that were done again
    whole: bool  # up to the run's own end, and not only a part of it
    events: int  # compared
    values: int  # compared
    total: int  # differences
    differences: tuple[Difference, ...]  # the first of them
    environment: tuple[Difference, ...]  # versions, machine and code, then and now
    kind: tuple[str, ...]  # what of it decides the bits and differs

    @property
    def same(self) -> bool:
        """Whether every value is the same, bit for bit."""
        return self.total == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "same": self.same}


class MemoryBlobs:
    """Blobs that are gone with the process."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        """Keep bytes and return their hex SHA-256."""
        digest = hashlib.sha256(content).hexdigest()
        self._contents[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        """Return kept bytes."""
        return self._contents[digest]


def reexecute(
    events: Sequence[Any],
    policy: Policy,
    *,
    blobs: Blobs | None = None,
    until_epoch: int | None = None,
    on_epoch: Callable[[Run, dict[str, Any]], None] | None = None,
    config: JudgeConfig | None = None,
) -> Retraining:
    """Retrain as the run's events say, up to `until_epoch`, and compare the measured values.

    `policy` answers from the recorded decisions. A run that crashed or was interrupted is done
    again up to its last measured epoch. Data is read as the judge's configuration says. Raises
    JudgeError where that is not possible, or above the judge's limits.
    """
    judge = config or JudgeConfig()
    verify_limits(events, judge, retrained=True)
    if not events or type(events[0]) is not Run.Started:
        raise JudgeError("not the events of a run: the first event is not run.started")
    started, ended = events[0], events[-1]
    reached = max((event.epoch for event in events if type(event) is Run.EpochMeasured), default=-1)
    if reached < 0:
        raise JudgeError("the run has no measured epoch: nothing to retrain")
    if until_epoch is not None and not 0 <= until_epoch <= reached:
        raise JudgeError(f"epoch {until_epoch} is out of range: the run has epochs 0 to {reached}")
    last = reached if until_epoch is None else until_epoch
    whole = last == reached and type(ended) is Run.Ended and ended.reason in OWN_ENDS
    log = LedgerApplication.in_memory(REGISTRY)
    try:
        run_config = RunConfig.from_dict(started.config)
        splits = prepare(run_config, judges_reading(judge))
        here = {"code_sha256": code_sha256()}
        if data_is_outdated(run_config, started.data, started.environment, splits, here):
            raise JudgeError(OUTDATED)
        train(
            run_config if whole else replace(run_config, epochs=last + 1),
            policy,
            log=log,
            blobs=blobs or MemoryBlobs(),
            spec=ModelSpec.from_dict(started.spec),
            rules=_rules(started, run_config),
            parent_run=started.parent_run,
            campaign=started.campaign,
            checkpoint=started.checkpoint,
            run_id=started.originator_id,
            splits=splits,
            on_epoch=on_epoch,
        )
    except MonitorError as error:
        raise JudgeError(f"the run cannot be retrained: {error}") from error
    again = list(log.events.get(started.originator_id))
    if last < reached:  # only the shortened training closes with its last weights here
        again = [event for event in again if not _is_last(event)]
    return _compare(events, again, last=last, whole=whole, broken=last == reached and not whole)


def _rules(started: Any, config: RunConfig) -> RulesConfig | None:
    """Return the version of the profile that the run recorded, None where it is no version."""
    try:
        rules = RulesConfig(**started.rules)
    except TypeError:
        return None
    return rules if rules.profile == config.profile and version_of(rules) else None


def _is_last(event: Any) -> bool:
    return isinstance(event, Run.WeightsSaved) and event.kind == "last"


def _compare(
    recorded: Sequence[Any], again: Sequence[Any], *, last: int, whole: bool, broken: bool
) -> Retraining:
    old, new = (_told(events, last=last, whole=whole) for events in (recorded, again))
    if broken:
        new = new[: len(old)]  # where the run broke off, the training would have gone on
    found = list(_differences(old, new))
    return Retraining(
        run_id=str(recorded[0].originator_id),
        epochs=last + 1,
        whole=whole,
        events=len(old),
        values=sum(_count(told) for _, told in old),
        total=len(found),
        differences=tuple(found[:_SHOWN]),
        environment=tuple(differences(recorded[0].environment, again[0].environment)),
        kind=other_kind(recorded[0].environment, again[0].environment),
    )


def _differences(
    old: Sequence[tuple[str, dict[str, Any]]], new: Sequence[tuple[str, dict[str, Any]]]
) -> Iterator[Difference]:
    for number, ((kind, recorded), (kind_again, found)) in enumerate(
        zip(old, new, strict=False), start=1
    ):
        if kind != kind_again:
            yield Difference(f"event {number}", kind, kind_again)
            return  # from here on the two tell different stories
        yield from differences(recorded, found, place=f"event {number} {kind}")
    if len(old) != len(new):
        yield Difference("number of events", len(old), len(new))


def _told(events: Sequence[Any], *, last: int, whole: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return what both trainings have to tell alike: kinds of events with their fields."""
    told = []
    for event in events:
        fields = recorded_fields(event)
        if fields.get("epoch", 0) > last:
            break
        match event:
            case Run.Started():
                del fields["environment"]  # compared apart: it may differ
                if not whole:
                    del fields["config"], fields["config_hash"]  # has other epochs
            case Run.EpochMeasured():
                reported = dict(fields["reported"])
                reported.pop("seconds", None)
                fields["reported"] = reported
            case Run.Ended():
                if not whole:
                    break
                fields = {"reason": event.reason}
        told.append((REGISTRY.for_class(type(event)).name, fields))
    return told


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_count, value))
    return 1
